/** Operation tokens of a secondary: generated from key shares of its primary, and deleted. */
import { randomInt } from 'node:crypto'
import { CommandError, type CommandIo } from '../../../framework/define-command.ts'
import { sendRequest, type CoreAccess, requireResponse } from '../../../core/core-access.ts'
import { readSecrets } from '../../../input/secret-input.ts'
import { DR, GENERATION } from './dr-access.ts'

const OTP_CHARACTERS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

/** Key shares of the primary, read when the first one is needed and kept for a second token. */
export class KeyShares {
  readonly #given: string | undefined
  readonly #io: CommandIo
  #shares: readonly string[] = []

  /** `given`: `@FILE` or `-`; undefined for a prompt. */
  constructor(given: string | undefined, io: CommandIo) {
    this.#given = given
    this.#io = io
  }

  /** `at` starts at 1. Throws CommandError if there are fewer than `required`. */
  async take(at: number, required: number): Promise<string> {
    if (this.#shares.length < at && (at === 1 || this.#given === undefined)) {
      const prompt = `Key share ${at} of ${required} (will be hidden): `
      this.#shares = [...this.#shares, ...(await readSecrets(this.#given, { what: 'key share', prompt }, this.#io))]
    }
    const share = this.#shares[at - 1]
    if (share !== undefined) return share
    throw new CommandError(
      `${required} key shares are required, got ${at - 1}; the attempt was canceled, nothing was changed`,
    )
  }
}

/** Generates an operation token. Cancels the attempt if it cannot be completed. Throws CommandError. */
export async function operationToken(core: CoreAccess, shares: KeyShares): Promise<string> {
  const attempt = { path: `${GENERATION}/attempt` }
  const { fields: idle } = await requireResponse(core, attempt)
  const otp = Array.from({ length: idle.number('otp_length') }, () =>
    OTP_CHARACTERS.charAt(randomInt(OTP_CHARACTERS.length)),
  ).join('')
  const { fields } = await requireResponse(core, { ...attempt, method: 'PUT', body: { otp } })
  const [nonce, required] = [fields.text('nonce'), fields.number('required')]
  let encoded = ''
  try {
    encoded = await submitAll(core, { shares, nonce, required })
  } finally {
    if (encoded === '')
      await sendRequest(core, { ...attempt, method: 'DELETE', query: { nonce } }).catch(() => undefined)
  }
  const bytes = Buffer.from(encoded, 'base64')
  const key = Buffer.from(otp)
  return Buffer.from(bytes.map((byte, at) => byte ^ (key[at] ?? 0))).toString('latin1')
}

interface ShareSubmission {
  readonly shares: KeyShares
  readonly nonce: string
  readonly required: number
}

async function submitAll(core: CoreAccess, { shares, nonce, required }: ShareSubmission): Promise<string> {
  for (let at = 1; at <= required; at++) {
    const key = await shares.take(at, required)
    const answer = await requireResponse(core, { method: 'PUT', path: `${GENERATION}/update`, body: { key, nonce } })
    if (answer.fields.boolean('complete')) return answer.fields.text('encoded_token')
  }
  throw new CommandError('the key shares did not complete the attempt: run the command again')
}

/** Throws CommandError. */
export async function deleteOperationToken(core: CoreAccess, token: string): Promise<void> {
  const body = { dr_operation_token: token }
  await sendRequest(core, { method: 'PUT', path: `${DR}/secondary/operation-token/delete`, body })
}
