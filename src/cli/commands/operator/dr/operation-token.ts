/** Operation tokens of a secondary: made from key shares of its primary, and removed. */
import { randomInt } from 'node:crypto'
import { CommandError, type CommandIo } from '../../../framework/command-shape.ts'
import { askCore, type CoreAccess, requireCore } from '../../../core/core-access.ts'
import { typedSecrets } from '../../../input/typed-secret.ts'
import { DR, GENERATION } from './dr-access.ts'

const SIGNS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

/** Made of shares that are typed, or come on standard input. It ends the attempt when it cannot be finished. */
export async function operationToken(core: CoreAccess, given: string | undefined, io: CommandIo): Promise<string> {
  const attempt = { path: `${GENERATION}/attempt` }
  const { fields: idle } = await requireCore(core, attempt)
  const otp = Array.from({ length: idle.number('otp_length') }, () => SIGNS.charAt(randomInt(SIGNS.length))).join('')
  const { fields } = await requireCore(core, { ...attempt, method: 'PUT', body: { otp } })
  const [nonce, required] = [fields.text('nonce'), fields.number('required')]
  let encoded = ''
  try {
    encoded = await gathered(core, { given, nonce, required }, io)
  } finally {
    if (encoded === '') await askCore(core, { ...attempt, method: 'DELETE', query: { nonce } }).catch(() => undefined)
  }
  const bytes = Buffer.from(encoded, 'base64')
  const key = Buffer.from(otp)
  return Buffer.from(bytes.map((byte, at) => byte ^ (key[at] ?? 0))).toString('latin1')
}

interface Gathering {
  readonly given: string | undefined
  readonly nonce: string
  readonly required: number
}

async function gathered(core: CoreAccess, { given, nonce, required }: Gathering, io: CommandIo): Promise<string> {
  let shares: readonly string[] = []
  for (let at = 1; at <= required; at++) {
    const prompt = `Key share ${at} of ${required} (will be hidden): `
    if (shares.length === 0) shares = await typedSecrets(given, { what: 'a key share', prompt }, io)
    const [key, ...rest] = shares
    shares = rest
    const answer = await requireCore(core, { method: 'PUT', path: `${GENERATION}/update`, body: { key, nonce } })
    if (answer.fields.boolean('complete')) return answer.fields.text('encoded_token')
    if (shares.length === 0 && given !== undefined && at < required) {
      throw new CommandError(
        `${required} key shares are needed, ${at} came: the attempt was ended, nothing has changed`,
      )
    }
  }
  throw new CommandError(`the key shares made no token: see ${DR}/status`)
}

/** It is good for nothing any more. Throws CommandError. */
export async function removeOperationToken(core: CoreAccess, token: string): Promise<void> {
  const body = { dr_operation_token: token }
  await askCore(core, { method: 'PUT', path: `${DR}/secondary/operation-token/delete`, body })
}
