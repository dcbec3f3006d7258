/**
 * What is kept of an entity's secret for one method, and what a code does to it. Everything here is computed from values:
 * who stores it is `mfa.ts`.
 *
 * The key keeps the parameters that it was generated with: authenticator applications know no others. A time step whose code
 * was accepted is never accepted again (`engines/totp/code-check.ts`).
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import { isObject } from '../../engines/framework/fields.ts'
import { type Algorithm, ALGORITHMS, matchCode, newKey } from '../../engines/totp/codes.ts'
import { isUsed, NO_STEPS, type UsedSteps, withStep } from '../../engines/totp/code-check.ts'
import { Fault } from '../../platform/errors.ts'
import { formOf, type Method } from './mfa-method.ts'

export interface MfaSecret extends UsedSteps {
  readonly format: 1
  /** Base64. */
  readonly key: string
  readonly algorithm: Algorithm
  readonly digits: 6 | 8
  readonly periodSeconds: number
  readonly skew: 0 | 1
  readonly createdAtMs: number
  /** False until the first code was confirmed, where the method asks for that. */
  readonly isActive: boolean
  /** SHA-256 of the recovery codes that are left, in hex. */
  readonly recoveryHashes: readonly string[]
  readonly lastUsedAtMs: number | null
  readonly lastFailedAtMs: number | null
  /** Wrong codes since the last accepted one. */
  readonly failures: number
  /** Of these, since the last lock-out. */
  readonly tries: number
  /** Lock-outs since the last accepted code. */
  readonly lockouts: number
  readonly lockedUntilMs: number
}

const LOCK_MAX_MS = 3_600_000
/** So long after the last wrong code counting begins anew. */
const FORGIVEN_AFTER_MS = 86_400_000
/** 20 letters of base32: 100 bits. */
const RECOVERY_CODE = /^[a-z2-7]{20}$/
const LETTERS = 'abcdefghijklmnopqrstuvwxyz234567'

export function encodeSecret(secret: MfaSecret): Buffer {
  return Buffer.from(JSON.stringify(secret))
}

/** Throws a Fault for an entry that is damaged. */
export function parseSecret(bytes: Buffer): MfaSecret {
  let parsed: unknown
  try {
    parsed = JSON.parse(bytes.toString('utf8'))
  } catch {
    // Its text would quote the secret.
  }
  if (!isSecret(parsed)) throw new Fault('the entry of an MFA secret is damaged')
  return parsed
}

/** By hand, as each check of a code reads one: a schema took longer in profiles. */
function isSecret(value: unknown): value is MfaSecret {
  if (!isObject(value) || value['format'] !== 1 || typeof value['key'] !== 'string') return false
  const { algorithm, digits, isActive, recoveryHashes, skew, usedSteps } = value
  if (!ALGORITHMS.some((each) => each === algorithm) || (digits !== 6 && digits !== 8)) return false
  if ((skew !== 0 && skew !== 1) || typeof isActive !== 'boolean') return false
  if (!Array.isArray(usedSteps) || !usedSteps.every((each) => Number.isSafeInteger(each))) return false
  if (!Array.isArray(recoveryHashes) || !recoveryHashes.every((each) => typeof each === 'string')) return false
  const isTime = (name: string) => value[name] === null || Number.isFinite(value[name])
  return NUMBERS.every((name) => Number.isFinite(value[name])) && isTime('lastUsedAtMs') && isTime('lastFailedAtMs')
}

const NUMBERS = ['periodSeconds', 'createdAtMs', 'floorStep', 'failures', 'tries', 'lockouts', 'lockedUntilMs']

/** A fresh secret, and what is shown of it once. */
export function newSecret(
  method: Method,
  nowMs: number,
): { readonly secret: MfaSecret; readonly key: Buffer; readonly recoveryCodes: readonly string[] } {
  const key = newKey(method.keyBytes)
  const recoveryCodes = Array.from({ length: method.recoveryCodes }, newRecoveryCode)
  const secret: MfaSecret = {
    format: 1,
    key: key.toString('base64'),
    ...formOf(method),
    skew: method.skew,
    createdAtMs: nowMs,
    isActive: !method.needsConfirmation,
    ...NO_STEPS,
    recoveryHashes: recoveryCodes.map((code) => recoveryHash(code)),
    lastUsedAtMs: null,
    lastFailedAtMs: null,
    failures: 0,
    tries: 0,
    lockouts: 0,
    lockedUntilMs: 0,
  }
  return { secret, key, recoveryCodes }
}

/** Four groups of five letters. */
function newRecoveryCode(): string {
  const text = [...randomBytes(20)].map((byte) => LETTERS[byte & 31]).join('')
  return text.replaceAll(/.{5}(?=.)/g, '$&-')
}

function recoveryHash(code: string): string {
  return createHash('sha256').update(code.replaceAll('-', '').toLowerCase()).digest('hex')
}

/** The two clocks: that of the machine, which codes go by, and that of the core, which is never set back. */
export interface Moment {
  readonly wallMs: number
  readonly nowMs: number
}

export type Verdict =
  /** `after` is the secret once that is durable. */
  | { readonly kind: 'right'; readonly after: MfaSecret }
  | { readonly kind: 'wrong'; readonly after: MfaSecret }
  /** Used before, or of a form that no code of the method has: it is refused, and counts as no attempt. */
  | { readonly kind: 'void' }
  | { readonly kind: 'locked'; readonly retryMs: number }

/** How long the entity is still locked out of the method; 0 where it is not. */
export function lockedMs({ lockedUntilMs }: MfaSecret, nowMs: number): number {
  return Math.max(0, lockedUntilMs - nowMs)
}

/** Judges a code, or a recovery code. `attemptsMax` is what the method says now. */
export function judged(secret: MfaSecret, code: string, at: Moment, attemptsMax: number): Verdict {
  const retryMs = lockedMs(secret, at.nowMs)
  if (retryMs > 0) return { kind: 'locked', retryMs }
  const recovery = code.replaceAll('-', '').toLowerCase()
  if (RECOVERY_CODE.test(recovery)) {
    const recoveryHashes = withoutHash(secret.recoveryHashes, recoveryHash(recovery))
    return recoveryHashes ? right({ ...secret, recoveryHashes }, at) : wrong(secret, at, attemptsMax)
  }
  if (code.length !== secret.digits || !/^\d+$/.test(code)) return { kind: 'void' }
  const step = matchCode(Buffer.from(secret.key, 'base64'), formOf(secret), code, at.wallMs, secret.skew)
  if (step === undefined) return wrong(secret, at, attemptsMax)
  if (isUsed(secret, step)) return { kind: 'void' }
  return right(withStep(secret, step), at)
}

/** The others, where it is one of them; compared in constant time, and with all of them. */
function withoutHash(hashes: readonly string[], hash: string): string[] | undefined {
  const wanted = Buffer.from(hash, 'hex')
  const left = hashes.filter((each) => !timingSafeEqual(Buffer.from(each, 'hex'), wanted))
  return left.length < hashes.length ? left : undefined
}

function right(secret: MfaSecret, { nowMs }: Moment): Verdict {
  const after = { ...secret, lastUsedAtMs: nowMs, failures: 0, tries: 0, lockouts: 0, lockedUntilMs: 0 }
  return { kind: 'right', after }
}

function wrong(before: MfaSecret, { nowMs }: Moment, attemptsMax: number): Verdict {
  const isOld = before.lastFailedAtMs !== null && nowMs - before.lastFailedAtMs >= FORGIVEN_AFTER_MS
  const secret = isOld ? { ...before, tries: 0, lockouts: 0 } : before
  const counted = { ...secret, failures: before.failures + 1, tries: secret.tries + 1, lastFailedAtMs: nowMs }
  if (counted.tries < attemptsMax) return { kind: 'wrong', after: counted }
  return {
    kind: 'wrong',
    after: {
      ...counted,
      tries: 0,
      lockouts: secret.lockouts + 1,
      lockedUntilMs: nowMs + lockMs(secret.periodSeconds, secret.lockouts),
    },
  }
}

/** A period, twice as long with each lock-out, at most an hour. */
function lockMs(periodSeconds: number, lockouts: number): number {
  return Math.min(periodSeconds * 1000 * 2 ** Math.min(lockouts, 20), LOCK_MAX_MS)
}

/** An unlocked secret whose wrong codes are forgiven. */
export function unlocked(secret: MfaSecret): MfaSecret {
  return { ...secret, tries: 0, lockouts: 0, lockedUntilMs: 0 }
}
