/**
 * Access to the endpoints for key shares and root tokens, the rate limit of PGP keys, and the log of operator events. A token with
 * `sudo` always has access. Callers without a token have access only if the configuration allows it
 * (`server { disable_unauthed_…_endpoints = false }`), because then any client that can connect may start and cancel attempts.
 */
import { type EngineCall, Rejection } from '../../../engines/framework/engine.ts'
import type { PathDeclaration } from '../../../engines/framework/engine.ts'
import type { EngineFields } from '../../../engines/framework/fields.ts'
import { AddressRate } from '../../quotas/address-rate.ts'
import type { EventLog, PgpKeyLimiter } from '../../dr-endpoints/dr-side.ts'
import type { WithOptions } from '../core-parts.ts'

/** The settings of the configuration that allow access without a token. */
type UnauthedSetting = 'disable_unauthed_rekey_endpoints' | 'disable_unauthed_generate_root_endpoints'

/** The declaration of a path that serves callers without a token while `isAllowed`. */
export function withoutTokenWhile(
  isAllowed: () => boolean,
  setting: UnauthedSetting,
): Pick<PathDeclaration<EngineFields>, 'withoutToken'> {
  const hint = `this requires a token with sudo: to use key shares without a token, set server { ${setting} = false } in the server's configuration and reload it`
  return { withoutToken: { isAllowed, refusal: ['unsupported operation', hint] } }
}

/** Throws a Rejection (400) unless the caller has sudo or gives one of the attempt's nonces. */
export function checkCancel(given: string, nonces: readonly string[], { sudo }: EngineCall): void {
  if (sudo || (given !== '' && nonces.includes(given))) return
  const reason = given === '' ? 'no nonce supplied' : 'incorrect nonce supplied'
  throw new Rejection(400, `${reason}: send the nonce of the attempt to cancel, or use a token with sudo`)
}

/** More than an operator sends by mistake */
const PGP_REQUESTS_MAX = 10

/** Limits requests with PGP keys, because parsing them blocks the thread. */
export class PgpRateLimit implements PgpKeyLimiter {
  readonly #rate: AddressRate

  constructor(now?: () => number) {
    this.#rate = new AddressRate(PGP_REQUESTS_MAX, 'requests with PGP keys', now)
  }

  /** Throws a Rejection (429) for too many requests of an address. A caller with sudo is not limited. */
  check(keys: readonly string[], call: EngineCall): void {
    if (keys.some((key) => key !== '')) this.#rate.check(call)
  }
}

/** Logs operator events with their caller. */
export function sealLog(core: WithOptions<'logger'>): EventLog {
  return (message, call, fields = {}) => core.options.logger.info(message, { ...fields, ...originOf(call) })
}

/** The caller's accessor and address. An empty accessor means that no token was sent; batch tokens have none. */
export function originOf({ caller, remote }: Pick<EngineCall, 'caller' | 'remote'>): {
  readonly accessor: string
  readonly remote: string
} {
  const isBatch = caller.tokenType === 'batch' && caller.tokenHash !== ''
  return { accessor: isBatch ? 'batch token' : caller.accessor, remote: remote ?? '' }
}
