/**
 * Reading the configuration again while the agent runs: everything is checked and got ready first, and only when nothing
 * can fail any more does anything change.
 */
import type { LocalAuthorizer } from '../cluster/trust/authorizer.ts'
import type { Config } from '../config/load.ts'
import { takeOver, type TakenOver } from '../config/reload-diff.ts'
import { readTlsFiles } from '../config/tls-files.ts'
import type { ProcessLog } from './log.ts'
import { authorizerOf, hostNamesOf, limitsOf } from './settings.ts'
import type { Host } from '../host/host.ts'
import type { Listener } from '../http/listener.ts'

/** What runs and takes new settings. */
export interface Reloadable {
  readonly config: Config
  readonly rootToken: string | undefined
  readonly log: ProcessLog
  readonly listener: Listener | undefined
  readonly host: Host | undefined
}

/** Takes over from `loaded` what can change while running. Throws, and changes nothing, when a file it names is no good. */
export function applyConfig(running: Reloadable, loaded: Config): TakenOver & { readonly authorizer: LocalAuthorizer } {
  const authorizer = authorizerOf(loaded, running.rootToken)
  const tls = readTlsFiles(loaded.tls)
  const log = running.log.prepare(loaded)
  try {
    if (tls) running.listener?.setTls(tls)
  } catch (error) {
    log.drop()
    throw error
  }
  const taken = takeOver(running.config, loaded)
  running.listener?.setLimits(limitsOf(taken.config))
  running.listener?.setHosts(hostNamesOf(taken.config))
  running.host?.followers.setLimit(taken.config.limits.httpMaxFollowers)
  log.commit()
  return { ...taken, authorizer }
}
