/** The operation token of a secondary, generated from key shares of its primary. */
import { sendJson, secrets, secretsPath } from '../../api/client.ts'
import { DR } from './dr-status.ts'

const ATTEMPT = `${DR}/secondary/generate-operation-token/attempt`
const UPDATE = `${DR}/secondary/generate-operation-token/update`
const OTP_CHARACTERS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

interface GenerationStatus {
  readonly nonce: string
  readonly started: boolean
  readonly progress: number
  readonly required: number
  readonly complete: boolean
  readonly encoded_token: string
  readonly otp_length: number
}

export interface ShareProgress {
  readonly progress: number
  readonly required: number
  /** Present when enough shares were entered. */
  readonly token?: string
}

/** Random characters; each has the same probability. */
export function randomOtp(length: number): string {
  const limit = 256 - (256 % OTP_CHARACTERS.length)
  let otp = ''
  while (otp.length < length) {
    for (const byte of crypto.getRandomValues(new Uint8Array(length))) {
      if (byte < limit && otp.length < length) otp += OTP_CHARACTERS.charAt(byte % OTP_CHARACTERS.length)
    }
  }
  return otp
}

/** The server encrypts the token with the one-time password of the attempt. */
export function decodeToken(encoded: string, otp: string): string {
  const padded = encoded.replaceAll('-', '+').replaceAll('_', '/')
  const bytes = Uint8Array.from(atob(padded), (char, at) => (char.codePointAt(0) ?? 0) ^ (otp.codePointAt(at) ?? 0))
  return String.fromCharCode(...bytes)
}

/** Undefined if the server has ended the attempt, or another one is in progress. */
export function keptShares(
  { nonce, progress, required, started }: Pick<GenerationStatus, 'nonce' | 'progress' | 'required' | 'started'>,
  own: string,
): ShareProgress | undefined {
  return started && nonce === own ? { progress, required } : undefined
}

/** One attempt. The one-time password never leaves the page again after the start, and a share is not kept. */
export class OperationTokenAttempt {
  readonly #otp: string
  readonly #nonce: string
  readonly required: number

  private constructor(otp: string, { nonce, required }: GenerationStatus) {
    this.#otp = otp
    this.#nonce = nonce
    this.required = required
  }

  static async start(): Promise<OperationTokenAttempt> {
    const idle = await sendJson<GenerationStatus>(secretsPath(ATTEMPT))
    if (idle.started) {
      throw new Error(
        'Another attempt is in progress: finish it, or cancel it with “outpost operator generate-root -dr-token -cancel”.',
      )
    }
    const otp = randomOtp(idle.otp_length)
    const options = { method: 'POST', body: { otp } }
    return new OperationTokenAttempt(otp, await sendJson<GenerationStatus>(secretsPath(ATTEMPT), options))
  }

  async submit(key: string): Promise<ShareProgress> {
    const options = { method: 'POST', body: { key, nonce: this.#nonce } }
    const status = await sendJson<GenerationStatus>(secretsPath(UPDATE), options)
    const { complete, progress, required } = status
    if (!complete) return { progress, required }
    return { progress, required, token: decodeToken(status.encoded_token, this.#otp) }
  }

  /** After a refused share: the shares that the server has kept; undefined if it has ended the attempt. */
  async kept(): Promise<ShareProgress | undefined> {
    return keptShares(await sendJson<GenerationStatus>(secretsPath(ATTEMPT)), this.#nonce)
  }

  async cancel(): Promise<void> {
    await secrets(ATTEMPT, { method: 'DELETE', body: { nonce: this.#nonce } }).catch(() => undefined)
  }
}

/** The token does not expire, so one that is not used is deleted. */
export async function deleteOperationToken(token: string): Promise<void> {
  const body = { dr_operation_token: token }
  await secrets(`${DR}/secondary/operation-token/delete`, { method: 'POST', body }).catch(() => undefined)
}
