/**
 * Operator events for the log: the seal, replication, snapshots. Some of them need no token, so each event has the address
 * that the request came from, and the accessor of its token. Names of attempts are not secret; shares and tokens never
 * come here.
 */
import type { EngineCall } from '../../../engines/framework/engine.ts'
import type { WithOptions } from '../core-parts.ts'

export type Tell = (what: string, call: EngineCall, more?: Readonly<Record<string, string | number>>) => void

export function sealLog(core: WithOptions<'logger'>): Tell {
  return (what, call, more = {}) => core.options.logger.info(what, { ...more, ...originOf(call) })
}

/** Who sent a request and from where. An empty accessor means that no token was sent; batch tokens have none. */
export function originOf({ caller, remote }: Pick<EngineCall, 'caller' | 'remote'>): {
  readonly accessor: string
  readonly remote: string
} {
  const isBatch = caller.tokenType === 'batch' && caller.tokenHash !== ''
  return { accessor: isBatch ? 'batch token' : caller.accessor, remote: remote ?? '' }
}
