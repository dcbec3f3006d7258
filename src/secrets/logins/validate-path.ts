/** `sys/mfa/validate`: the second step of a login that needs a code. */
import { Storage } from '../../storage/barrier/storage.ts'
import { type Path, path, Rejection } from '../../engines/framework/engine.ts'
import { anything, text } from '../../engines/framework/fields.ts'
import type { LoginFailures } from '../../engines/framework/login-grant.ts'
import type { Refusal } from '../../platform/errors.ts'
import { parseMfaPayload } from '../mfa/mfa-header.ts'
import type { Mount, MountTable } from '../mounts/mounts.ts'
import { finishedLogin, type Login, type LoginParts } from './login.ts'

export interface ValidateParts {
  /** Throws a Refusal (503) while the core is sealed. */
  readonly open: Omit<LoginParts, 'now' | 'onBarred'> & { readonly mounts: MountTable }
  failuresOf(mount: Mount): LoginFailures
  onBarred(mountPath: string, why: string): void
  now(): number
}

export function validatePaths(core: ValidateParts): Path[] {
  return [
    path({
      pattern: 'mfa/validate',
      summary: 'Finish a login with a code',
      fields: {
        mfa_request_id: { ...text('ID that the login was answered with', { fallback: '' }), isSecret: true },
        mfa_payload: { ...anything('A list with one code, by the ID or name of its method'), isSecret: true },
      },
      unauthenticated: true,
      update({ mfa_payload: payload, mfa_request_id: id }) {
        if (id === '') throw new Rejection(400, 'missing request ID')
        const credentials = parseMfaPayload(payload)
        const of = {
          ...core.open,
          now: () => core.now(),
          failuresOf: (mount: Mount) => core.failuresOf(mount),
          onBarred: (mountPath: string, why: string) => core.onBarred(mountPath, why),
        }
        const { landed, parts, refusal, reply } = finishedLogin(of, id, credentials)
        return refusal ? refused(parts, refusal) : { ...reply, parts, landed }
      },
    }),
  ]
}

async function refused(parts: Login['parts'], refusal: Refusal): Promise<never> {
  if (parts.length > 0) await Storage.commitAll(parts)
  throw refusal
}
