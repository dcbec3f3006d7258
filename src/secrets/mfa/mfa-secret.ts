/**
 * The TOTP secret of an entity for one method, and the verification of codes. These are pure functions; `mfa.ts` stores the results.
 *
 * A secret keeps the parameters that it was generated with, because authenticator applications cannot change them. A time step whose
 * code was accepted is never accepted again (`engines/totp/code-check.ts`).
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import { isObject } from '../../engines/framework/fields.ts'
import { type Algorithm, ALGORITHMS, newKey } from '../../engines/totp/codes.ts'
import { checkCode, type CodeSkew, NO_STEPS, type UsedSteps } from '../../engines/totp/code-check.ts'
import { Fault } from '../../platform/errors.ts'
import { formOf, type TotpMethod } from './mfa-method.ts'

export interface MfaSecret extends UsedSteps {
  readonly format: 1
  /** Base64 */
  readonly key: string
  readonly algorithm: Algorithm
  readonly digits: 6 | 8
  readonly periodSeconds: number
  readonly skew: CodeSkew
  readonly createdAtMs: number
  /** False until the first code was confirmed, if the method requires that. */
  readonly isActive: boolean
  /** SHA-256 of the unused recovery codes in hexadecimal. */
  readonly recoveryHashes: readonly string[]
  readonly lastUsedAtMs: number | null
  readonly lastFailedAtMs: number | null
  /** Invalid codes since the last accepted code. */
  readonly failures: number
  /** Invalid codes since the last lock-out. */
  readonly tries: number
  /** Lock-outs since the last accepted code. */
  readonly lockouts: number
  readonly lockedUntilMs: number
}

const LOCK_MAX_MS = 3_600_000
/** The counters are reset this time after the last invalid code. */
const COUNTER_RESET_MS = 86_400_000
/** 20 base32 digits: 100 bits */
const RECOVERY_CODE = /^[a-z2-7]{20}$/
const LETTERS = 'abcdefghijklmnopqrstuvwxyz234567'

export function encodeSecret(secret: MfaSecret): Buffer {
  return Buffer.from(JSON.stringify(secret))
}

/** Throws a Fault for a damaged entry. */
export function parseSecret(bytes: Buffer): MfaSecret {
  let parsed: unknown
  try {
    parsed = JSON.parse(bytes.toString('utf8'))
  } catch {
    // The message of the parser would quote the secret.
  }
  if (!isSecret(parsed)) throw new Fault('the entry of an MFA secret is damaged')
  return parsed
}

/** Not a schema, which was slower in profiles: each verification of a code reads a secret. */
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

/** Generates a secret. The key and the recovery codes are shown once. */
export function newSecret(
  method: TotpMethod,
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

/** Four groups of five base32 digits. */
function newRecoveryCode(): string {
  const text = [...randomBytes(20)].map((byte) => LETTERS[byte & 31]).join('')
  return text.replaceAll(/.{5}(?=.)/g, '$&-')
}

function recoveryHash(code: string): string {
  return createHash('sha256').update(code.replaceAll('-', '').toLowerCase()).digest('hex')
}

/** `wallMs`: the machine's clock, for codes. `nowMs`: the core's monotonic clock, for lock-outs. */
export interface MfaTime {
  readonly wallMs: number
  readonly nowMs: number
}

export type CodeVerdict =
  /** `after`: the secret to store. */
  | { readonly kind: 'right'; readonly after: MfaSecret }
  | { readonly kind: 'wrong'; readonly after: MfaSecret }
  /** Used before or malformed: the code is refused but not counted as an attempt. */
  | { readonly kind: 'void' }
  | { readonly kind: 'locked'; readonly retryMs: number }

/** The remaining time of a lock-out; 0 if there is none. */
export function lockedMs({ lockedUntilMs }: MfaSecret, nowMs: number): number {
  return Math.max(0, lockedUntilMs - nowMs)
}

/** Verifies a TOTP code or a recovery code. `attemptsMax`: the current limit of the method. */
export function verifyCode(secret: MfaSecret, code: string, at: MfaTime, attemptsMax: number): CodeVerdict {
  const retryMs = lockedMs(secret, at.nowMs)
  if (retryMs > 0) return { kind: 'locked', retryMs }
  const recovery = code.replaceAll('-', '').toLowerCase()
  if (RECOVERY_CODE.test(recovery)) {
    const recoveryHashes = withoutHash(secret.recoveryHashes, recoveryHash(recovery))
    return recoveryHashes ? accept({ ...secret, recoveryHashes }, at) : reject(secret, at, attemptsMax)
  }
  if (code.length !== secret.digits || !/^\d+$/.test(code)) return { kind: 'void' }
  const codeKey = { key: Buffer.from(secret.key, 'base64'), form: formOf(secret), skew: secret.skew }
  const decision = checkCode(code, codeKey, () => secret, at.wallMs)
  if (decision.kind === 'wrong') return reject(secret, at, attemptsMax)
  return decision.kind === 'used' ? { kind: 'void' } : accept(decision.after, at)
}

/** The other hashes; undefined if the hash is not among them. Compares with all of them in constant time. */
function withoutHash(hashes: readonly string[], hash: string): string[] | undefined {
  const bytes = Buffer.from(hash, 'hex')
  const left = hashes.filter((each) => !timingSafeEqual(Buffer.from(each, 'hex'), bytes))
  return left.length < hashes.length ? left : undefined
}

function accept(secret: MfaSecret, { nowMs }: MfaTime): CodeVerdict {
  const after = { ...secret, lastUsedAtMs: nowMs, failures: 0, tries: 0, lockouts: 0, lockedUntilMs: 0 }
  return { kind: 'right', after }
}

function reject(before: MfaSecret, { nowMs }: MfaTime, attemptsMax: number): CodeVerdict {
  const isOld = before.lastFailedAtMs !== null && nowMs - before.lastFailedAtMs >= COUNTER_RESET_MS
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

/** One period, doubled with each lock-out, at most an hour. */
function lockMs(periodSeconds: number, lockouts: number): number {
  return Math.min(periodSeconds * 1000 * 2 ** Math.min(lockouts, 20), LOCK_MAX_MS)
}

/** Ends a lock-out and resets the counters. */
export function unlockSecret(secret: MfaSecret): MfaSecret {
  return { ...secret, tries: 0, lockouts: 0, lockedUntilMs: 0 }
}
