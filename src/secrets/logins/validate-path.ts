/** `sys/mfa/validate`: the second step of a login that requires a code. */
import { Storage } from '../../storage/barrier/storage.ts'
import { rangesInBoth } from '../../engines/framework/cidr.ts'
import { type Path, path, Rejection } from '../../engines/framework/engine.ts'
import { anything, text } from '../../engines/framework/fields.ts'
import type { LoginFailures, LoginGrant } from '../../engines/framework/login-grant.ts'
import type { Refusal } from '../../platform/errors.ts'
import { type PendingLogin, unsatisfied } from '../mfa/login-mfa.ts'
import { type MfaCredentials, parseMfaPayload } from '../mfa/mfa-header.ts'
import type { Mount, MountTable } from '../mounts/mounts.ts'
import { enabledEntityOf, issueToken, loginFactsOf, type LoginServices, type PreparedLogin } from './login.ts'

export interface ValidateServices {
  /** Throws a Refusal (503) while the core is sealed. */
  readonly open: Omit<LoginServices, 'now' | 'onLoginRefused'> & { readonly mounts: MountTable }
  failuresOf(mount: Mount): LoginFailures
  onLoginRefused(mountPath: string, reason: string): void
  now(): number
}

export function validatePaths(core: ValidateServices): Path[] {
  return [
    path({
      pattern: 'mfa/validate',
      summary: 'Complete a login with an MFA code',
      fields: {
        mfa_request_id: { ...text('ID from the response of the login', { fallback: '' }), isSecret: true },
        mfa_payload: { ...anything('Map of an MFA method ID or name to a list with one code'), isSecret: true },
      },
      unauthenticated: true,
      update({ mfa_payload: payload, mfa_request_id: id }) {
        if (id === '') throw new Rejection(400, 'missing request ID')
        const { onSettled, parts, refusal, reply } = validateLogin(core, id, parseMfaPayload(payload))
        return refusal ? commitAndThrow(parts, refusal) : { ...reply, parts, onSettled }
      },
    }),
  ]
}

async function commitAndThrow(parts: PreparedLogin['parts'], refusal: Refusal): Promise<never> {
  if (parts.length > 0) await Storage.commitAll(parts)
  throw refusal
}

/** Throws a Rejection (400) for an unknown request ID, and if the user, role, credentials or entity of the login have changed. */
function validateLogin(core: ValidateServices, requestId: string, credentials: MfaCredentials): PreparedLogin {
  const { identity, loginMfa, mounts } = core.open
  const services: LoginServices = {
    ...core.open,
    now: () => core.now(),
    onLoginRefused: (mountPath, reason) => core.onLoginRefused(mountPath, reason),
  }
  const pending = loginMfa.find(requestId)
  const mount = pending && mounts.byUuid(pending.mountUuid)
  if (!pending || !mount) throw invalidRequestId()
  const accepted = () => core.failuresOf(mount).succeeded(pending.order.alias.name)
  const { groups, terms } = currentTerms(pending, mount)
  const login = { ...pending.order, groups, terms, accepted, refusal: permissionDenied }
  const acceptedLogin = { mount, path: pending.path, login }
  const draft = identity.draft(core.now())
  const entity = enabledEntityOf(draft, acceptedLogin)
  if (entity.id !== pending.entityId) throw invalidRequestId()
  const enforcements = loginMfa.enforcementsFor(loginFactsOf(services, acceptedLogin, entity))
  const { parts: codeParts, refusal } = loginMfa.satisfy(entity.id, enforcements, credentials, unsatisfied)
  if (refusal) return { reply: {}, parts: codeParts, onSettled: () => undefined, refusal }
  loginMfa.drop(requestId)
  const prepared = issueToken(services, acceptedLogin, draft, entity)
  return { ...prepared, parts: [...prepared.parts, ...codeParts] }
}

/**
 * The groups and terms that the auth method grants now, within the addresses that the first step bound: only the first step knows those
 * of a secret ID. Throws a Rejection (400) if the user or role no longer exists or has other credentials.
 */
function currentTerms({ order }: PendingLogin, mount: Mount): Pick<LoginGrant, 'groups' | 'terms'> {
  try {
    const standing = mount.engine.renewLogin?.(order.subject, mount, order.mark)
    if (!standing) return order
    const boundCidrs = rangesInBoth(order.terms.boundCidrs, standing.terms.boundCidrs)
    if (standing.alias !== order.alias.name || !boundCidrs) throw new Rejection(400)
    return { groups: standing.groups, terms: { ...standing.terms, boundCidrs } }
  } catch (error) {
    // The auth method's text is about the renewal of a token.
    if (error instanceof Rejection) throw invalidRequestId()
    throw error
  }
}

/** The first words are Vault's. A pending login is in memory, so it ends with the activity of its server. */
export const INVALID_REQUEST_ID =
  'invalid request ID: the login was completed, has expired or changed, or began before the active server changed; log in again'

function invalidRequestId(): Rejection {
  return new Rejection(400, INVALID_REQUEST_ID)
}

function permissionDenied(): Rejection {
  return new Rejection(403, 'permission denied')
}
