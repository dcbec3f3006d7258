/**
 * The server's side of the roster: hears every node, checks who speaks, and asks for what it does not know. A server that
 * has just begun asks every node once, as their beats come in, some at a time.
 */
import type { Logger } from '../kit/log.ts'
import { Complaints } from './complaints.ts'
import { openMessage } from './description.ts'
import type { Link, Message, Subscription } from './link.ts'
import type { Roster } from './roster.ts'
import { encodeSpeaker } from './speaker.ts'
import type { Subjects } from './subjects.ts'

/** One word to a node in this time: the answer may be on its way. */
const ASK_AGAIN_MS = 3000
const SWEEP_MS = 1000
const NOTHING = new Uint8Array(0)

/** What became of a message about a node: those of the roster, and `malformed`. */
type Result = ReturnType<Roster['take']> | 'malformed'

export class RosterListener {
  readonly #link: Link
  readonly #subjects: Subjects
  readonly #roster: Roster
  readonly #complaints: Complaints
  readonly #askedAtMs = new Map<string, number>()
  readonly #counts = { taken: 0, old: 0, superseded: 0, refused: 0, malformed: 0 }
  #subscription: Subscription | undefined
  #sweeper: NodeJS.Timeout | undefined

  constructor(options: { link: Link; subjects: Subjects; roster: Roster; logger: Logger }) {
    this.#link = options.link
    this.#subjects = options.subjects
    this.#roster = options.roster
    this.#complaints = new Complaints(options.logger)
  }

  start(): void {
    this.#subscription = this.#link.subscribe(this.#subjects.roster('*', '*'), (message) => this.#take(message))
    this.#link.onChange((isConnected) => {
      if (isConnected) this.#roster.pardon()
    })
    this.#sweeper = setInterval(() => this.#sweep(), SWEEP_MS).unref()
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
    const parts = this.#subjects.partsOfRoster(subject)
    const opened = parts ? openMessage(payload, subject) : 'malformed'
    if (!parts || typeof opened === 'string') {
      this.#complain(typeof opened === 'string' ? opened : 'malformed', parts?.nodeId)
      return 'malformed'
    }
    if (opened.message.kind !== parts.kind) {
      this.#complain('malformed', parts.nodeId)
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
    if (nowMs - (this.#askedAtMs.get(nodeId) ?? Number.NEGATIVE_INFINITY) < ASK_AGAIN_MS) return
    this.#askedAtMs.set(nodeId, nowMs)
    this.#link.publish(this.#subjects.describe(nodeId), what)
  }

  #complain(what: string, nodeId: string | undefined): void {
    this.#complaints.warn('messages about nodes were refused', { reason: what, node_id: nodeId })
  }

  #sweep(): void {
    // While nothing can be heard, silence means nothing.
    if (this.#link.isConnected) this.#roster.sweep()
    const nowMs = performance.now()
    for (const [nodeId, atMs] of this.#askedAtMs) if (nowMs - atMs > ASK_AGAIN_MS) this.#askedAtMs.delete(nodeId)
  }
}
