/**
 * A thread with the NKEY of a worker host and a token of its callers. It sends everything that NATS permits: calls with
 * bulk responses and unlimited credit, credit for them, messages of unknown calls, responses to calls that a server
 * never made, and states of new allocations. Its message rate is limited, and each batch waits until NATS has it.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { parentPort, workerData } from 'node:worker_threads'
import { connect, nkeyAuthenticator, type NatsConnection } from '@nats-io/transport-node'
import * as v from 'valibot'
import { openNatsBus } from '../../src/cluster/nats/nats-bus.ts'
import type { SealedCall } from '../../src/cluster/rpc/sealed-call-sender.ts'
import { Subjects } from '../../src/cluster/nats/subjects.ts'
import { encode, encodeCall, WIRE_VERSION } from '../../src/cluster/rpc/call-wire.ts'
import { eventually } from './eventually.ts'
import { allocationOf, idOf } from './fleet-server.ts'
import { HostileNode } from './hostile-node.ts'
import { recordingLogger } from './recording-logger.ts'
import { sealingFor } from './sealed-world.ts'

const settings = v.parse(
  v.object({
    natsUrl: v.string(),
    nkeyFile: v.string(),
    seed: v.string(),
    caFile: v.string(),
    authority: v.string(),
    nodeId: v.string(),
    token: v.string(),
    seconds: v.number(),
    messagesPerSecond: v.number(),
    callsPerSecond: v.number(),
  }),
  workerData,
)

const ALLOCATIONS = 9000
const STATE_EVERY_MS = 1500
const BATCH_MS = 20
/** Number per hundred messages that are not calls. */
const SHARES = { garbage: 55, replies: 17, credits: 28 }
/** Calls that receive credit repeatedly. */
const CREDITED_MAX = 256
const ANY_AMOUNT = Number.MAX_SAFE_INTEGER

interface Made {
  readonly subject: string
  readonly sealed: SealedCall
}

const subjects = new Subjects('global')
const sent = { calls: 0, garbage: 0, replies: 0, credits: 0, states: 0, answerBytes: 0 }
const { nodeId } = settings
const self = { nodeId }
const ends: (() => unknown)[] = []
const lifetime = { after: (end: () => unknown) => void ends.push(end) }

class Flood {
  readonly #nats: NatsConnection
  readonly #serverId: string
  readonly #call: (name: string) => Promise<Made>
  readonly #made: Made[] = []
  readonly #garbage = Buffer.alloc(512, 0x10)

  constructor(nats: NatsConnection, serverId: string, call: (name: string) => Promise<Made>) {
    this.#nats = nats
    this.#serverId = serverId
    this.#call = call
  }

  /** Resolves with the number of messages and calls of one batch when they are on their way to NATS. */
  async batch(messages: number, calls: number): Promise<void> {
    for (let at = 0; at < calls; at++) {
      this.#made.push(await this.#call(`flood${++sent.calls}`))
      if (this.#made.length > CREDITED_MAX) this.#made.shift()
    }
    for (let at = 0; at < messages; at++) this.#message(at % 100)
    await this.#nats.flush()
  }

  #message(at: number): void {
    if (at < SHARES.garbage) {
      const reply = subjects.reply(self, 'any', `garbage${++sent.garbage}`)
      this.#nats.publish(subjects.serverCall(this.#serverId, nodeId), this.#garbage, { reply })
    } else if (at < SHARES.garbage + SHARES.replies) {
      const reply = subjects.reply({ serverId: this.#serverId }, nodeId, `forged${++sent.replies}`)
      this.#nats.publish(reply, encode({ kind: 'value', json: '{}' }))
    } else this.#credit()
  }

  #credit(): void {
    const made = this.#made[sent.credits++ % Math.max(1, this.#made.length)]
    if (!made) return
    this.#nats.publish(made.subject, made.sealed.sealControl(encode({ kind: 'credit', taken: 0, allowed: ANY_AMOUNT })))
  }
}

function callNamed(name: string): Uint8Array {
  const input = { params: {}, query: [['namespace', '*']] as const, headers: {}, body: undefined }
  const about = { version: WIRE_VERSION, operation: 'server.allocations', requestId: name, hops: 1, call: name }
  return encodeCall(encode({ ...about, input, token: settings.token, window: ANY_AMOUNT }))
}

async function flood(): Promise<void> {
  const { natsUrl, nkeyFile, caFile, authority, seed, seconds, messagesPerSecond, callsPerSecond } = settings
  const logger = recordingLogger([])
  const bus = await openNatsBus({ servers: [natsUrl], name: 'flood', nkeyFile, caFile, logger })
  const { keys, calls } = sealingFor(lifetime, { bus, subjects, self, logger, hasCore: false })
  const known = await eventually(() => keys.servers(false)[0], 'the server is heard')
  bus.subscribe(subjects.reply(self, '*', '*'), ({ payload }) => void (sent.answerBytes += payload.length))
  // By IP address, for which the client has no name to verify.
  const tls = { ca: authority, checkServerIdentity: () => undefined }
  const authenticator = nkeyAuthenticator(new TextEncoder().encode(seed))
  const nats = await connect({ servers: [natsUrl], authenticator, tls })
  const node = new HostileNode(nats, nodeId)
  const { serverId } = known
  const attack = new Flood(nats, serverId, async (name) => {
    const to = { subject: subjects.serverCall(serverId, nodeId), reply: subjects.reply(self, 'any', name) }
    const sealed = calls.seal(known, to, callNamed(name))
    bus.publish(to.subject, sealed.request, to.reply)
    return { subject: subjects.serverFlow(serverId, nodeId, name), sealed }
  })
  const startedMs = performance.now()
  const dueOf = (perSecond: number) => Math.floor(((performance.now() - startedMs) / 1000) * perSecond)
  let messages = 0
  while (performance.now() - startedMs < seconds * 1000) {
    if (sent.states * STATE_EVERY_MS <= performance.now() - startedMs) {
      const first = sent.states++ * ALLOCATIONS
      await node.claim(...Array.from({ length: ALLOCATIONS }, (_, at) => allocationOf(idOf('f100d0a1', first + at))))
    }
    // Messages that could not be sent in time are skipped: a batch is at most a quarter of the rate per second.
    const due = Math.min(dueOf(messagesPerSecond) - messages, Math.ceil(messagesPerSecond / 4))
    messages = dueOf(messagesPerSecond)
    await attack.batch(due, Math.max(0, Math.min(dueOf(callsPerSecond) - sent.calls, callsPerSecond)))
    await sleep(BATCH_MS)
  }
  parentPort?.postMessage(sent, [])
  for (const end of ends) await end()
  await Promise.all([nats.close(), bus.close()])
}

await flood()
