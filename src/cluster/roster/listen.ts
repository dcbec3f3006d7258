/**
 * The server's side of the roster: hears every node, checks who speaks, and asks for what it does not know. A server that
 * has just begun asks every node once, as their beats come in, some at a time.
 *
 * A node may send so many messages and so many bytes a second, and a state of so many bytes and allocations. What is more
 * is refused before its signature is checked, counted, and logged once a minute: it costs this server next to nothing, and
 * other nodes do not notice it. A refused state heals itself: the next beat that is taken asks for it again. The bus must
 * keep nodes from sending under the names of others (permissions.ts); where it does not, one can use up what is another's.
 *
 * A long state is taken in by pieces, with turns of the event loop between them: ten thousand new allocations are a fifth of a
 * second of work. What the node says meanwhile waits, of states the newest.
 */
import { isNodeId } from '../../platform/schema.ts'
import { yieldIfDue } from '../../platform/scheduler.ts'
import { TokenBuckets } from '../../platform/token-bucket.ts'
import { atOnce, BEAT_BYTES_MAX, openSteps, STATE_BYTES_MAX } from './description.ts'
import type { MessageBus, BusMessage, BusSubscription } from '../nats/message-bus.ts'
import type { Roster, Taken } from './roster.ts'
import { encodeSpeaker } from './node-owner.ts'
import type { Subjects } from '../nats/subjects.ts'
import { TIMINGS } from '../nats/timings.ts'

/** Messages of a node a second and at once. It sends two states a second at most, and a beat in ten. */
const MESSAGES = { perSecond: 5, capacity: 60 }
/** Bytes of its states. `announce.ts` keeps to half of the first figure. */
const STATE_BYTES = { perSecond: 1 << 20, capacity: 4 * STATE_BYTES_MAX }
const NOTHING = new Uint8Array(0)
/** What is longer is taken in by pieces: some 70 allocations, one or two milliseconds. */
const SHORT_BYTES = 16_384
/** Bytes of all nodes that are being taken in by pieces, or wait behind those. States beyond are refused, and asked for with the next beat. */
const LONG_BYTES_MAX = 64 << 20

/** What became of a message about a node: those of the roster, and `malformed`. */
type Result = Taken | 'malformed'

interface Said {
  readonly nodeId: string
  readonly kind: string
  readonly message: BusMessage
}

export class RosterListener {
  readonly #bus: MessageBus
  readonly #subjects: Subjects
  readonly #roster: Roster
  readonly #ownNodeId: string | undefined
  readonly #messages: TokenBuckets
  readonly #stateBytes: TokenBuckets
  readonly #askedAtMs = new Map<string, number>()
  readonly #counts = { taken: 0, old: 0, superseded: 0, refused: 0, malformed: 0 }
  #subscription: BusSubscription | undefined
  #sweeper: NodeJS.Timeout | undefined
  /** Nodes of which a long state is being taken in, with what they have said since. */
  readonly #behind = new Map<string, Said[]>()
  #longBytes = 0
  #isStopped = false

  constructor(options: {
    readonly bus: MessageBus
    readonly subjects: Subjects
    readonly roster: Roster
    /** This process's own node, where it has one. */
    readonly ownNodeId: string | undefined
    readonly now?: () => number
  }) {
    this.#bus = options.bus
    this.#subjects = options.subjects
    this.#roster = options.roster
    this.#ownNodeId = options.ownNodeId
    const now = options.now ?? (() => performance.now())
    this.#messages = new TokenBuckets({ ...MESSAGES, now })
    this.#stateBytes = new TokenBuckets({ ...STATE_BYTES, now })
  }

  start(): void {
    this.#subscription = this.#bus.subscribe(this.#subjects.roster('*', '*'), (message) => this.#take(message))
    this.#bus.onChange((isConnected) => {
      if (isConnected) this.#roster.pardon()
    })
    this.#sweeper = setInterval(() => this.#sweep(), TIMINGS.rosterSweepMs).unref()
  }

  stop(): void {
    this.#isStopped = true
    clearInterval(this.#sweeper)
    this.#subscription?.close()
  }

  /** Messages about nodes since the start, by what became of them. */
  get counts(): Readonly<Record<string, number>> {
    return this.#counts
  }

  #take(message: BusMessage): void {
    const parts = this.#subjects.parseRoster(message.subject)
    if (!parts || !isNodeId(parts.nodeId)) return this.#refuse('malformed', parts?.nodeId, message)
    const excess = this.#excessOf(parts, message.payload.length)
    if (excess) return this.#refuse(excess, parts.nodeId, message)
    const said = { ...parts, message }
    const behind = this.#behind.get(parts.nodeId)
    if (!behind && message.payload.length <= SHORT_BYTES) return this.#count(atOnce(this.#steps(said)))
    this.#longBytes += message.payload.length
    if (behind) this.#wait(said, behind)
    else void this.#takeInTurns(said)
  }

  /** Of two states that wait, the older one is no news any more. */
  #wait(said: Said, behind: Said[]): void {
    const at = said.kind === 'state' ? behind.findIndex(({ kind }) => kind === 'state') : -1
    for (const older of at < 0 ? [] : behind.splice(at, 1)) {
      this.#longBytes -= older.message.payload.length
      this.#count('old')
    }
    behind.push(said)
  }

  #refuse(reason: 'malformed' | 'rate' | 'bytes', nodeId: string | undefined, { payload }: BusMessage): void {
    this.#roster.refusals.count(reason, nodeId, reason === 'malformed' ? undefined : { bytes: payload.length })
    this.#counts[reason === 'malformed' ? 'malformed' : 'refused']++
  }

  #count(result: Result): void {
    this.#counts[result === 'ask' ? 'taken' : result]++
  }

  /** What a node says from now on waits behind it. */
  async #takeInTurns(first: Said): Promise<void> {
    const behind: Said[] = []
    this.#behind.set(first.nodeId, behind)
    for (let said: Said | undefined = first; said && !this.#isStopped; said = behind.shift()) {
      const steps = this.#steps(said)
      let step = steps.next()
      while (!step.done && !this.#isStopped) {
        const turn = yieldIfDue()
        if (turn) await turn
        step = steps.next()
      }
      if (step.done) this.#count(step.value)
      this.#longBytes -= said.message.payload.length
    }
    this.#behind.delete(first.nodeId)
  }

  *#steps({ kind, message: { subject, payload }, nodeId }: Said): Generator<undefined, Result> {
    const opened = yield* openSteps(payload, subject)
    if (typeof opened === 'string' || opened.message.kind !== kind) {
      this.#roster.refusals.count(typeof opened === 'string' ? opened : 'malformed', nodeId)
      return 'malformed'
    }
    const result = yield* this.#roster.takeSteps(nodeId, opened)
    if (result === 'ask') this.#say(nodeId, NOTHING)
    else if (result === 'superseded' || result === 'refused') this.#tellSpeaker(nodeId)
    return result
  }

  /** To whoever speaks for the node and is not taken for it. */
  #tellSpeaker(nodeId: string): void {
    const speaker = this.#roster.speaker(nodeId)
    if (speaker) this.#say(nodeId, encodeSpeaker(speaker))
  }

  #say(nodeId: string, what: Uint8Array): void {
    const nowMs = performance.now()
    if (nowMs - (this.#askedAtMs.get(nodeId) ?? Number.NEGATIVE_INFINITY) < TIMINGS.stateRequestIntervalMs) return
    this.#askedAtMs.set(nodeId, nowMs)
    this.#bus.publish(this.#subjects.describe(nodeId), what)
  }

  /** What a message has too much of, before anything is made of its bytes. */
  #excessOf({ nodeId, kind }: { nodeId: string; kind: string }, bytes: number): 'rate' | 'bytes' | undefined {
    if (!this.#messages.take(nodeId, 1)) return 'rate'
    if (bytes > (kind === 'state' ? STATE_BYTES_MAX : BEAT_BYTES_MAX)) return 'bytes'
    if (kind !== 'state') return undefined
    if (bytes > SHORT_BYTES && this.#longBytes + bytes > LONG_BYTES_MAX) return 'rate'
    return this.#stateBytes.take(nodeId, bytes) ? undefined : 'rate'
  }

  #sweep(): void {
    // While nothing can be heard, silence means nothing: no node is down for it.
    if (this.#bus.isConnected) this.#roster.sweep()
    else this.#roster.disconnect(this.#ownNodeId)
    this.#messages.sweep()
    this.#stateBytes.sweep()
    const nowMs = performance.now()
    for (const [nodeId, atMs] of this.#askedAtMs)
      if (nowMs - atMs > TIMINGS.stateRequestIntervalMs) this.#askedAtMs.delete(nodeId)
  }
}
