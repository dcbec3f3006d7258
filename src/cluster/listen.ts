/**
 * The server's side of the roster: hears every node, checks who speaks, and asks for what it does not know. A server that
 * has just begun asks every node once, as their beats come in, some at a time.
 *
 * A node may send so many messages and so many bytes a second, and a state of so many bytes and allocations. What is more
 * is refused before its signature is checked, counted, and logged once a minute: it costs this server next to nothing, and
 * other nodes do not notice it. A refused state heals itself: the next beat that is taken asks for it again. The bus must
 * keep nodes from sending under the names of others (permissions.ts); where it does not, one can use up what is another's.
 */
import { isNodeId } from '../kit/schema.ts'
import { Allowance } from './allowance.ts'
import { BEAT_BYTES_MAX, openMessage, STATE_BYTES_MAX } from './description.ts'
import type { Link, Message, Subscription } from './link.ts'
import type { Roster } from './roster.ts'
import { encodeSpeaker } from './speaker.ts'
import type { Subjects } from './subjects.ts'
import { TIMINGS } from './timings.ts'

/** Messages of a node a second and at once. It sends two states a second at most, and a beat in ten. */
const MESSAGES = { perSecond: 5, most: 60 }
/** Bytes of its states. `announce.ts` keeps to half of the first figure. */
const STATE_BYTES = { perSecond: 1 << 20, most: 4 * STATE_BYTES_MAX }
const NOTHING = new Uint8Array(0)

/** What became of a message about a node: those of the roster, and `malformed`. */
type Result = ReturnType<Roster['take']> | 'malformed'

export class RosterListener {
  readonly #link: Link
  readonly #subjects: Subjects
  readonly #roster: Roster
  readonly #ownNodeId: string | undefined
  readonly #messages: Allowance
  readonly #stateBytes: Allowance
  readonly #askedAtMs = new Map<string, number>()
  readonly #counts = { taken: 0, old: 0, superseded: 0, refused: 0, malformed: 0 }
  #subscription: Subscription | undefined
  #sweeper: NodeJS.Timeout | undefined

  constructor(options: {
    readonly link: Link
    readonly subjects: Subjects
    readonly roster: Roster
    /** This process's own node, where it has one. */
    readonly ownNodeId: string | undefined
    readonly now?: () => number
  }) {
    this.#link = options.link
    this.#subjects = options.subjects
    this.#roster = options.roster
    this.#ownNodeId = options.ownNodeId
    const now = options.now ?? (() => performance.now())
    this.#messages = new Allowance({ ...MESSAGES, now })
    this.#stateBytes = new Allowance({ ...STATE_BYTES, now })
  }

  start(): void {
    this.#subscription = this.#link.subscribe(this.#subjects.roster('*', '*'), (message) => this.#take(message))
    this.#link.onChange((isConnected) => {
      if (isConnected) this.#roster.pardon()
    })
    this.#sweeper = setInterval(() => this.#sweep(), TIMINGS.rosterSweepMs).unref()
  }

  stop(): void {
    clearInterval(this.#sweeper)
    this.#subscription?.close()
  }

  /** Messages about nodes since the start, by what became of them. */
  get counts(): Readonly<Record<string, number>> {
    return this.#counts
  }

  #take(message: Message): void {
    const result = this.#taken(message)
    this.#counts[result === 'ask' ? 'taken' : result]++
  }

  #taken({ subject, payload }: Message): Result {
    const { refusals } = this.#roster
    const parts = this.#subjects.partsOfRoster(subject)
    const excess = parts && this.#excessOf(parts, payload.length)
    if (excess) {
      refusals.count(excess, parts.nodeId, { bytes: payload.length })
      return 'refused'
    }
    const opened = parts && isNodeId(parts.nodeId) ? openMessage(payload, subject) : 'malformed'
    if (!parts || typeof opened === 'string' || opened.message.kind !== parts.kind) {
      refusals.count(typeof opened === 'string' ? opened : 'malformed', parts?.nodeId)
      return 'malformed'
    }
    const result = this.#roster.take(parts.nodeId, opened)
    if (result === 'ask') this.#say(parts.nodeId, NOTHING)
    else if (result === 'superseded' || result === 'refused') this.#tellSpeaker(parts.nodeId)
    return result
  }

  /** To whoever speaks for the node and is not taken for it. */
  #tellSpeaker(nodeId: string): void {
    const speaker = this.#roster.speaker(nodeId)
    if (speaker) this.#say(nodeId, encodeSpeaker(speaker))
  }

  #say(nodeId: string, what: Uint8Array): void {
    const nowMs = performance.now()
    if (nowMs - (this.#askedAtMs.get(nodeId) ?? Number.NEGATIVE_INFINITY) < TIMINGS.askAgainMs) return
    this.#askedAtMs.set(nodeId, nowMs)
    this.#link.publish(this.#subjects.describe(nodeId), what)
  }

  /** What a message has too much of, before anything is made of its bytes. */
  #excessOf({ nodeId, kind }: { nodeId: string; kind: string }, bytes: number): 'rate' | 'bytes' | undefined {
    // What is no node is not counted by name: names are without end.
    if (!isNodeId(nodeId)) return undefined
    if (!this.#messages.take(nodeId, 1)) return 'rate'
    if (bytes > (kind === 'state' ? STATE_BYTES_MAX : BEAT_BYTES_MAX)) return 'bytes'
    return kind !== 'state' || this.#stateBytes.take(nodeId, bytes) ? undefined : 'rate'
  }

  #sweep(): void {
    // While nothing can be heard, silence means nothing: no node is down for it.
    if (this.#link.isConnected) this.#roster.sweep()
    else this.#roster.disconnect(this.#ownNodeId)
    this.#messages.sweep()
    this.#stateBytes.sweep()
    const nowMs = performance.now()
    for (const [nodeId, atMs] of this.#askedAtMs) if (nowMs - atMs > TIMINGS.askAgainMs) this.#askedAtMs.delete(nodeId)
  }
}
