/**
 * The commit stream: a JetStream stream that all members apply, and to which only the active server publishes.
 *
 * Promises. A publish with an expected last sequence is stored directly after that message or not at all. `publish` resolves once the
 * message is durable on a majority of the NATS servers. When an acknowledgement is lost, it publishes the same message again with the
 * same expected sequence, so at most one of them is stored, and recognizes its own message by its ID.
 *
 * Assumes that the NATS servers sync each message (`sync_interval: always`), and that only servers may publish to the subject
 * (`cluster/nats/permissions.ts`).
 *
 * What can go wrong. No majority of NATS servers, or an election of the stream's leader: `publish` retries until its signal aborts.
 * Another server published: `PublishRefused`. The stream was deleted: its identity changes, and no member applies the new stream without an
 * operator.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import {
  DiscardPolicy,
  jetstream,
  JetStreamApiError,
  type JetStreamClient,
  jetstreamManager,
  type JetStreamManager,
  RetentionPolicy,
  StorageType,
  type StreamInfo,
} from '@nats-io/jetstream'
import type { NatsConnection } from '@nats-io/transport-node'
import { HaSubjects } from '../../cluster/nats/ha-subjects.ts'
import { Fault, messageOf } from '../../platform/errors.ts'
import { ArrivedMessages, type StoredMessage } from './arrived-messages.ts'
import { requireSync } from './nats-check.ts'
import { type CommitMessage, encodeMessage, partId, type StreamPart } from './commit-message.ts'

/** Timeout of one request to JetStream. */
const REQUEST_MS = 2000
/** The same for a publish, which may be repeated: a request that is in flight when the stream's leader changes gets no response. */
const PUBLISH_MS = 500
const RETRY_MS = 20
const RETRY_MAX_MS = 50
/** Codes of JetStream: no such message, no such stream, the last sequence is another one. */
const NO_MESSAGE = 10_037
const NO_STREAM = 10_059
const WRONG_SEQUENCE = new Set([10_071, 10_164])
/** Headers and the envelope of NATS. */
const OVERHEAD_BYTES = 4096
/** Messages and bytes of one read. */
const READ_MESSAGES = 256
const READ_BYTES = 8 << 20
/** Interval at which a follower to which nothing arrives polls the stream. */
const POLL_MS = 1000
/** Time for which a follower collects messages that become one transaction. */
const BATCH_DELAY_MS = 15
/** Header of a message that NATS published again. */
const SEQUENCE_HEADER = 'Nats-Sequence'

/** Another message is the last one of the stream: another server is active. */
export class PublishRefused extends Error {
  override readonly name = 'PublishRefused'
}

/** It is unknown whether the message was stored. */
class PublishUnknown extends Error {
  override readonly name = 'PublishUnknown'
}

export interface StreamBounds {
  /** Sequence of the oldest message; one more than `last` for an empty stream. */
  readonly first: number
  /** Sequence of the newest message; 0 for a stream without any. */
  readonly last: number
  /** Size of all messages. */
  readonly bytes: number
}

export class CommitStream {
  readonly #connection: NatsConnection
  readonly #client: JetStreamClient
  readonly #manager: JetStreamManager
  readonly name: string
  readonly #subject: string
  /** Subject of stored messages. */
  readonly #stored: string
  /** Of the follower. */
  #arrived: ArrivedMessages | undefined
  /** Identifies the stream: it differs after the stream was deleted and created again. */
  readonly identity: string

  /** Opens the stream, and creates it if there is none. Rejects with a Fault for the operator, and with errors of NATS. */
  static async open(connection: NatsConnection, region: string, replicas: number): Promise<CommitStream> {
    const manager = await jetstreamManager(connection, { timeout: REQUEST_MS })
    const { commits: subject, commitStream: name, natsState, stored } = new HaSubjects(region)
    const info = await openStream(manager, { name, subject, stored, replicas })
    requireUsable(info, subject, replicas)
    const { cluster } = info
    const names = [cluster?.leader ?? '', ...(cluster?.replicas ?? []).map((replica) => replica.name)]
    await requireSync(
      connection,
      natsState,
      names.filter((each) => each !== ''),
    )
    return new CommitStream(connection, manager, info)
  }

  private constructor(connection: NatsConnection, manager: JetStreamManager, { config, created }: StreamInfo) {
    this.#connection = connection
    this.#client = jetstream(connection, { timeout: REQUEST_MS })
    this.#manager = manager
    this.name = config.name
    this.#subject = config.subjects?.[0] ?? ''
    this.#stored = config.republish?.dest ?? ''
    this.identity = `${config.name} ${created}`
  }

  get messageBytesMax(): number {
    return messageBytesMax(this.#connection)
  }

  /** As the leader of the stream knows them. Rejects with errors of NATS. */
  async bounds(): Promise<StreamBounds> {
    const { created, state } = await this.#manager.streams.info(this.name)
    if (`${this.name} ${created}` !== this.identity)
      throw new Fault(`the stream ${this.name} was deleted and created again`)
    return { first: state.first_seq, last: state.last_seq, bytes: state.bytes }
  }

  /**
   * Publishes a part after the message `last`. Resolves to its sequence. Rejects with PublishRefused, and with PublishUnknown when
   * `signal` aborts first.
   */
  async publish(part: StreamPart, last: number, signal: AbortSignal): Promise<number> {
    for (let waitMs = RETRY_MS; ; waitMs = Math.min(2 * waitMs, RETRY_MAX_MS)) {
      if (signal.aborted)
        throw new PublishUnknown('the server stopped being active before NATS acknowledged the change')
      try {
        const stored = await this.#publishOnce(part, last)
        if (stored !== undefined) return stored
      } catch (error) {
        if (error instanceof PublishRefused) throw error
      }
      await sleep(waitMs, undefined, { signal }).catch(() => undefined)
    }
  }

  /** Undefined when the outcome is not known yet. */
  async #publishOnce({ id, payload }: StreamPart, last: number): Promise<number | undefined> {
    try {
      const { seq } = await this.#client.publish(this.#subject, payload, {
        expect: { lastSequence: last },
        retries: 0,
        timeout: PUBLISH_MS,
      })
      return seq
    } catch (error) {
      if (!isWrongSequence(error)) return undefined
      const next = await this.read(last + 1)
      // The message that caused the refusal is not stored yet.
      if (next === undefined) return undefined
      if (partId(next) === id) return last + 1
      throw new PublishRefused(messageOf(error))
    }
  }

  /** The payload of a message, read from the leader of the stream. Undefined for a message that the stream does not have. */
  async read(sequence: number): Promise<Uint8Array | undefined> {
    try {
      const message = await this.#manager.streams.getMessage(this.name, { seq: sequence })
      return message?.data
    } catch (error) {
      if (codeOf(error) === NO_MESSAGE) return undefined
      throw error
    }
  }

  /**
   * Up to `READ_MESSAGES` messages from `sequence` on, without a gap; none for a message that the stream does not have yet. Any replica
   * responds: the message of a sequence is the same everywhere, but a replica may lack the newest ones, which the leader then has.
   */
  async *readFrom(sequence: number): AsyncGenerator<StoredMessage> {
    let next = sequence
    try {
      const options = { seq: sequence, batch: READ_MESSAGES, max_bytes: READ_BYTES }
      for await (const { data, pending, seq } of await this.#manager.direct.getBatch(this.name, options)) {
        if (seq !== next) break
        next++
        yield { sequence: seq, payload: data, pending }
      }
    } catch {
      // The replica has no such message, or does not respond.
    }
    if (next > sequence) return
    const payload = await this.read(sequence)
    if (payload) yield { sequence, payload, pending: 0 }
  }

  /**
   * Messages from `sequence` on, in order, as they are stored. Ends when `signal` aborts. Rejects with errors of NATS.
   *
   * NATS publishes each stored message again on a plain subject (`republish`). It is followed without a consumer, which would be lost with
   * the NATS server that has it, and which takes an election to create. Messages that did not arrive are read from the stream.
   */
  async *follow(sequence: number, signal: AbortSignal): AsyncGenerator<StoredMessage> {
    const arrived = new ArrivedMessages()
    this.#arrived = arrived
    const subscription = this.#connection.subscribe(this.#stored, {
      callback(error, { data, headers }) {
        if (!error) arrived.add({ sequence: Number(headers?.get(SEQUENCE_HEADER)), payload: data, pending: 0 })
      },
    })
    const stop = () => arrived.wake()
    signal.addEventListener('abort', stop, { once: true })
    try {
      let next = sequence
      let isBehind = true
      while (!signal.aborted) {
        if (isBehind) {
          const before = next
          for await (const message of this.readFrom(next)) {
            next = message.sequence + 1
            yield message
          }
          isBehind = next > before
          continue
        }
        for (const message of arrived.take(next)) {
          next = message.sequence + 1
          yield message
        }
        isBehind = arrived.hasGap(next)
        if (isBehind || signal.aborted) continue
        const isIdle = await arrived.wait(POLL_MS)
        // Messages that follow soon become one transaction.
        if (!isIdle) await arrived.delayBatch(BATCH_DELAY_MS)
        else isBehind = await this.#hasMore(next)
      }
    } finally {
      signal.removeEventListener('abort', stop)
      subscription.unsubscribe()
    }
  }

  /** Rejects when the message was trimmed. */
  async #hasMore(next: number): Promise<boolean> {
    const { first, last } = await this.bounds()
    if (first > next) throw new Fault(`the stream ${this.name} no longer has message ${next}, it begins at ${first}`)
    return last >= next
  }

  /** A reader waits: the follower applies messages as they arrive, for a moment. */
  skipBatchDelay(): void {
    this.#arrived?.skipBatchDelay()
  }

  /** Removes the oldest messages beyond a size, which no member needs. Rejects with errors of NATS. */
  async trimBytes(bytesMax: number): Promise<void> {
    await this.#manager.streams.update(this.name, { max_bytes: bytesMax })
    await this.#manager.streams.update(this.name, { max_bytes: -1 })
  }

  /** Removes the messages before `sequence`, which no member needs. Rejects with errors of NATS. */
  async trim(sequence: number): Promise<void> {
    const { first, last } = await this.bounds()
    if (sequence <= first) return
    // Deleting and purging are denied on the stream, so it is trimmed by a limit.
    await this.#manager.streams.update(this.name, { max_msgs: last - sequence + 1 + TRIM_RESERVE })
    await this.#manager.streams.update(this.name, { max_msgs: -1 })
  }
}

/** Messages that are published while the limit is in effect. */
const TRIM_RESERVE = 10_000

/** Payload of one message. */
export function messageBytesMax({ info }: NatsConnection): number {
  return (info?.max_payload ?? 1 << 20) - OVERHEAD_BYTES
}

/** Publishes all parts of a message after the message `last`. Resolves to the sequence of its last part. Rejects as `publish` does. */
export async function publishMessage(
  stream: Pick<CommitStream, 'messageBytesMax' | 'publish'>,
  message: CommitMessage,
  last: number,
  signal: AbortSignal,
): Promise<number> {
  let sequence = last
  for (const part of encodeMessage(message, stream.messageBytesMax)) {
    sequence = await stream.publish(part, sequence, signal)
  }
  return sequence
}

interface StreamSettings {
  readonly name: string
  readonly subject: string
  readonly stored: string
  readonly replicas: number
}

async function openStream(
  manager: JetStreamManager,
  { name, subject, stored, replicas }: StreamSettings,
): Promise<StreamInfo> {
  try {
    return await manager.streams.info(name)
  } catch (error) {
    if (codeOf(error) !== NO_STREAM) throw error
  }
  // Two servers may create it at the same time: the same settings are no error.
  return await manager.streams.add({
    name,
    subjects: [subject],
    storage: StorageType.File,
    retention: RetentionPolicy.Limits,
    discard: DiscardPolicy.Old,
    num_replicas: replicas,
    deny_delete: true,
    deny_purge: true,
    allow_direct: true,
    republish: { src: subject, dest: stored },
  })
}

/** Throws a Fault that says what to change. */
function requireUsable({ config }: StreamInfo, subject: string, replicas: number): void {
  const { name } = config
  const faults = [
    ...(config.num_replicas < replicas
      ? [
          `it has ${config.num_replicas} replicas, and server.ha.replicas is ${replicas}: nats stream edit ${name} --replicas ${replicas}`,
        ]
      : []),
    ...(config.storage === StorageType.File
      ? []
      : ['it is not stored on disk: delete the stream, and the servers create it again']),
    ...(config.subjects?.length === 1 && config.subjects[0] === subject ? [] : [`its subject is not ${subject}`]),
    ...(config.deny_delete && config.deny_purge
      ? []
      : ['it allows the deletion of messages: delete the stream, and the servers create it again']),
  ]
  if (faults.length > 0)
    throw new Fault(`the JetStream stream ${name} cannot be used for high availability: ${faults.join('; ')}`)
}

function codeOf(error: unknown): number | undefined {
  return error instanceof JetStreamApiError ? error.code : undefined
}

/** An error with the code of a status message, of which the package exports the base class only. */
function isWrongSequence(error: unknown): boolean {
  return error instanceof JetStreamApiError && WRONG_SEQUENCE.has(error.code)
}
