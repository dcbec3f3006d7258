/** The bus between the processes of a cluster: NATS, or memory in a process without `nats {}`. */
import type { Config } from '../../config/load.ts'
import { type MessageBus, MemoryBroker } from '../../cluster/nats/message-bus.ts'
import type { Logger } from '../../platform/log.ts'

/** The NATS client is loaded on demand. `onServerCertificate`: expiry of the server's certificate, in milliseconds since the epoch. */
export async function openBus(
  config: Config,
  logger: Logger,
  onServerCertificate: (expiryMs: number) => void,
): Promise<MessageBus> {
  if (!config.nats) return new MemoryBroker().connect()
  const { openNatsBus } = await import('../../cluster/nats/nats-bus.ts')
  return openNatsBus({
    ...config.nats,
    name: `outpost ${config.name}`,
    logger: logger.named('nats'),
    onServerCertificate,
  })
}
