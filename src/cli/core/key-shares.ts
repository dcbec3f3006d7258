/**
 * Attempts (rekey, root token) to which several people submit key shares. Each submission names the attempt by its nonce, so that no
 * share is submitted to another attempt that was started in the meantime.
 */
import { CommandError, type CommandIo } from '../framework/define-command.ts'
import { AgentRefusal, tokenHint } from '../client/http-client.ts'
import { UsageError } from '../framework/options.ts'
import { type CoreAccess, type CoreResponse, requireResponse } from './core-access.ts'
import { readSecrets } from '../input/secret-input.ts'

export interface ShareAttempt {
  /** API path of submissions. */
  readonly path: string
  /** Nonce of the current attempt. */
  readonly nonce: string
  /** For messages: `rekey`. */
  readonly name: string
}

/**
 * Submits shares until the attempt is complete or no share is left. Resolves to the last response. A share that is not typed on a
 * terminal, where the nonce is shown, requires the nonce as an option. Throws CommandError and UsageError.
 */
export async function submitShares(
  core: CoreAccess,
  attempt: ShareAttempt,
  given: { readonly key: string | undefined; readonly nonce: string | undefined },
  io: CommandIo,
): Promise<CoreResponse> {
  if (given.key !== undefined && given.nonce === undefined) {
    throw new UsageError(`missing -nonce: the current attempt is -nonce=${attempt.nonce}`)
  }
  const nonce = given.nonce ?? attempt.nonce
  const prompt = `Operation nonce: ${nonce}\nKey Share (will be hidden): `
  const [first, ...more] = await readSecrets(given.key, { what: 'key share', prompt }, io)
  const submit = (key: string) => requireResponse(core, { method: 'PUT', path: attempt.path, body: { key, nonce } })
  let answer = await submit(first)
  for (const key of more) {
    if (answer.fields.boolean('complete')) break
    answer = await submit(key)
  }
  return answer
}

/**
 * Runs requests that require a token with sudo, or a server that accepts key shares without a token. A refusal without the token is
 * thrown with the next step.
 */
export async function withShareAccess<T>(
  endpoints: 'rekey' | 'generate_root',
  { target }: CoreAccess,
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (!(error instanceof AgentRefusal) || (error.status !== 403 && error.status !== 405)) throw error
    const what = endpoints === 'rekey' ? 'rekeys' : 'generates root tokens'
    const setting = `server { disable_unauthed_${endpoints}_endpoints = false }`
    throw new AgentRefusal(
      error.status,
      `this server ${what} only for a token with sudo (HTTP ${error.status}): ${tokenHint(target, false)}; without such a token, ` +
        `set ${setting} in the configuration of the server, run "systemctl reload outpost-server" there, repeat this command, and ` +
        'remove the setting (docs/operating/seal.md, "Lost root token")',
    )
  }
}

/** Throws CommandError without an attempt. `startCommand` starts one. */
export function requireStarted({ fields }: CoreResponse, name: string, startCommand: string): void {
  if (!fields.boolean('started')) throw new CommandError(`no ${name} in progress: start one with "${startCommand}"`)
}
