/** Modules that are loaded only if the configuration needs them. */
import type { Cluster, ClusterOptions } from './cluster.ts'
import type { OwnRoster, OwnRosterOptions } from './own-roster.ts'
import type { SecretsOptions, SecretsModule } from './secrets.ts'
import type { Host } from '../../host/host.ts'
import { stoppingRefusal } from '../../http/exchange.ts'
import type { AnyOperation } from '../../platform/operation.ts'

/** Undefined for an agent without NATS. */
export async function openCluster(options: ClusterOptions): Promise<Cluster | undefined> {
  if (!options.config.nats && !options.config.server.enabled) return undefined
  const { Cluster: Part } = await import('./cluster.ts')
  return Part.open(options)
}

export interface LateRosterOptions extends Pick<OwnRosterOptions, 'config' | 'version'> {
  readonly host: Host | undefined
  readonly cluster: Cluster | undefined
  readonly url: () => string
}

/**
 * Loads the operations of the agent's own roster when the process listens: before, they would delay the start by a tenth. Undefined if
 * servers know this host, and without the client role.
 */
export function lateRosterOperations(
  { cluster, config, host, url, version }: LateRosterOptions,
  undo: AsyncDisposableStack,
): (() => Promise<readonly AnyOperation[]>) | undefined {
  if (cluster || !host) return undefined
  let roster: OwnRoster | undefined
  // Here, because the listener must be closed before.
  undo.defer(() => roster?.stop())
  return async () => {
    const { OwnRoster: Part } = await import('./own-roster.ts')
    if (undo.disposed) throw stoppingRefusal()
    roster ??= new Part({ config, host, url: url(), version })
    await roster.start()
    return roster.operations()
  }
}

/** Undefined without a secrets core in this process. */
export async function openSecrets(options: SecretsOptions): Promise<SecretsModule | undefined> {
  if (!options.config.server.enabled || !options.config.server.secrets) return undefined
  const { SecretsModule: Part } = await import('./secrets.ts')
  return Part.open(options)
}
