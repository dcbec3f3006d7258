/** Operation tokens of a secondary: made from key shares of its primary, and removed. */
import { randomInt } from 'node:crypto'
import { CommandError, type CommandIo } from '../../../framework/command-shape.ts'
import { askCore, type CoreAccess, requireCore } from '../../../core/core-access.ts'
import { typedSecrets } from '../../../input/typed-secret.ts'
import { DR, GENERATION } from './dr-access.ts'

const SIGNS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

/** Key shares of the primary, read when the first of them is needed and kept for a second token. */
export class KeyShares {
  readonly #given: string | undefined
  readonly #io: CommandIo
  #shares: readonly string[] = []

  /** `given`: a share, `@FILE` or `-`; undefined where they are typed. */
  constructor(given: string | undefined, io: CommandIo) {
    this.#given = given
    this.#io = io
  }

  /** The first is 1. Throws CommandError where there are fewer than `required`. */
  async take(at: number, required: number): Promise<string> {
    if (this.#shares.length < at && (at === 1 || this.#given === undefined)) {
      const prompt = `Key share ${at} of ${required} (will be hidden): `
      this.#shares = [...this.#shares, ...(await typedSecrets(this.#given, { what: 'a key share', prompt }, this.#io))]
    }
    const share = this.#shares[at - 1]
    if (share !== undefined) return share
    throw new CommandError(
      `${required} key shares are needed, ${at - 1} came: the attempt was ended, nothing has changed`,
    )
  }
}

/** Makes an operation token. It ends the attempt when it cannot be finished. Throws CommandError. */
export async function operationToken(core: CoreAccess, shares: KeyShares): Promise<string> {
  const attempt = { path: `${GENERATION}/attempt` }
  const { fields: idle } = await requireCore(core, attempt)
  const otp = Array.from({ length: idle.number('otp_length') }, () => SIGNS.charAt(randomInt(SIGNS.length))).join('')
  const { fields } = await requireCore(core, { ...attempt, method: 'PUT', body: { otp } })
  const [nonce, required] = [fields.text('nonce'), fields.number('required')]
  let encoded = ''
  try {
    encoded = await gathered(core, { shares, nonce, required })
  } finally {
    if (encoded === '') await askCore(core, { ...attempt, method: 'DELETE', query: { nonce } }).catch(() => undefined)
  }
  const bytes = Buffer.from(encoded, 'base64')
  const key = Buffer.from(otp)
  return Buffer.from(bytes.map((byte, at) => byte ^ (key[at] ?? 0))).toString('latin1')
}

interface Gathering {
  readonly shares: KeyShares
  readonly nonce: string
  readonly required: number
}

async function gathered(core: CoreAccess, { shares, nonce, required }: Gathering): Promise<string> {
  for (let at = 1; at <= required; at++) {
    const key = await shares.take(at, required)
    const answer = await requireCore(core, { method: 'PUT', path: `${GENERATION}/update`, body: { key, nonce } })
    if (answer.fields.boolean('complete')) return answer.fields.text('encoded_token')
  }
  throw new CommandError(`the key shares made no token: see ${DR}/status`)
}

/** It is good for nothing any more. Throws CommandError. */
export async function removeOperationToken(core: CoreAccess, token: string): Promise<void> {
  const body = { dr_operation_token: token }
  await askCore(core, { method: 'PUT', path: `${DR}/secondary/operation-token/delete`, body })
}
