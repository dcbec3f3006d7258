/** Operations on methods and secrets that are served by both `sys/mfa` and `identity/mfa`. */
import { Storage } from '../../storage/barrier/storage.ts'
import { Refusal } from '../../platform/errors.ts'
import { type EngineCall, Rejection, type Reply } from '../../engines/framework/engine.ts'
import { base32Of, otpauthUrl } from '../../engines/totp/codes.ts'
import { qrPng } from '../../engines/totp/qr.ts'
import { runSliced } from '../../platform/sliced-work.ts'
import type { PolicyStore } from '../policies/policy-store.ts'
import type { Enforcements } from './enforcement.ts'
import type { Mfa } from './mfa.ts'
import { formOf, type TotpMethod, type MethodSettings } from './mfa-method.ts'
import { lockedMs, type MfaSecret } from './mfa-secret.ts'
import { lockedOut } from './step-up.ts'

/** Generates a secret for an entity and shows it once. With `replaces` it replaces an existing one. */
export async function generateSecret(
  mfa: Mfa,
  method: TotpMethod,
  givenId: string,
  { replaces = false } = {},
): Promise<Reply> {
  const entityId = mfa.requireEntity(givenId)
  const name = method.name === '' ? method.id : method.name
  const refused: Reply = {
    data: null,
    warnings: [`Entity already has a secret for MFA method ${JSON.stringify(name)}`],
  }
  const enrolment = mfa.enrol(method, entityId, { replaces })
  if (!enrolment) return refused
  const { key, recoveryCodes } = enrolment
  const { barcode, url } = await renderKey(method, key, [mfa.accountOf(entityId), entityId])
  if (!(await enrolment.store())) return refused
  return {
    data: {
      barcode,
      url,
      secret: base32Of(key),
      ...(recoveryCodes.length > 0 && { recovery_codes: recoveryCodes }),
      ...(method.needsConfirmation && { confirmed: false }),
    },
  }
}

/** Uses the first account name whose QR code fits the size of the method. The last one always fits (`checkQrSize`). */
async function renderKey(
  method: TotpMethod,
  key: Buffer,
  [account = '', ...others]: readonly string[],
): Promise<{ readonly url: string; readonly barcode: string }> {
  const url = otpauthUrl({ issuer: method.issuer, account, key, form: formOf(method) })
  if (method.qrPixels === 0) return { url, barcode: '' }
  try {
    return { url, barcode: (await qrPng(url, method.qrPixels)).toString('base64') }
  } catch (error) {
    const doesNotFit = error instanceof Refusal && error.status === 400
    if (!doesNotFit || others.length === 0) throw error
    return renderKey(method, key, others)
  }
}

/** Draws a QR code with the longest account name. Rejects with a Refusal (400) if it does not fit the size. */
export async function checkQrSize({ issuer, keyBytes, qrPixels, ...rest }: MethodSettings): Promise<void> {
  if (qrPixels === 0) return
  const account = '00000000-0000-0000-0000-000000000000'
  await qrPng(otpauthUrl({ issuer, account, key: Buffer.alloc(keyBytes), form: formOf(rest) }), qrPixels)
}

/** The stores that refer to methods. */
export interface MethodReferences {
  readonly enforcements: Enforcements
  readonly mfa: Mfa
  readonly policies: Pick<PolicyStore, 'namesUsingMfaMethod'>
}

/**
 * Removes a method with all its secrets. Rejects with a Rejection (400) while a login enforcement refers to it and, without `force`,
 * while a policy does.
 */
export async function removeMethod(
  { enforcements, mfa, policies }: MethodReferences,
  method: TotpMethod | undefined,
  { call, force }: { readonly call: EngineCall; readonly force: boolean },
): Promise<undefined> {
  if (!method) return undefined
  const user = enforcements.all.find(({ methodIds }) => methodIds.includes(method.id))
  if (user) {
    throw new Rejection(
      400,
      `methodID ${JSON.stringify(method.id)} is still used by an enforcement configuration with ID ${JSON.stringify(user.id)}: remove it from the login enforcement ${JSON.stringify(user.name)} first`,
    )
  }
  if (!force) {
    const names = await runSliced(policies.namesUsingMfaMethod([method.id, method.name], call.nowMs), call)
    if (names.length > 0) throw inUseByPolicies(method, names)
  }
  await mfa.remove(method)
  return undefined
}

/** Names of policies in an error */
const NAMES_MAX = 20

function inUseByPolicies({ id, name }: TotpMethod, policies: readonly string[]): Rejection {
  const shown = policies.slice(0, NAMES_MAX).map((each) => JSON.stringify(each))
  const more = policies.length > NAMES_MAX ? ` and ${policies.length - NAMES_MAX} more` : ''
  return new Rejection(
    400,
    `MFA method ${JSON.stringify(name === '' ? id : name)} is still named in mfa_methods of policies: ${shown.join(', ')}${more}: change them first, or set force=true, after which their rules deny every request`,
  )
}

export async function destroySecret(mfa: Mfa, method: TotpMethod, givenId: string): Promise<undefined> {
  await mfa.destroy(method.id, mfa.requireEntity(givenId, 'missing entity ID'))
  return undefined
}

/** Activates a secret with its first code. */
export async function confirmSecret(
  mfa: Mfa,
  method: TotpMethod,
  givenId: string,
  passcode: string,
): Promise<undefined> {
  const entityId = mfa.requireEntity(givenId)
  if (passcode === '') throw new Rejection(400, 'missing passcode')
  const { parts, retryMs, verdicts } = mfa.verify(entityId, [{ method, code: passcode }], {
    awaitsConfirmation: true,
  })
  if (parts.length > 0) await Storage.commitAll(parts)
  if (retryMs > 0) throw lockedOut(retryMs)
  if (verdicts.get(method.id) === 'right') return undefined
  throw new Rejection(403, `the secret was not confirmed: ${unconfirmedReason(mfa.secretState(method.id, entityId))}`)
}

function unconfirmedReason(state: ReturnType<Mfa['secretState']>): string {
  if (state === 'none') return 'the entity has no secret for this MFA method: generate one first'
  return state === 'active' ? 'it is already active' : 'the code is wrong or was already used'
}

export async function unlockEntity(mfa: Mfa, method: TotpMethod, givenId: string): Promise<undefined> {
  const entityId = mfa.requireEntity(givenId, 'missing entity ID')
  if (!(await mfa.unlock(method.id, entityId))) throw new Rejection(400, 'the entity has no secret for this MFA method')
  return undefined
}

/** The state of a secret, without the secret itself. */
export function secretInfo(entityId: string, secret: MfaSecret, nowMs: number): Record<string, unknown> {
  const { createdAtMs, failures, isActive, lastFailedAtMs, lastUsedAtMs, recoveryHashes } = secret
  const locked = lockedMs(secret, nowMs)
  return {
    confirmed: isActive,
    creation_time: timeText(createdAtMs),
    entity_id: entityId,
    failed_attempts: failures,
    last_failed_time: lastFailedAtMs === null ? null : timeText(lastFailedAtMs),
    last_used_time: lastUsedAtMs === null ? null : timeText(lastUsedAtMs),
    locked: locked > 0,
    locked_seconds_left: Math.ceil(locked / 1000),
    recovery_codes_left: recoveryHashes.length,
  }
}

function timeText(ms: number): string {
  return new Date(ms).toISOString()
}
