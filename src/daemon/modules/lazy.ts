/** Modules that are loaded only if the configuration needs them. */
import type { Cluster, ClusterOptions } from './cluster.ts'
import type { OwnRoster, OwnRosterOptions } from './own-roster.ts'
import type { SecretsOptions, SecretsModule } from './secrets.ts'
import type { Host } from '../../host/host.ts'

/** Undefined for an agent without NATS. */
export async function openCluster(options: ClusterOptions): Promise<Cluster | undefined> {
  if (!options.config.nats && !options.config.server.enabled) return undefined
  const { Cluster: Part } = await import('./cluster.ts')
  return Part.open(options)
}

/** Undefined if servers know this host, and without the client role. */
export async function openOwnRoster(
  options: Omit<OwnRosterOptions, 'host'> & { readonly host: Host | undefined; readonly cluster: Cluster | undefined },
  undo: AsyncDisposableStack,
): Promise<OwnRoster | undefined> {
  const { cluster, host } = options
  if (cluster || !host) return undefined
  const { OwnRoster: Part } = await import('./own-roster.ts')
  const roster = new Part({ ...options, host })
  undo.defer(() => roster.stop())
  return roster
}

/** Undefined without a secrets core in this process. */
export async function openSecrets(options: SecretsOptions): Promise<SecretsModule | undefined> {
  if (!options.config.server.enabled || !options.config.server.secrets) return undefined
  const { SecretsModule: Part } = await import('./secrets.ts')
  return Part.open(options)
}
