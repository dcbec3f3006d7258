/**
 * All nodes of a region and their allocations, as the nodes report them. The roster has no authority over a node: a call is
 * still authorized and answered by the node.
 *
 * Each change raises the index, as in the compatible system, and wakes the blocking queries for it. A node that misses three
 * heartbeats is `down`, and its allocations that have not ended are `unknown`; with the next one it is `ready` again. While this
 * server has no connection to NATS, a node whose last heartbeat is too old is `disconnected`: its state is unknown, and it is not
 * reported as down. Times are times of reception by this server's clock, so a wrong clock of a node has no effect.
 *
 * The first key of a node ID is stored, and so is the first key that reports an allocation. Another key is rejected, counted, and
 * logged once a minute at most, whether the owner is ready, down or restarting, and also if it does not report the
 * allocation at present (`allocation-owners.ts`). A purge of the owner ends its ownership, and the next report counts as the
 * first one. After the loss of the roster's database the first report owns.
 */
import type { Logger } from '../../platform/log.ts'
import { TIMINGS } from '../nats/timings.ts'
import { AllocationOwners } from './allocation-owners.ts'
import {
  type AllocationDescription,
  isNewer,
  isSameDescription,
  type NodeOwner,
  type NodeState,
  runSlices,
  type SignedMessage,
} from './node-messages.ts'
import {
  type AllocationRecord,
  type NodeRecord,
  type RosterChange,
  type RosterStore,
  statusOf,
  unknownSince,
} from './roster-records.ts'
import { NODE_LEFT, type NodeStatus } from './node-status.ts'
import { RosterRejections } from './roster-rejections.ts'
import { CLOCK_SKEW_MS, ClockSkews } from '../trust/clock-skews.ts'

const MISSED_HEARTBEATS_MAX = 3
/** A heartbeat after a longer silence is late: the process on the node, NATS or this server was delayed. */
const LATE_MS = 1.5 * TIMINGS.heartbeatMs
/** Silence after which a node is removed. */
const REMOVAL_MS = 24 * 3600 * 1000
const EVENTS_MAX = 10
/** Nodes and allocations of one sweep that become down and unknown: more would block the event loop. The others follow in the next sweep. */
const SWEPT_MAX = 20_000
/** Age above which a heartbeat is too old while this server is disconnected: the interval with its jitter, and a margin. */
const STALE_MS = 1.2 * TIMINGS.heartbeatMs
const OWNER_EXPIRY_INTERVAL_MS = 60_000

interface NodeEntry {
  record: NodeRecord
  readonly publicKey: string
  digest: string
  run: number
  sequence: number
  lastMessageMs: number
  /** False until its first message after the start of this server, or after a reconnect to NATS. */
  hasReported: boolean
  /** IDs of its allocations. */
  readonly allocations: Set<string>
  /** It claims allocations of other nodes: its state is requested again when one of them is released. */
  hasRejected: boolean
}

export interface RosterOptions {
  readonly store: RosterStore
  readonly logger: Logger
  /** True if nodes reject calls with wrong times: with ACL on. */
  readonly checksClocks?: boolean
  /** Monotonic and wall clock, in milliseconds. */
  readonly now?: () => { readonly monotonicMs: number; readonly wallMs: number }
}

/** Result of a message of a node. `ask`: the server lacks its state. */
export type MessageResult = 'taken' | 'ask' | 'old' | 'refused' | 'superseded'

export class Roster {
  readonly #store: RosterStore
  readonly #logger: Logger
  readonly #now: () => { readonly monotonicMs: number; readonly wallMs: number }
  readonly #nodes = new Map<string, NodeEntry>()
  readonly #allocations = new Map<string, AllocationRecord>()
  readonly #owners: AllocationOwners
  readonly rejections: RosterRejections
  readonly clocks: NodeClocks
  readonly #listeners = new Set<(change: RosterChange) => void>()
  #index = 1
  /** Late heartbeats since the start. */
  lateHeartbeats = 0
  #expiredAtMs = 0

  constructor(options: RosterOptions) {
    this.#store = options.store
    this.#owners = new AllocationOwners(options.store)
    this.rejections = new RosterRejections(options.logger)
    this.#logger = options.logger
    this.clocks = new NodeClocks(options.logger, options.checksClocks ?? false)
    this.#now = options.now ?? (() => ({ monotonicMs: performance.now(), wallMs: Date.now() }))
    this.#load()
  }

  /** Loads the roster of the previous process. Nodes count as ready until they have missed their heartbeats. */
  #load(): void {
    const { index, nodes, allocations, owners } = this.#store.load()
    this.#index = Math.max(1, index)
    const lastMessageMs = this.#now().monotonicMs
    for (const { record, publicKey } of nodes) {
      const order = { digest: '', run: 0, sequence: 0, lastMessageMs, hasRejected: false, hasReported: false }
      const entry = { record, publicKey, ...order }
      this.#nodes.set(record.node.id, { ...entry, allocations: new Set() })
    }
    for (const record of allocations) {
      const { id } = record.allocation
      const entry = this.#nodes.get(record.nodeId)
      if (entry) {
        const { status, statusAtMs } = entry.record
        this.#allocations.set(id, status === 'down' ? unknownSince(record, statusAtMs) : record)
        entry.allocations.add(id)
        // The row of its node was malformed, so the owner's key is unknown.
      } else this.#store.removeAllocation(id)
    }
    this.#owners.load(owners)
  }

  /** Rises with each change. */
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

  /**
   * Time since the last message of a ready node whose heartbeat is late: its agent may be dead, and is not down yet. Undefined for any
   * other node. By the monotonic clock, and not a part of the record: it changes all the time.
   */
  lateHeartbeatMs(id: string): number | undefined {
    const entry = this.#nodes.get(id)
    if (!entry || entry.record.status !== 'ready') return undefined
    const silentMs = this.#now().monotonicMs - entry.lastMessageMs
    return silentMs > STALE_MS ? silentMs : undefined
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

  /** Calls back for each change from now on; returns the function that ends it. */
  listen(listener: (change: RosterChange) => void): () => void {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  /** Applies a verified message. `superseded`: a later run of the node has sent messages. */
  apply(nodeId: string, signed: SignedMessage): MessageResult {
    return runSlices(this.applyInSlices(nodeId, signed))
  }

  /**
   * As `apply`. Between two slices other nodes' messages, reads and purges may run; messages of the same node must wait for each
   * other.
   */
  *applyInSlices(nodeId: string, { message, publicKey }: SignedMessage): Generator<undefined, MessageResult> {
    const key = publicKey.toString('base64')
    const entry = this.#nodes.get(nodeId)
    if (entry && entry.publicKey !== key) return this.#reject(entry)
    if (message.kind === 'state' && message.node.id !== nodeId) return 'refused'
    if (entry && message.run < entry.run) return 'superseded'
    if (entry && !isNewer(message, entry)) return 'old'
    const skewMs = message.sentAtMs === undefined ? undefined : message.sentAtMs - this.#now().wallMs
    if (message.kind === 'state') {
      this.clocks.measure(nodeId, message.node.name, skewMs)
      const known = entry ?? this.#addNode(message, key)
      yield* this.#applyState(known, message, { ...message, isNew: !entry })
      if (this.#has(known)) this.#markAlive(known, 'Node re-registered')
      return 'taken'
    }
    if (!entry) return message.kind === 'beat' ? 'ask' : 'old'
    this.clocks.measure(nodeId, entry.record.node.name, skewMs)
    this.#recordMessage(entry, message)
    if (message.kind === 'leave') this.#setStatus(entry, 'down', NODE_LEFT)
    else this.#markAlive(entry, 'Node heartbeat resumed')
    return message.kind === 'beat' && entry.digest !== message.digest ? 'ask' : 'taken'
  }

  /** Undefined for an unknown node. */
  owner(nodeId: string): NodeOwner | undefined {
    const entry = this.#nodes.get(nodeId)
    if (!entry) return undefined
    const { publicKey, run, record } = entry
    return { publicKey: Buffer.from(publicKey, 'base64'), run, isAlive: record.status !== 'down' }
  }

  #reject(entry: NodeEntry): 'refused' {
    this.rejections.count('key', entry.record.node.id)
    return 'refused'
  }

  #addNode({ node }: NodeState, publicKey: string): NodeEntry {
    const index = this.#nextIndex()
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
    const order = { digest: '', run: 0, sequence: 0, lastMessageMs: 0, hasRejected: false, hasReported: true }
    const entry: NodeEntry = { record, publicKey, ...order, allocations: new Set() }
    this.#nodes.set(node.id, entry)
    this.#logger.info('node registered', { node_id: node.id, name: node.name })
    return entry
  }

  *#applyState(
    entry: NodeEntry,
    state: NodeState,
    order: { run: number; sequence: number; digest: string; isNew: boolean },
  ): Generator<undefined, void> {
    const wasReady = entry.record.status === 'ready'
    this.#recordMessage(entry, order)
    if (entry.digest === order.digest && wasReady) return
    entry.digest = order.digest
    if (order.isNew || !isSameDescription(entry.record.node, state.node)) this.#register(entry, state)
    yield* this.#applyAllocations(entry, state.allocations)
  }

  /** A node that sends messages is ready, unless it rejects calls because of its clock. */
  #markAlive(entry: NodeEntry, text: string): void {
    const fault = this.clocks.fault(entry.record.node.id)
    this.#setStatus(entry, fault === undefined ? 'ready' : 'disconnected', fault ?? text)
  }

  #register(entry: NodeEntry, { node }: NodeState): void {
    const index = this.#nextIndex()
    entry.record = { ...entry.record, node, modifyIndex: index }
    this.#store.saveNode(node.id, entry.record, entry.publicKey)
    this.#notify({ index, kind: 'node', type: 'NodeRegistration', key: node.id, record: entry.record })
  }

  /** False if the node was purged between two slices. */
  #has(entry: NodeEntry): boolean {
    return this.#nodes.get(entry.record.node.id) === entry
  }

  *#applyAllocations(entry: NodeEntry, allocations: readonly AllocationDescription[]): Generator<undefined, void> {
    const nodeId = entry.record.node.id
    const reported = new Set<string>()
    entry.hasRejected = false
    for (const allocation of allocations) {
      yield
      if (!this.#has(entry)) return
      if (!this.#mayOwn(entry, allocation.id)) continue
      const known = this.#allocations.get(allocation.id)
      this.#owners.delete(allocation.id)
      reported.add(allocation.id)
      if (known?.nodeId === nodeId && isSameDescription(known.allocation, allocation)) continue
      if (known && known.nodeId !== nodeId) this.#nodes.get(known.nodeId)?.allocations.delete(allocation.id)
      const index = this.#nextIndex()
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
      this.#notify({ index, kind: 'allocation', type: 'AllocationUpdated', key: allocation.id, record, ...before })
    }
    for (const id of entry.allocations) {
      if (reported.has(id)) continue
      yield
      if (!this.#has(entry)) return
      if (entry.allocations.has(id)) this.#removeAllocation(entry, id)
    }
  }

  /** Another key must not receive the allocation's calls. The owner's key may report it under another node ID. */
  #mayOwn(entry: NodeEntry, allocationId: string): boolean {
    const nodeId = entry.record.node.id
    const holder = this.#allocations.get(allocationId)?.nodeId
    if (holder === nodeId) return true
    const other = holder === undefined ? undefined : this.#nodes.get(holder)
    const absent = this.#owners.get(allocationId)
    const ownerKey = other?.publicKey ?? absent?.publicKey
    if (ownerKey === undefined || (ownerKey === entry.publicKey && other?.record.status !== 'ready')) return true
    entry.hasRejected = true
    this.rejections.count('claim', nodeId, { alloc_id: allocationId, owner_node_id: holder ?? absent?.nodeId })
    return false
  }

  /** Allocations were released: requests the states of nodes whose claims were rejected. */
  #requestRejected(): void {
    for (const entry of this.#nodes.values()) if (entry.hasRejected) entry.digest = ''
  }

  /** The node does not report the allocation any more, but still owns it. */
  #removeAllocation(entry: NodeEntry, id: string): void {
    const { publicKey, record: nodeRecord } = entry
    entry.allocations.delete(id)
    this.#owners.add(id, { nodeId: nodeRecord.node.id, publicKey, sinceMs: this.#now().wallMs })
    const record = this.#allocations.get(id)
    this.#allocations.delete(id)
    this.#store.removeAllocation(id)
    if (record)
      this.#notify({ index: this.#nextIndex(), kind: 'allocation', type: 'AllocationRemoved', key: id, record })
  }

  /** Restarts the time for missed heartbeats of all nodes, after this server was disconnected. */
  resetHeartbeats(): void {
    const { monotonicMs } = this.#now()
    for (const entry of this.#nodes.values()) {
      if (entry.record.status === 'down') continue
      entry.lastMessageMs = monotonicMs
      entry.hasReported = false
    }
  }

  /** Number of nodes that are not down and have sent nothing since the start, or since the reconnect to NATS. */
  get unreportedCount(): number {
    let count = 0
    for (const { hasReported, record } of this.#nodes.values()) if (!hasReported && record.status !== 'down') count++
    return count
  }

  /**
   * Must be called about once a second while this server is disconnected from NATS: nodes whose last heartbeat is too old
   * become `disconnected`. `ownNodeId` is the node of this process, which needs no heartbeat.
   */
  markDisconnected(ownNodeId: string | undefined): void {
    const { monotonicMs } = this.#now()
    let count = 0
    for (const [id, entry] of this.#nodes) {
      // Its heartbeats do not arrive either, which says nothing about it.
      if (id === ownNodeId) entry.lastMessageMs = monotonicMs
      if (entry.record.status !== 'ready' || monotonicMs - entry.lastMessageMs <= STALE_MS) continue
      this.#setStatus(entry, 'disconnected', 'This server has no connection to NATS')
      count++
    }
    if (count > 0) this.#logger.warn('state of nodes unknown, not connected to NATS', { nodes: count })
  }

  /** Must be called about once a second while this server is connected: marks silent nodes as down. */
  sweep(): void {
    const { monotonicMs, wallMs } = this.#now()
    if (monotonicMs - this.#expiredAtMs > OWNER_EXPIRY_INTERVAL_MS) {
      this.#expiredAtMs = monotonicMs
      if (this.#owners.expire(wallMs) > 0) this.#requestRejected()
    }
    let swept = 0
    for (const [id, entry] of this.#nodes) {
      const silentMs = monotonicMs - entry.lastMessageMs
      const isSilent = silentMs > MISSED_HEARTBEATS_MAX * TIMINGS.heartbeatMs
      if (silentMs > REMOVAL_MS) this.#removeNode(id, entry)
      else if (isSilent && entry.record.status !== 'down' && swept < SWEPT_MAX) {
        swept += 1 + entry.allocations.size
        this.#setStatus(entry, 'down', 'Node heartbeat missed')
      }
    }
  }

  /**
   * Removes a node with its key, its allocations and its ownership. A node that is alive registers again with its next heartbeat,
   * with any key. Returns false for an unknown node that owns nothing.
   */
  purge(id: string): boolean {
    const entry = this.#nodes.get(id)
    if (entry) this.#removeNode(id, entry)
    const released = this.#owners.deleteOfNode(id)
    if (!entry && released === 0) return false
    this.#logger.warn('node purged', { node_id: id, name: entry?.record.node.name, allocations_released: released })
    this.#requestRejected()
    return true
  }

  #removeNode(id: string, entry: NodeEntry): void {
    for (const allocation of entry.allocations) this.#removeAllocation(entry, allocation)
    this.#nodes.delete(id)
    this.clocks.remove(id)
    this.#store.removeNode(id)
    this.#notify({ index: this.#nextIndex(), kind: 'node', type: 'NodeDeregistration', key: id, record: entry.record })
  }

  #recordMessage(entry: NodeEntry, { run, sequence }: { run: number; sequence: number }): void {
    const { monotonicMs } = this.#now()
    if (entry.run === run && monotonicMs - entry.lastMessageMs > LATE_MS) this.lateHeartbeats++
    entry.lastMessageMs = monotonicMs
    entry.hasReported = true
    entry.run = run
    entry.sequence = sequence
  }

  #setStatus(entry: NodeEntry, status: NodeStatus, text: string): void {
    const before = entry.record.status
    // The first word of the text identifies the cause: a clock skew is still reported after a lost connection.
    const [cause] = text.split(' ')
    if (before === status && entry.record.statusText.startsWith(`${cause} `)) return
    const { wallMs } = this.#now()
    if ((status === 'down') !== (before === 'down')) this.#markAllocations(entry, status === 'down', wallMs)
    // After the allocations, because only this index is stored.
    const index = this.#nextIndex()
    const events = [...entry.record.events, { message: text, atMs: wallMs, index }].slice(-EVENTS_MAX)
    entry.record = { ...entry.record, status, statusText: text, statusAtMs: wallMs, events, modifyIndex: index }
    const { id, name } = entry.record.node
    // `disconnected` concerns all nodes at once and is logged in one line.
    if (status === 'down' || (status === 'ready' && before === 'down')) {
      this.#logger[status === 'down' ? 'warn' : 'info'](`node is ${status}`, { node_id: id, name, reason: text })
    }
    this.#store.saveNode(id, entry.record, entry.publicKey)
    this.#notify({ index, kind: 'node', type: 'NodeEvent', key: id, record: entry.record })
  }

  /** The status of allocations that have not ended is unknown while their node is down. */
  #markAllocations(entry: NodeEntry, isUnknown: boolean, wallMs: number): void {
    for (const id of entry.allocations) {
      const before = this.#allocations.get(id)
      if (!before) continue
      const { unknownSinceMs: _, ...known } = before
      const record = isUnknown ? unknownSince(known, wallMs) : known
      if (statusOf(record) === statusOf(before)) continue
      const index = this.#nextIndex()
      const changed = { ...record, modifyTimeMs: wallMs, modifyIndex: index }
      this.#allocations.set(id, changed)
      this.#notify({ index, kind: 'allocation', type: 'AllocationUpdated', key: id, record: changed, before })
    }
  }

  #nextIndex(): number {
    return ++this.#index
  }

  #notify(change: RosterChange): void {
    for (const listener of this.#listeners) listener(change)
  }
}

/**
 * Clock skew of each node relative to this server: send time minus reception time of the node's messages. Calls to a node with
 * `acl { enabled = true }` carry times, so the node rejects all of them if the skew exceeds `CLOCK_SKEW_MS`.
 */
class NodeClocks extends ClockSkews {
  /** True if nodes reject calls with wrong times. */
  readonly #isChecked: boolean

  constructor(logger: Logger, isChecked: boolean) {
    super({ logger, message: 'node clock skew', fieldsOf: ({ id, name }) => ({ node_id: id, name }) })
    this.#isChecked = isChecked
  }

  /** The reason why the node rejects calls; undefined if it does not. */
  fault(nodeId: string): string | undefined {
    const skewMs = this.of(nodeId)
    if (!this.#isChecked || Math.abs(skewMs) <= CLOCK_SKEW_MS) return undefined
    const seconds = Math.round(Math.abs(skewMs) / 1000)
    const where = skewMs > 0 ? 'ahead of' : 'behind'
    return `The clock of the node is ${seconds} s ${where} this server and calls to it are refused: synchronize both clocks (NTP)`
  }
}
