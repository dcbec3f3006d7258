/**
 * Every node that this server has heard of and every allocation on them, from what the nodes say. Never authoritative
 * over a node's own word: a call is still answered by the node.
 *
 * Each change raises the index, as the compatible system counts, and wakes whoever waits for one. A node that misses
 * three beats is `down`; with its next one it is `ready` again. While this server itself hears nothing, a node whose last
 * beat is too old is `disconnected`: its state is unknown, and it is not declared down for that. Times are when this
 * server heard, by its own clock, so a node whose clock is wrong does no harm.
 *
 * The first key that is seen for a node ID is kept, and so is the first key that announces an allocation: another one is
 * refused, counted, and logged once a minute at most. It does not matter whether the owner is ready, down or restarting,
 * or whether it reports the allocation at present (`claims.ts`). A purge of the owner ends what it owns, and the next
 * announcement counts as the first one. A roster that was lost has no owners: whoever announces first owns.
 */
import type { Logger } from '../../platform/log.ts'
import { type Claim, Claims } from './claims.ts'
import {
  type AllocationDescription,
  atOnce,
  isNewer,
  isSame,
  type NodeDescription,
  type NodeState,
  type SignedMessage,
} from './description.ts'
import { NodeClocks } from './node-clocks.ts'
import { RosterRefusals } from './refusals.ts'
import type { Speaker } from './node-owner.ts'
import { TIMINGS } from '../nats/timings.ts'

const MISSED_MAX = 3
/** A beat after more silence than this is late: the process on the node, NATS or this server was held up. */
const LATE_MS = 1.5 * TIMINGS.heartbeatMs
/** A node that is down for so long is forgotten. */
const FORGET_AFTER_MS = 24 * 3600 * 1000
const EVENTS_MAX = 10
/** While nothing can be heard, what is older is no news: a beat with its jitter, and a little. */
const STALE_MS = 1.2 * TIMINGS.heartbeatMs
const EXPIRE_CLAIMS_MS = 60_000

export interface NodeEvent {
  readonly message: string
  readonly atMs: number
  readonly index: number
}

/** Of those that stock clients know. `disconnected`: this server cannot hear it at present. */
export const NODE_STATUSES = ['ready', 'down', 'disconnected'] as const
export type NodeStatus = (typeof NODE_STATUSES)[number]

export interface NodeRecord {
  readonly node: NodeDescription
  readonly status: NodeStatus
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
  saveClaim(id: string, claim: Claim): void
  removeClaim(id: string): void
  load(): RosterContent
}

/** For a roster that nothing has to outlive. */
export const NO_STORE: RosterStore = {
  saveNode: () => undefined,
  saveAllocation: () => undefined,
  removeNode: () => undefined,
  removeAllocation: () => undefined,
  saveClaim: () => undefined,
  removeClaim: () => undefined,
  load: () => ({ index: 0, nodes: [], allocations: [], claims: [] }),
}

export interface RosterContent {
  readonly index: number
  readonly nodes: Iterable<{ readonly record: NodeRecord; readonly publicKey: string }>
  readonly allocations: Iterable<AllocationRecord>
  /** To allocations that no node reported last. */
  readonly claims: Iterable<{ readonly id: string; readonly claim: Claim }>
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
  /** It claims allocations of others: its state is asked for again when one of them becomes free. */
  hasRefused: boolean
}

export interface RosterOptions {
  readonly store: RosterStore
  readonly logger: Logger
  /** Nodes refuse calls whose times differ from theirs: with ACL. */
  readonly checksClocks?: boolean
  readonly refusals?: RosterRefusals
  /** Monotonic and wall time, in milliseconds. */
  readonly now?: () => { readonly monotonicMs: number; readonly wallMs: number }
}

/** What became of a message of a node. */
export type Taken = 'taken' | 'ask' | 'old' | 'refused' | 'superseded'

export class Roster {
  readonly #store: RosterStore
  readonly #logger: Logger
  readonly #now: () => { readonly monotonicMs: number; readonly wallMs: number }
  readonly #nodes = new Map<string, Entry>()
  readonly #allocations = new Map<string, AllocationRecord>()
  readonly #claims: Claims
  readonly refusals: RosterRefusals
  readonly clocks: NodeClocks
  readonly #listeners = new Set<(change: RosterChange) => void>()
  #index = 1
  /** Beats since the start that came late. */
  lateBeats = 0
  #expiredAtMs = 0

  constructor(options: RosterOptions) {
    this.#store = options.store
    this.#claims = new Claims(options.store)
    this.refusals = options.refusals ?? new RosterRefusals(options.logger)
    this.#logger = options.logger
    this.clocks = new NodeClocks(options.logger, options.checksClocks ?? false)
    this.#now = options.now ?? (() => ({ monotonicMs: performance.now(), wallMs: Date.now() }))
    this.#load()
  }

  /** What was known before the restart; nodes are taken for ready until they have missed their beats. */
  #load(): void {
    const { index, nodes, allocations, claims } = this.#store.load()
    this.#index = Math.max(1, index)
    const heardAtMs = this.#now().monotonicMs
    for (const { record, publicKey } of nodes) {
      const order = { digest: '', run: 0, sequence: 0, heardAtMs, hasRefused: false, isHeard: false }
      const entry = { record, publicKey, ...order }
      this.#nodes.set(record.node.id, { ...entry, allocations: new Set() })
    }
    for (const record of allocations) {
      const { id } = record.allocation
      const entry = this.#nodes.get(record.nodeId)
      if (entry) {
        this.#allocations.set(id, record)
        entry.allocations.add(id)
        // Its node's row cannot be read, so its owner's key is not known.
      } else this.#store.removeAllocation(id)
    }
    this.#claims.load(claims)
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
  take(nodeId: string, said: SignedMessage): Taken {
    return atOnce(this.takeSteps(nodeId, said))
  }

  /** The same in steps, between which other nodes may be heard, asked about and purged. Messages of one node must wait for each other. */
  *takeSteps(nodeId: string, { message, publicKey }: SignedMessage): Generator<undefined, Taken> {
    const key = publicKey.toString('base64')
    const entry = this.#nodes.get(nodeId)
    if (entry && entry.publicKey !== key) return this.#refuse(entry)
    if (message.kind === 'state' && message.node.id !== nodeId) return 'refused'
    if (entry && message.run < entry.run) return 'superseded'
    if (entry && !isNewer(message, entry)) return 'old'
    const { wallMs } = this.#now()
    if (message.kind === 'state') {
      this.clocks.measured(nodeId, { name: message.node.name, sentAtMs: message.sentAtMs }, wallMs)
      const known = entry ?? this.#admit(message, key)
      yield* this.#takeState(known, message, { ...message, isNew: !entry })
      if (this.#has(known)) this.#settle(known, 'Node re-registered')
      return 'taken'
    }
    if (!entry) return message.kind === 'beat' ? 'ask' : 'old'
    this.clocks.measured(nodeId, { name: entry.record.node.name, sentAtMs: message.sentAtMs }, wallMs)
    this.#heard(entry, message)
    if (message.kind === 'leave') this.#setStatus(entry, 'down', 'Node left')
    else this.#settle(entry, 'Node heartbeat resumed')
    return message.kind === 'beat' && entry.digest !== message.digest ? 'ask' : 'taken'
  }

  /** Who speaks for a node. */
  speaker(nodeId: string): Speaker | undefined {
    const entry = this.#nodes.get(nodeId)
    if (!entry) return undefined
    const { publicKey, run, record } = entry
    return { publicKey: Buffer.from(publicKey, 'base64'), run, isThere: record.status !== 'down' }
  }

  #refuse(entry: Entry): 'refused' {
    this.refusals.count('key', entry.record.node.id)
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
    const order = { digest: '', run: 0, sequence: 0, heardAtMs: 0, hasRefused: false, isHeard: true }
    const entry: Entry = { record, publicKey, ...order, allocations: new Set() }
    this.#nodes.set(node.id, entry)
    this.#logger.info('node registered', { node_id: node.id, name: node.name })
    return entry
  }

  *#takeState(
    entry: Entry,
    state: NodeState,
    order: { run: number; sequence: number; digest: string; isNew: boolean },
  ): Generator<undefined, void> {
    const wasReady = entry.record.status === 'ready'
    this.#heard(entry, order)
    if (entry.digest === order.digest && wasReady) return
    entry.digest = order.digest
    if (order.isNew || !isSame(entry.record.node, state.node)) this.#register(entry, state)
    yield* this.#takeAllocations(entry, state.allocations)
  }

  /** The node is heard: it is ready, unless its clock makes it refuse calls. */
  #settle(entry: Entry, text: string): void {
    const fault = this.clocks.fault(entry.record.node.id)
    this.#setStatus(entry, fault === undefined ? 'ready' : 'disconnected', fault ?? text)
  }

  #register(entry: Entry, { node }: NodeState): void {
    const index = this.#next()
    entry.record = { ...entry.record, node, modifyIndex: index }
    this.#store.saveNode(node.id, entry.record, entry.publicKey)
    this.#tell({ index, kind: 'node', type: 'NodeRegistration', key: node.id, record: entry.record })
  }

  /** It may have been purged between two steps. */
  #has(entry: Entry): boolean {
    return this.#nodes.get(entry.record.node.id) === entry
  }

  *#takeAllocations(entry: Entry, allocations: readonly AllocationDescription[]): Generator<undefined, void> {
    const nodeId = entry.record.node.id
    const named = new Set<string>()
    entry.hasRefused = false
    for (const allocation of allocations) {
      yield
      if (!this.#has(entry)) return
      if (!this.#mayHave(entry, allocation.id)) continue
      const known = this.#allocations.get(allocation.id)
      this.#claims.delete(allocation.id)
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
    for (const id of entry.allocations) {
      if (named.has(id)) continue
      yield
      if (!this.#has(entry)) return
      if (entry.allocations.has(id)) this.#removeAllocation(entry, id)
    }
  }

  /** Another key would draw the allocation's calls to itself. The owner's own key may come under another node ID. */
  #mayHave(entry: Entry, allocationId: string): boolean {
    const nodeId = entry.record.node.id
    const holder = this.#allocations.get(allocationId)?.nodeId
    if (holder === nodeId) return true
    const other = holder === undefined ? undefined : this.#nodes.get(holder)
    const owner = other?.publicKey ?? this.#claims.get(allocationId)?.publicKey
    if (owner === undefined || (owner === entry.publicKey && other?.record.status !== 'ready')) return true
    entry.hasRefused = true
    const of = holder ?? this.#claims.get(allocationId)?.nodeId
    this.refusals.count('claim', nodeId, { alloc_id: allocationId, owner_node_id: of })
    return false
  }

  /** Allocations became free: whoever was refused one is asked again. */
  #released(): void {
    for (const entry of this.#nodes.values()) if (entry.hasRefused) entry.digest = ''
  }

  /** Its node does not report it any more; what it owns stays its own. */
  #removeAllocation(entry: Entry, id: string): void {
    const { publicKey, record: of } = entry
    entry.allocations.delete(id)
    this.#claims.add(id, { nodeId: of.node.id, publicKey, sinceMs: this.#now().wallMs })
    const record = this.#allocations.get(id)
    this.#allocations.delete(id)
    this.#store.removeAllocation(id)
    if (record) this.#tell({ index: this.#next(), kind: 'allocation', type: 'AllocationRemoved', key: id, record })
  }

  /** This server could not hear anybody for a while: everybody gets the time of a few beats anew. */
  pardon(): void {
    const { monotonicMs } = this.#now()
    for (const entry of this.#nodes.values()) {
      if (entry.record.status === 'down') continue
      entry.heardAtMs = monotonicMs
      entry.isHeard = false
    }
  }

  /** Nodes that are not down and have not spoken since the start, or since the connection to NATS came back. */
  get unheardCount(): number {
    let count = 0
    for (const { isHeard, record } of this.#nodes.values()) if (!isHeard && record.status !== 'down') count++
    return count
  }

  /**
   * This server hears nothing at present: nodes whose last beat is too old are `disconnected` until they are heard again.
   * `ownNodeId` is this process itself, which it knows to be there. Call it every second or so meanwhile.
   */
  disconnect(ownNodeId: string | undefined): void {
    const { monotonicMs } = this.#now()
    let count = 0
    for (const [id, entry] of this.#nodes) {
      if (id === ownNodeId || entry.record.status !== 'ready' || monotonicMs - entry.heardAtMs <= STALE_MS) continue
      this.#setStatus(entry, 'disconnected', 'This server has no connection to NATS')
      count++
    }
    if (count > 0) this.#logger.warn('nodes cannot be heard, their state is unknown', { nodes: count })
  }

  /** Looks for nodes that are silent. Call it every second or so. */
  sweep(): void {
    const { monotonicMs, wallMs } = this.#now()
    if (monotonicMs - this.#expiredAtMs > EXPIRE_CLAIMS_MS) {
      this.#expiredAtMs = monotonicMs
      if (this.#claims.expire(wallMs) > 0) this.#released()
    }
    for (const [id, entry] of this.#nodes) {
      const silentMs = monotonicMs - entry.heardAtMs
      if (silentMs > FORGET_AFTER_MS) this.#forget(id, entry)
      else if (silentMs > MISSED_MAX * TIMINGS.heartbeatMs && entry.record.status !== 'down') {
        this.#setStatus(entry, 'down', 'Node heartbeat missed')
      }
    }
  }

  /**
   * Forgets a node with its key, its allocations and its claims, as if it had never been there; one that is alive comes
   * back with its next beat, whatever key it has then. False for one that is not known and owns nothing.
   */
  purge(id: string): boolean {
    const entry = this.#nodes.get(id)
    if (entry) this.#forget(id, entry)
    const claims = this.#claims.deleteOf(id)
    if (!entry && claims === 0) return false
    this.#logger.warn('a node was purged', { node_id: id, name: entry?.record.node.name, allocations_released: claims })
    this.#released()
    return true
  }

  #forget(id: string, entry: Entry): void {
    for (const allocation of entry.allocations) this.#removeAllocation(entry, allocation)
    this.#nodes.delete(id)
    this.clocks.forget(id)
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

  #setStatus(entry: Entry, status: NodeStatus, text: string): void {
    const before = entry.record.status
    // A clock that is wrong outlives a lost connection, and is told then: the first word of the text names the cause.
    const [cause] = text.split(' ')
    if (before === status && entry.record.statusText.startsWith(`${cause} `)) return
    const index = this.#next()
    const { wallMs } = this.#now()
    const events = [...entry.record.events, { message: text, atMs: wallMs, index }].slice(-EVENTS_MAX)
    entry.record = { ...entry.record, status, statusText: text, statusAtMs: wallMs, events, modifyIndex: index }
    const { id, name } = entry.record.node
    // All nodes together are disconnected and come back, which is logged in one line for all.
    if (status === 'down' || (status === 'ready' && before === 'down')) {
      this.#logger[status === 'down' ? 'warn' : 'info'](`node is ${status}`, { node_id: id, name, reason: text })
    }
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
