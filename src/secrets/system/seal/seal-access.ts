/**
 * Who may change key shares and make root tokens from them. A token that has `sudo` always may. Callers without one may
 * only where the configuration turns that on (`server { disable_unauthed_…_endpoints = false }`): whoever reaches the port
 * could then begin and cancel attempts.
 */
import { type EngineCall, Rejection } from '../../../engines/framework/engine.ts'
import type { PathDeclaration } from '../../../engines/framework/engine.ts'
import type { EngineFields } from '../../../engines/framework/fields.ts'

/** The settings of the configuration that turn it on. */
type Setting = 'disable_unauthed_rekey_endpoints' | 'disable_unauthed_generate_root_endpoints'

/** What a path declares that takes callers without a token while `isAllowed`. */
export function withoutTokenWhile(
  isAllowed: () => boolean,
  setting: Setting,
): Pick<PathDeclaration<EngineFields>, 'withoutToken'> {
  const advice = `this needs a token that has sudo; with key shares and no such token set server { ${setting} = false } in the server's configuration and reload it`
  return { withoutToken: { isAllowed, refusal: ['unsupported operation', advice] } }
}

/** Throws (400) unless the caller has sudo or names the attempt that is to end by one of its nonces. */
export function checkCancel(given: string, nonces: readonly string[], { sudo }: EngineCall): void {
  if (sudo || (given !== '' && nonces.includes(given))) return
  const why = given === '' ? 'no nonce supplied' : 'incorrect nonce supplied'
  throw new Rejection(400, `${why}: give the nonce of the attempt that is to be cancelled, or a token that has sudo`)
}
