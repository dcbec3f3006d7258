/**
 * The two lines of a snapshot that was restored into a server which was not initialised. There was no core then, and so no device:
 * the devices of the snapshot record it when they are first opened. A process that is killed before the note is removed records it twice.
 */
import type { RestoreOriginNote } from '../../storage/seal/restore-origin.ts'
import type { Caller } from '../../engines/framework/engine.ts'
import { messageOf } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import { Account } from './account.ts'
import type { AuditTrail } from './audit.ts'

export interface OriginParts {
  readonly note: RestoreOriginNote
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
      const of = { head, ...from, nowMs: atMs, mount: undefined, data: undefined, changesNothing: false }
      await recorded(new Account(trail, of, { params: {}, query: [], headers: {}, body: undefined }))
    }
    await note.remove()
  } catch (error) {
    logger.warn('the restored snapshot could not be recorded by the audit devices; it is tried at the next start', {
      error: messageOf(error),
    })
  }
}

async function recorded(account: Account): Promise<void> {
  try {
    await account.begin()
    await account.end(undefined)
  } finally {
    account.leave()
  }
}
