/**
 * Every node that this server has heard of and every allocation on them, from what the nodes say. Never authoritative
 * over a node's own word: a call is still answered by the node.
 *
 * Each change raises the index, as the compatible system counts, and wakes whoever waits for one. A node that misses
 * three beats is `down`; with its next one it is `ready` again. Times are when this server heard, by its own clock, so a
 * node whose clock is wrong does no harm.
 *
 * The first key that is seen for a node ID is kept; another one is refused and said loudly, once a minute at most.
 */
import type { Logger } from '../kit/log.ts'
import type { AllocationDescription, NodeDescription, NodeState, SignedMessage } from './description.ts'
import type { Speaker } from './speaker.ts'

export const BEAT_MS = 10_000
const MISSED_MAX = 3
/** A beat after more silence than this is late: the process on the node, NATS or this server was held up. */
const LATE_MS = 1.5 * BEAT_MS
/** A node that is down for so long is forgotten. */
const FORGET_AFTER_MS = 24 * 3600 * 1000
const EVENTS_MAX = 10
const QUIET_MS = 60_000

export interface NodeEvent {
  readonly message: string
  readonly atMs: number
  readonly index: number
}

export interface NodeRecord {
  readonly node: NodeDescription
  readonly status: 'ready' | 'down'
  /** Why it is what it is. */
  readonly statusText: string
  readonly statusAtMs: number
  /** The last ones, the oldest first. */
  readonly events: readonly NodeEvent[]
  readonly createIndex: number
  readonly modifyIndex: number
}

export interface AllocationRecord {
  readonly allocation: AllocationDescription
  readonly nodeId: string
  readonly modifyTimeMs: number
  readonly createIndex: number
  readonly modifyIndex: number
}

interface Change<Kind extends string, Type extends string, Record> {
  readonly index: number
  readonly kind: Kind
  readonly type: Type
  readonly key: string
  /** As it is now, or as it was last where it has gone. */
  readonly record: Record
}

export type NodeChange = Change<'node', 'NodeRegistration' | 'NodeEvent' | 'NodeDeregistration', NodeRecord>
export interface AllocationChange
  extends Change<'allocation', 'AllocationUpdated' | 'AllocationRemoved', AllocationRecord> {
  /** As it was before, where it was known. */
  readonly before?: AllocationRecord
}
export type RosterChange = NodeChange | AllocationChange

/** What outlives the process. Called after each change; it may write late, and all of it or a part. */
export interface RosterStore {
  saveNode(id: string, record: NodeRecord, publicKey: string): void
  saveAllocation(id: string, record: AllocationRecord): void
  removeNode(id: string): void
  removeAllocation(id: string): void
  load(): RosterContent
}

/** For a roster that nothing has to outlive. */
export const NO_STORE: RosterStore = {
  saveNode: () => undefined,
  saveAllocation: () => undefined,
  removeNode: () => undefined,
  removeAllocation: () => undefined,
  load: () => ({ index: 0, nodes: [], allocations: [] }),
}

export interface RosterContent {
  readonly index: number
  readonly nodes: Iterable<{ readonly record: NodeRecord; readonly publicKey: string }>
  readonly allocations: Iterable<AllocationRecord>
}

interface Entry {
  record: NodeRecord
  readonly publicKey: string
  digest: string
  run: number
  sequence: number
  heardAtMs: number
  /** False until it speaks: since the start of this server, or since the connection to NATS came back. */
  isHeard: boolean
  /** Allocations on it. */
  readonly allocations: Set<string>
  complainedAtMs: number
}

export interface RosterOptions {
  readonly store: RosterStore
  readonly logger: Logger
  /** Monotonic and wall time, in milliseconds. */
  readonly now?: () => { readonly monotonicMs: number; readonly wallMs: number }
}

export class Roster {
  readonly #store: RosterStore
  readonly #logger: Logger
  readonly #now: () => { readonly monotonicMs: number; readonly wallMs: number }
  readonly #nodes = new Map<string, Entry>()
  readonly #allocations = new Map<string, AllocationRecord>()
  readonly #listeners = new Set<(change: RosterChange) => void>()
  #index = 1
  /** Beats since the start that came late. */
  lateBeats = 0

  constructor(options: RosterOptions) {
    this.#store = options.store
    this.#logger = options.logger
    this.#now = options.now ?? (() => ({ monotonicMs: performance.now(), wallMs: Date.now() }))
    this.#load()
  }

  /** What was known before the restart; nodes are taken for ready until they have missed their beats. */
  #load(): void {
    const { index, nodes, allocations } = this.#store.load()
    this.#index = Math.max(1, index)
    const heardAtMs = this.#now().monotonicMs
    for (const { record, publicKey } of nodes) {
      const entry = {
        record,
        publicKey,
        digest: '',
        run: 0,
        sequence: 0,
        heardAtMs,
        complainedAtMs: -QUIET_MS,
        isHeard: false,
      }
      this.#nodes.set(record.node.id, { ...entry, allocations: new Set() })
    }
    for (const record of allocations) {
      this.#allocations.set(record.allocation.id, record)
      this.#nodes.get(record.nodeId)?.allocations.add(record.allocation.id)
    }
  }

  /** Rises with every change. */
  get index(): number {
    return this.#index
  }

  get nodeCount(): number {
    return this.#nodes.size
  }

  get allocationCount(): number {
    return this.#allocations.size
  }

  node(id: string): NodeRecord | undefined {
    return this.#nodes.get(id)?.record
  }

  *nodes(): Generator<NodeRecord> {
    for (const { record } of this.#nodes.values()) yield record
  }

  allocation(id: string): AllocationRecord | undefined {
    return this.#allocations.get(id)
  }

  allocations(): IterableIterator<AllocationRecord> {
    return this.#allocations.values()
  }

  *allocationsOf(nodeId: string): Generator<AllocationRecord> {
    for (const id of this.#nodes.get(nodeId)?.allocations ?? []) {
      const record = this.#allocations.get(id)
      if (record) yield record
    }
  }

  /** Tells every change from now on; returns how to stop. */
  listen(tell: (change: RosterChange) => void): () => void {
    this.#listeners.add(tell)
    return () => void this.#listeners.delete(tell)
  }

  /**
   * Takes in what a node has said, which is known to be signed. Returns `ask` when its whole state is wanted: it has
   * another one than is known here. `superseded`: a later run of the node has spoken.
   */
  take(nodeId: string, { message, publicKey }: SignedMessage): 'taken' | 'ask' | 'old' | 'refused' | 'superseded' {
    const key = publicKey.toString('base64')
    const entry = this.#nodes.get(nodeId)
    if (entry && entry.publicKey !== key) return this.#refuse(entry)
    if (message.kind === 'state' && message.node.id !== nodeId) return 'refused'
    if (entry && message.run < entry.run) return 'superseded'
    if (entry && !isNewer(message, entry)) return 'old'
    if (message.kind === 'state') {
      this.#takeState(entry ?? this.#admit(message, key), message, { ...message, isNew: !entry })
      return 'taken'
    }
    if (!entry) return message.kind === 'beat' ? 'ask' : 'old'
    this.#heard(entry, message)
    if (message.kind === 'leave') this.#setStatus(entry, 'down', 'Node left')
    else if (entry.record.status === 'down') this.#setStatus(entry, 'ready', 'Node heartbeat resumed')
    return message.kind === 'beat' && entry.digest !== message.digest ? 'ask' : 'taken'
  }

  /** Who speaks for a node. */
  speaker(nodeId: string): Speaker | undefined {
    const entry = this.#nodes.get(nodeId)
    if (!entry) return undefined
    const { publicKey, run, record } = entry
    return { publicKey: Buffer.from(publicKey, 'base64'), run, isThere: record.status === 'ready' }
  }

  #refuse(entry: Entry): 'refused' {
    const { monotonicMs } = this.#now()
    if (monotonicMs - entry.complainedAtMs >= QUIET_MS) {
      entry.complainedAtMs = monotonicMs
      this.#logger.error(
        'another key speaks for a node that is known: refused. A copied state directory, or a forgery',
        {
          node_id: entry.record.node.id,
        },
      )
    }
    return 'refused'
  }

  #admit({ node }: NodeState, publicKey: string): Entry {
    const index = this.#next()
    const { wallMs } = this.#now()
    const record: NodeRecord = {
      node,
      status: 'ready',
      statusText: 'Node registered',
      statusAtMs: wallMs,
      events: [{ message: 'Node registered', atMs: wallMs, index }],
      createIndex: index,
      modifyIndex: index,
    }
    const order = { digest: '', run: 0, sequence: 0, heardAtMs: 0, complainedAtMs: -QUIET_MS, isHeard: true }
    const entry: Entry = { record, publicKey, ...order, allocations: new Set() }
    this.#nodes.set(node.id, entry)
    this.#logger.info('node registered', { node_id: node.id, name: node.name })
    return entry
  }

  #takeState(
    entry: Entry,
    state: NodeState,
    order: { run: number; sequence: number; digest: string; isNew: boolean },
  ): void {
    const wasDown = entry.record.status === 'down'
    this.#heard(entry, order)
    if (entry.digest === order.digest && !wasDown) return
    entry.digest = order.digest
    if (order.isNew || !isSame(entry.record.node, state.node)) this.#register(entry, state)
    this.#takeAllocations(entry, state.allocations)
    if (wasDown) this.#setStatus(entry, 'ready', 'Node re-registered')
  }

  #register(entry: Entry, { node }: NodeState): void {
    const index = this.#next()
    entry.record = { ...entry.record, node, modifyIndex: index }
    this.#store.saveNode(node.id, entry.record, entry.publicKey)
    this.#tell({ index, kind: 'node', type: 'NodeRegistration', key: node.id, record: entry.record })
  }

  #takeAllocations(entry: Entry, allocations: readonly AllocationDescription[]): void {
    const nodeId = entry.record.node.id
    const named = new Set<string>()
    for (const allocation of allocations) {
      const known = this.#allocations.get(allocation.id)
      // Nobody takes over what another node that is there has: it would draw that allocation's calls to itself.
      if (known && known.nodeId !== nodeId && this.#nodes.get(known.nodeId)?.record.status === 'ready') continue
      named.add(allocation.id)
      if (known?.nodeId === nodeId && isSame(known.allocation, allocation)) continue
      if (known && known.nodeId !== nodeId) this.#nodes.get(known.nodeId)?.allocations.delete(allocation.id)
      const index = this.#next()
      const record: AllocationRecord = {
        allocation,
        nodeId,
        modifyTimeMs: this.#now().wallMs,
        createIndex: known?.createIndex ?? index,
        modifyIndex: index,
      }
      this.#allocations.set(allocation.id, record)
      entry.allocations.add(allocation.id)
      this.#store.saveAllocation(allocation.id, record)
      const before = known ? { before: known } : {}
      this.#tell({ index, kind: 'allocation', type: 'AllocationUpdated', key: allocation.id, record, ...before })
    }
    for (const id of entry.allocations) if (!named.has(id)) this.#removeAllocation(entry, id)
  }

  #removeAllocation(entry: Entry, id: string): void {
    entry.allocations.delete(id)
    const record = this.#allocations.get(id)
    this.#allocations.delete(id)
    this.#store.removeAllocation(id)
    if (record) this.#tell({ index: this.#next(), kind: 'allocation', type: 'AllocationRemoved', key: id, record })
  }

  /** This server could not hear anybody for a while: everybody gets the time of a few beats anew. */
  pardon(): void {
    const { monotonicMs } = this.#now()
    for (const entry of this.#nodes.values()) {
      if (entry.record.status !== 'ready') continue
      entry.heardAtMs = monotonicMs
      entry.isHeard = false
    }
  }

  /** Nodes that are taken for ready and have not spoken since the start, or since the connection to NATS came back. */
  get unheardCount(): number {
    let count = 0
    for (const { isHeard, record } of this.#nodes.values()) if (!isHeard && record.status === 'ready') count++
    return count
  }

  /** Looks for nodes that are silent. Call it every second or so. */
  sweep(): void {
    const { monotonicMs } = this.#now()
    for (const [id, entry] of this.#nodes) {
      const silentMs = monotonicMs - entry.heardAtMs
      if (silentMs > FORGET_AFTER_MS) this.#forget(id, entry)
      else if (silentMs > MISSED_MAX * BEAT_MS && entry.record.status === 'ready') {
        this.#setStatus(entry, 'down', 'Node heartbeat missed')
      }
    }
  }

  /**
   * Forgets a node with its key and its allocations, as if it had never been there; one that is alive comes back with its
   * next beat, whatever key it has then. False for one that is not known.
   */
  purge(id: string): boolean {
    const entry = this.#nodes.get(id)
    if (!entry) return false
    this.#logger.warn('a node was purged', { node_id: id, name: entry.record.node.name })
    this.#forget(id, entry)
    return true
  }

  #forget(id: string, entry: Entry): void {
    for (const allocation of entry.allocations) this.#removeAllocation(entry, allocation)
    this.#nodes.delete(id)
    this.#store.removeNode(id)
    this.#tell({ index: this.#next(), kind: 'node', type: 'NodeDeregistration', key: id, record: entry.record })
  }

  #heard(entry: Entry, { run, sequence }: { run: number; sequence: number }): void {
    const { monotonicMs } = this.#now()
    if (entry.run === run && monotonicMs - entry.heardAtMs > LATE_MS) this.lateBeats++
    entry.heardAtMs = monotonicMs
    entry.isHeard = true
    entry.run = run
    entry.sequence = sequence
  }

  #setStatus(entry: Entry, status: 'ready' | 'down', text: string): void {
    if (entry.record.status === status) return
    const index = this.#next()
    const { wallMs } = this.#now()
    const events = [...entry.record.events, { message: text, atMs: wallMs, index }].slice(-EVENTS_MAX)
    entry.record = { ...entry.record, status, statusText: text, statusAtMs: wallMs, events, modifyIndex: index }
    const { id, name } = entry.record.node
    this.#logger[status === 'down' ? 'warn' : 'info'](`node is ${status}`, { node_id: id, name, reason: text })
    this.#store.saveNode(id, entry.record, entry.publicKey)
    this.#tell({ index, kind: 'node', type: 'NodeEvent', key: id, record: entry.record })
  }

  #next(): number {
    return ++this.#index
  }

  #tell(change: RosterChange): void {
    for (const tell of this.#listeners) tell(change)
  }
}

/** A replayed or overtaken message is old news. */
function isNewer(message: { run: number; sequence: number }, entry: Entry): boolean {
  if (message.run !== entry.run) return message.run > entry.run
  return message.sequence > entry.sequence
}

function isSame<T extends NodeDescription | AllocationDescription>(a: T, b: T): boolean {
  return JSON.stringify(a) === JSON.stringify(b)
}
