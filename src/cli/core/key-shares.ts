/**
 * Attempts that people with key shares carry out together: each names the attempt by its nonce, so that nobody gives a
 * share to an attempt that somebody else has begun in the meantime.
 */
import { CommandError, type CommandIo } from '../framework/command-shape.ts'
import { RefusedByAgent, tokenHint } from '../client/http-client.ts'
import { UsageError } from '../framework/options.ts'
import { type CoreAccess, type CoreAnswer, requireCore } from './core-access.ts'
import { typedSecrets } from '../input/typed-secret.ts'

export interface Attempt {
  /** Path of the requests with shares. */
  readonly path: string
  /** The nonce of the attempt that goes on. */
  readonly nonce: string
  /** What it is for: `rekeying`. */
  readonly name: string
}

/**
 * Gives shares until the attempt is complete or there are none left, and resolves to the last answer. A share that is
 * not typed on a terminal, where the nonce is shown, needs the nonce as an option. Throws CommandError and UsageError.
 */
export async function giveShares(
  core: CoreAccess,
  attempt: Attempt,
  given: { readonly key: string | undefined; readonly nonce: string | undefined },
  io: CommandIo,
): Promise<CoreAnswer> {
  if (given.key !== undefined && given.nonce === undefined) {
    throw new UsageError(`give the nonce of the attempt too: -nonce=${attempt.nonce}`)
  }
  const nonce = given.nonce ?? attempt.nonce
  const prompt = `Operation nonce: ${nonce}\nKey Share (will be hidden): `
  const [first, ...more] = await typedSecrets(given.key, { what: 'a key share', prompt }, io)
  const give = (key: string) => requireCore(core, { method: 'PUT', path: attempt.path, body: { key, nonce } })
  let answer = await give(first)
  for (const key of more) {
    if (answer.fields.boolean('complete')) break
    answer = await give(key)
  }
  return answer
}

/**
 * Does what needs a token that has sudo, or a server that takes key shares without one. A refusal for want of the token is
 * thrown with what the operator can do.
 */
export async function withShareAccess<T>(
  endpoints: 'rekey' | 'generate_root',
  { target }: CoreAccess,
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (!(error instanceof RefusedByAgent) || (error.status !== 403 && error.status !== 405)) throw error
    const what = endpoints === 'rekey' ? 'rekeys' : 'makes root tokens'
    const setting = `server { disable_unauthed_${endpoints}_endpoints = false }`
    throw new RefusedByAgent(
      error.status,
      `this server ${what} only for a token that has sudo (HTTP ${error.status}): ${tokenHint(target, false)}; if it is lost, ` +
        `set ${setting} in the server's configuration, run "systemctl reload outpost-server" there, repeat this command, and remove ` +
        'the setting again (docs/operating.md, "Lost the root token?")',
    )
  }
}

/** Throws CommandError unless there is an attempt. `begin` is the command that begins one. */
export function requireStarted({ fields }: CoreAnswer, name: string, begin: string): void {
  if (!fields.boolean('started')) throw new CommandError(`no ${name} is under way, begin one with "${begin}"`)
}
