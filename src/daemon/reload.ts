/**
 * Configuration reload: everything is checked and prepared first, and changes start only when nothing can fail.
 */
import type { LocalAuthorizer } from '../cluster/trust/authorizer.ts'
import type { Config } from '../config/load.ts'
import { diffReload, type ReloadDiff } from '../config/reload-diff.ts'
import { readTlsFiles } from '../config/tls-files.ts'
import type { ProcessLog } from './setup/log.ts'
import { authorizerOf, hostNamesOf, limitsOf } from './setup/settings.ts'
import type { Host } from '../host/host.ts'
import type { Listener } from '../http/listener.ts'

/** Running parts that accept new settings. */
export interface Reloadable {
  readonly config: Config
  readonly rootToken: string | undefined
  readonly log: ProcessLog
  readonly listener: Listener | undefined
  readonly host: Host | undefined
}

/** Applies what can change at run time. Throws without a change if a file that the configuration names is invalid. */
export function applyConfig(
  running: Reloadable,
  loaded: Config,
): ReloadDiff & { readonly authorizer: LocalAuthorizer } {
  const authorizer = authorizerOf(loaded, running.rootToken)
  const tls = readTlsFiles(loaded.tls)
  const log = running.log.prepare(loaded)
  const certificate = running.listener?.certificate
  try {
    if (tls) running.listener?.setTls(tls)
  } catch (error) {
    log.drop()
    throw error
  }
  const taken = diffReload(running.config, loaded)
  running.listener?.setLimits(limitsOf(taken.config))
  running.listener?.setHosts(hostNamesOf(taken.config))
  running.host?.followers.setLimit(taken.config.limits.httpMaxFollowers)
  log.commit()
  // The file may have changed, and the setting not.
  const isRenewed = running.listener?.certificate !== certificate && !taken.applied.includes('tls.cert_file')
  return { ...taken, applied: isRenewed ? [...taken.applied, 'tls.cert_file'] : taken.applied, authorizer }
}
