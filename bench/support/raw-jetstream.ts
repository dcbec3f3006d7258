/** The limit of high availability: messages of a given size, one after another, to a stream with the same number of replicas. */
import { setTimeout as pause } from 'node:timers/promises'
import { jetstream, jetstreamManager, StorageType } from '@nats-io/jetstream'
import { connect, type NatsConnection } from '@nats-io/transport-node'
import { HaSubjects } from '../../src/cluster/nats/ha-subjects.ts'
import { WrongContent } from './figure.ts'

const COMMITS = new HaSubjects('global').commitStream
const RAW = 'BENCH'
const SUBJECT = 'bench.raw'

export interface StreamTotals {
  readonly messages: number
  readonly bytes: number
}

export class RawJetStream {
  readonly #connection: NatsConnection

  private constructor(connection: NatsConnection) {
    this.#connection = connection
  }

  static async open(url: string, replicas: number): Promise<RawJetStream> {
    const connection = await connect({ servers: [url] })
    const manager = await jetstreamManager(connection)
    // A limit, so that the runs do not fill the store.
    const limits = { max_bytes: 100 << 20, storage: StorageType.File, num_replicas: replicas }
    await manager.streams.add({ name: RAW, subjects: [SUBJECT], ...limits })
    await pause(500)
    return new RawJetStream(connection)
  }

  /** All messages that were ever published to the commit stream, and the bytes of those that it still has. */
  async commits(): Promise<StreamTotals> {
    const { state } = await (await jetstreamManager(this.#connection)).streams.info(COMMITS)
    return { messages: state.last_seq, bytes: state.bytes }
  }

  /** Acknowledged messages of `bytes` per second, one in flight. */
  async perSecond(bytes: number, durationMs: number): Promise<number> {
    const client = jetstream(this.#connection)
    const payload = Buffer.alloc(Math.max(1, Math.round(bytes)), 120)
    const beganMs = performance.now()
    let count = 0
    for (; performance.now() - beganMs < durationMs; count++) {
      const { duplicate, seq } = await client.publish(SUBJECT, payload)
      if (duplicate || seq === 0) throw new WrongContent('JetStream did not store a message')
    }
    return (count * 1000) / (performance.now() - beganMs)
  }

  async close(): Promise<void> {
    await this.#connection.close()
  }
}
