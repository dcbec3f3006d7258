/** Parts that a process loads only if its configuration asks for them. */
import type { Cluster, ClusterOptions } from './cluster.ts'
import type { OwnRoster, OwnRosterOptions } from './own-roster.ts'
import type { SecretsOptions, SecretsRoom } from './secrets.ts'
import type { Host } from '../host/host.ts'

/** Undefined for an agent without NATS. */
export async function openCluster(options: ClusterOptions): Promise<Cluster | undefined> {
  if (!options.config.nats && !options.config.server.enabled) return undefined
  const { Cluster: Part } = await import('./cluster.ts')
  return Part.open(options)
}

/** Undefined where servers can be asked about this host, and where the process is no host. */
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

/** Undefined where another server has the secrets core. */
export async function openSecrets(options: SecretsOptions): Promise<SecretsRoom | undefined> {
  if (!options.config.server.enabled || !options.config.server.secrets) return undefined
  const { SecretsRoom: Room } = await import('./secrets.ts')
  return Room.open(options)
}
