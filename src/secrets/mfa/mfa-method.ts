/** TOTP methods: parameters, limits and the response format. */
import * as v from 'valibot'
import { Rejection } from '../../engines/framework/engine.ts'
import { boolean, duration, type EngineInput, integer, text, UNPRINTABLE } from '../../engines/framework/fields.ts'
import { SKEW_DEFAULT } from '../../engines/totp/code-check.ts'
import { ALGORITHMS, type CodeForm } from '../../engines/totp/codes.ts'

export const methodSchema = v.object({
  /** UUID */
  id: v.string(),
  /** Unique; empty for a method that is addressed by ID only. */
  name: v.string(),
  /** Increases in order of creation; 0 in entries of old versions. */
  position: v.optional(v.number(), 0),
  issuer: v.string(),
  periodSeconds: v.number(),
  keyBytes: v.number(),
  /** Width and height of the QR code; 0 for none. */
  qrPixels: v.number(),
  algorithm: v.picklist(ALGORITHMS),
  digits: v.picklist([6, 8]),
  skew: v.picklist([0, 1]),
  /** Invalid codes before the entity is locked out of the method. */
  attemptsMax: v.number(),
  /** Recovery codes generated with each secret. */
  recoveryCodes: v.number(),
  /** A secret is inactive until its first code was confirmed. */
  needsConfirmation: v.boolean(),
})

export type TotpMethod = v.InferOutput<typeof methodSchema>
export type MethodSettings = Omit<TotpMethod, 'id' | 'name' | 'position'>

export const METHOD_FIELDS = {
  issuer: text('Name of the organization that issues the key, as authenticator applications show it', { fallback: '' }),
  period: duration('How long a code is valid, in seconds or as a duration, at most an hour', { fallback: 30 }),
  key_size: integer('Size of a generated key in bytes, 10 to 128', { fallback: 20 }),
  qr_size: integer('Width and height of the QR code in pixels, 64 to 2048; 0 for none', { fallback: 200 }),
  algorithm: text('SHA1, SHA256 or SHA512', { fallback: 'SHA1' }),
  digits: integer('Digits of a code, 6 or 8', { fallback: 6 }),
  skew: integer('Periods before and after the current one whose codes are accepted, 0 or 1', {
    fallback: SKEW_DEFAULT,
  }),
  max_validation_attempts: integer('Invalid codes before an entity is locked out temporarily', { fallback: 5 }),
  recovery_codes: integer('Recovery codes generated with each secret, at most 20', { fallback: 0 }),
  require_confirmation: boolean('Whether a secret is inactive until its first code was confirmed', { fallback: false }),
}

const NAME = /^\w(?:[\w.-]{0,126}\w)?$/
const UUID = /^[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}$/i
/** Path segments that a name would collide with */
const RESERVED = new Set(['totp', 'generate', 'admin-generate', 'admin-destroy'])
const ISSUER_LENGTH_MAX = 64
const PERIOD_MAX_SECONDS = 3600
const ATTEMPTS_MAX = 1000
const RECOVERY_CODES_MAX = 20
const [KEY_BYTES_MIN, KEY_BYTES_MAX] = [10, 128]
const [QR_PIXELS_MIN, QR_PIXELS_MAX] = [64, 2048]

/** Throws a Rejection (400) for an invalid name. */
export function parseMethodName(name: string): string {
  if (RESERVED.has(name)) throw new Rejection(400, `the name ${JSON.stringify(name)} is reserved`)
  if (!NAME.test(name) || UUID.test(name)) {
    throw new Rejection(
      400,
      'the name of an MFA method must have 1 to 128 letters, digits, "_", "-" and ".", must not begin or end with "-" or ".", and must not be a UUID',
    )
  }
  return name
}

function refuse(message: string): never {
  throw new Rejection(400, message)
}

function within(name: string, value: number, [min, max]: readonly [number, number]): number {
  return value >= min && value <= max ? value : refuse(`${name} must be ${min} to ${max}`)
}

/** Throws a Rejection (400) for the first invalid parameter. */
export function parseSettings(input: EngineInput<typeof METHOD_FIELDS>): MethodSettings {
  const algorithm = ALGORITHMS.find((each) => each === input.algorithm) ?? refuse('unrecognized algorithm')
  const { digits, issuer, key_size: keyBytes, period, qr_size: qrPixels, skew } = input
  if (digits !== 6 && digits !== 8) refuse('digits can only be 6 or 8')
  if (period <= 0) refuse('period must be greater than zero')
  if (skew !== 0 && skew !== 1) refuse('skew must be 0 or 1')
  if (keyBytes <= 0) refuse('key_size must be greater than zero')
  if (issuer.trim() === '') refuse('issuer must be set')
  const { max_validation_attempts: attempts, recovery_codes: codes } = input
  if (attempts < 0) refuse('max_validation_attempts must be greater than zero')
  if (issuer.length > ISSUER_LENGTH_MAX || !issuer.isWellFormed() || UNPRINTABLE.test(issuer)) {
    refuse(`issuer must have at most ${ISSUER_LENGTH_MAX} printable characters`)
  }
  return {
    algorithm,
    digits,
    issuer,
    skew,
    periodSeconds: within('period', period, [1, PERIOD_MAX_SECONDS]),
    keyBytes: within('key_size', keyBytes, [KEY_BYTES_MIN, KEY_BYTES_MAX]),
    qrPixels: qrPixels === 0 ? 0 : within('qr_size (0 for none)', qrPixels, [QR_PIXELS_MIN, QR_PIXELS_MAX]),
    attemptsMax: attempts === 0 ? 5 : within('max_validation_attempts', attempts, [1, ATTEMPTS_MAX]),
    recoveryCodes: within('recovery_codes', codes, [0, RECOVERY_CODES_MAX]),
    needsConfirmation: input.require_confirmation,
  }
}

export function formOf({ algorithm, digits, periodSeconds }: CodeForm): CodeForm {
  return { algorithm, digits, periodSeconds }
}

/** A method as in responses. */
export function methodInfo(method: TotpMethod): Record<string, unknown> {
  return {
    algorithm: method.algorithm,
    digits: method.digits,
    id: method.id,
    issuer: method.issuer,
    key_size: method.keyBytes,
    max_validation_attempts: method.attemptsMax,
    name: method.name,
    period: method.periodSeconds,
    qr_size: method.qrPixels,
    ...(method.recoveryCodes > 0 && { recovery_codes: method.recoveryCodes }),
    ...(method.needsConfirmation && { require_confirmation: true }),
    skew: method.skew,
    type: 'totp',
  }
}
