/**
 * The two lines of a snapshot that was restored into a server which was not initialised. There was no core then, and so no device:
 * the devices of the snapshot record it when they are first opened. A process that is killed before the note is removed records it twice.
 */
import type { OriginNote } from '../../storage/seal/seal-origin.ts'
import type { Caller } from '../../engines/framework/engine.ts'
import { messageOf } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import { RequestAudit } from './request-audit.ts'
import type { AuditTrail } from './audit.ts'

export interface OriginParts {
  readonly note: OriginNote
  readonly trail: AuditTrail
  readonly nobody: Caller
  readonly logger: Logger
}

/** The path of the request that it was. */
export const SNAPSHOT_NEW = 'sys/storage/snapshot-new'

/** Never rejects: what no device records is recorded by the next core that opens. */
export async function recordOrigin({ logger, nobody, note, trail }: OriginParts): Promise<void> {
  try {
    const origin = note.read()
    if (!origin) return
    if (trail.isOn) {
      const { atMs, remote, requestId } = origin
      const head = { verb: 'update', path: SNAPSHOT_NEW, wrapping: undefined } as const
      const from = { requestId, token: undefined, remote: remote === '' ? undefined : remote, caller: nobody }
      const of = { head, ...from, nowMs: atMs, mount: undefined, data: undefined, isReadOnly: false }
      await recorded(new RequestAudit(trail, of, { params: {}, query: [], headers: {}, body: undefined }))
    }
    await note.remove()
  } catch (error) {
    logger.warn('the restored snapshot could not be recorded by the audit devices; it is tried at the next start', {
      error: messageOf(error),
    })
  }
}

async function recorded(account: RequestAudit): Promise<void> {
  try {
    await account.recordRequest()
    await account.recordReply(undefined)
  } finally {
    account.close()
  }
}
