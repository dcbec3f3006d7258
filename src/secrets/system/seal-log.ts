/**
 * What happens to the seal, for the log. Much of it may be done by anybody who reaches the port, so who looks after the
 * server should see that it was, and from where. Names of attempts are no secret; shares and tokens never come here.
 */
import type { EngineCall } from '../../engines/engine.ts'
import type { MadeWith } from './core-parts.ts'

export type Tell = (what: string, call: EngineCall, more?: Readonly<Record<string, string | number>>) => void

export function sealLog(core: MadeWith<'logger'>): Tell {
  return (what, { caller, remote }, more = {}) => {
    const who = caller.accessor === '' ? {} : { accessor: caller.accessor }
    core.options.logger.info(what, { ...more, remote: remote ?? '', ...who })
  }
}
