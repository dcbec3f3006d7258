/** Parts that a process loads only if its configuration asks for them. */
import type { Cluster, ClusterOptions } from './cluster.ts'
import type { SecretsOptions, SecretsRoom } from './secrets.ts'

/** Undefined for an agent without NATS. */
export async function openCluster(options: ClusterOptions): Promise<Cluster | undefined> {
  if (!options.config.nats && !options.config.server.enabled) return undefined
  const { Cluster: Part } = await import('./cluster.ts')
  return Part.open(options)
}

/** Undefined where another server has the secrets core. */
export async function openSecrets(options: SecretsOptions): Promise<SecretsRoom | undefined> {
  if (!options.config.server.enabled || !options.config.server.secrets) return undefined
  const { SecretsRoom: Room } = await import('./secrets.ts')
  return Room.open(options)
}
