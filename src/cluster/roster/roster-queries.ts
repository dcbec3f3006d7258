/**
 * Queries of a server's lists that the roster itself does not answer: ordered IDs, the allocations of a job, and blocking
 * queries. Everything here is derived from the roster and its changes.
 *
 * A *topic* is what a blocking query waits for: `nodes`, `allocations`, one node, one allocation, the allocations of one node or
 * of one job. Each has the index of its last change, so a query wakes for changes of its own topic only.
 */
import { Refusal } from '../../platform/errors.ts'
import { OrderedIds } from './ordered-ids.ts'
import type { Roster } from './roster.ts'
import { type AllocationRecord, type AllocationStatus, type RosterChange, statusOf } from './roster-records.ts'

/** Concurrent blocking queries and event streams. Each holds a connection and a timer. */
const WAITERS_MAX = 4096

export type QueryTopic =
  | { readonly kind: 'nodes' | 'allocations' }
  | { readonly kind: 'node' | 'allocation' | 'node-allocations'; readonly id: string }
  | { readonly kind: 'job'; readonly namespace: string; readonly id: string }

export interface JobGroup {
  /** Allocations by client status. */
  readonly counts: Map<AllocationStatus, number>
  /** Number of allocations with a task of this name. */
  readonly tasks: Map<string, number>
}

/** A job, derived from its allocations. Counts are maintained incrementally, because there may be many allocations. */
export interface JobAllocations {
  readonly namespace: string
  readonly id: string
  createIndex: number
  modifyIndex: number
  /** Of the oldest allocation. */
  createTimeMs: number
  /** Allocations by ID. */
  readonly allocations: Map<string, AllocationRecord>
  readonly groups: Map<string, JobGroup>
}

export class RosterQueries {
  readonly roster: Roster
  readonly nodeIds: OrderedIds
  readonly allocationIds: OrderedIds
  readonly #nodes = new Set<string>()
  readonly #jobs = new Map<string, JobAllocations>()
  /** Sorted keys of the jobs; undefined after a job was added or removed. */
  #jobOrder: readonly string[] | undefined
  readonly #nodeAllocationsIndex = new Map<string, number>()
  readonly #waiters = new Map<string, Set<() => void>>()
  readonly #stopListening: () => void
  #nodesIndex = 1
  #allocationsIndex = 1
  #waiterCount = 0

  constructor(roster: Roster) {
    this.roster = roster
    this.nodeIds = new OrderedIds((id) => roster.node(id) !== undefined)
    this.allocationIds = new OrderedIds((id) => roster.allocation(id) !== undefined)
    for (const { node, modifyIndex } of roster.nodes()) {
      this.#addNode(node.id)
      this.#nodesIndex = Math.max(this.#nodesIndex, modifyIndex)
    }
    for (const record of roster.allocations()) this.#addAllocation(record)
    this.#stopListening = roster.listen((change) => this.#apply(change))
  }

  stop(): void {
    this.#stopListening()
    for (const waiters of this.#waiters.values()) for (const wake of waiters) wake()
  }

  get waiterCount(): number {
    return this.#waiterCount
  }

  job(namespace: string, id: string): JobAllocations | undefined {
    return this.#jobs.get(jobKey(namespace, id))
  }

  /** In the order of namespace and ID, starting at the job with this key. */
  *jobs(options: { readonly from?: string | undefined; readonly reverse: boolean }): Generator<JobAllocations> {
    const { from, reverse } = options
    this.#jobOrder ??= [...this.#jobs.keys()].sort()
    for (const key of reverse ? this.#jobOrder.toReversed() : this.#jobOrder) {
      if (from !== undefined && (reverse ? key > from : key < from)) continue
      const job = this.#jobs.get(key)
      if (job) yield job
    }
  }

  /** `default` and the namespaces of all allocations, sorted. */
  namespaces(): string[] {
    const names = new Set(['default'])
    for (const { namespace } of this.#jobs.values()) names.add(namespace)
    return [...names].sort()
  }

  /** Index of the last change of a topic; at least 1. */
  indexOf(topic: QueryTopic): number {
    switch (topic.kind) {
      case 'nodes':
        return this.#nodesIndex
      case 'allocations':
        return this.#allocationsIndex
      case 'node':
        return this.roster.node(topic.id)?.modifyIndex ?? this.#nodesIndex
      case 'allocation':
        return this.roster.allocation(topic.id)?.modifyIndex ?? this.#allocationsIndex
      case 'node-allocations':
        return this.#nodeAllocationsIndex.get(topic.id) ?? this.roster.node(topic.id)?.createIndex ?? 1
      default:
        return this.job(topic.namespace, topic.id)?.modifyIndex ?? this.#allocationsIndex
    }
  }

  /**
   * Blocking query: resolves when the topic has changed after `index`, after the timeout, or when a signal aborts. Resolves at once
   * for an index above the roster's: it is of another server, or of this one before a restart.
   * @throws Refusal `too_many` at the limit of blocking queries.
   */
  async waitForChange(
    topic: QueryTopic,
    index: number,
    options: { readonly waitMs: number; readonly signals: readonly AbortSignal[] },
  ): Promise<void> {
    if (index <= 0 || index > this.roster.index) return
    const { signals, waitMs } = options
    const endMs = performance.now() + waitMs
    while (this.indexOf(topic) <= index && !signals.some(({ aborted }) => aborted)) {
      const leftMs = endMs - performance.now()
      if (leftMs <= 0) return
      await this.#wait(topicKey(topic), leftMs, signals)
    }
  }

  /** Counts a blocking query or event stream; returns the function that ends it. Throws a Refusal `too_many` at the limit. */
  admit(): () => void {
    if (this.#waiterCount >= WAITERS_MAX) {
      const text = `too many blocking queries and event streams (limit ${WAITERS_MAX}), try again later`
      throw new Refusal('too_many', text, { 'Retry-After': '5' })
    }
    this.#waiterCount++
    let isCounted = true
    return () => {
      if (isCounted) this.#waiterCount--
      isCounted = false
    }
  }

  async #wait(key: string, waitMs: number, signals: readonly AbortSignal[]): Promise<void> {
    const release = this.admit()
    const waiters = this.#waiters.get(key) ?? new Set()
    this.#waiters.set(key, waiters)
    const { promise, resolve } = Promise.withResolvers<void>()
    const wake = () => resolve()
    const timer = setTimeout(wake, waitMs).unref()
    for (const signal of signals) signal.addEventListener('abort', wake, { once: true })
    waiters.add(wake)
    try {
      await promise
    } finally {
      clearTimeout(timer)
      for (const signal of signals) signal.removeEventListener('abort', wake)
      waiters.delete(wake)
      if (waiters.size === 0 && this.#waiters.get(key) === waiters) this.#waiters.delete(key)
      release()
    }
  }

  #apply(change: RosterChange): void {
    if (change.kind === 'node') {
      this.#nodesIndex = change.index
      if (change.type === 'NodeDeregistration') this.#removeNode(change.key)
      else this.#addNode(change.key)
      this.#wake('nodes', `node ${change.key}`)
      return
    }
    const { record, type } = change
    const isGone = type === 'AllocationRemoved'
    const before = isGone ? record : change.before
    if (before && (isGone || !isSameJob(before, record))) this.#dropAllocation(before, change.index)
    if (isGone) this.allocationIds.remove(change.key)
    else if (before) this.#countAllocation(record)
    else this.#addAllocation(record)
    this.#allocationsIndex = change.index
    for (const { allocation, nodeId } of before ? [before, record] : [record]) {
      this.#nodeAllocationsIndex.set(nodeId, change.index)
      this.#wake(`node-allocations ${nodeId}`, `job ${jobKey(allocation.namespace, allocation.jobId)}`)
    }
    this.#wake('allocations', `allocation ${change.key}`)
  }

  /** Idempotent: a node registers again with each change of its description. */
  #addNode(id: string): void {
    if (this.#nodes.has(id)) return
    this.#nodes.add(id)
    this.nodeIds.add(id)
  }

  #removeNode(id: string): void {
    this.#nodes.delete(id)
    this.nodeIds.remove(id)
    this.#nodeAllocationsIndex.delete(id)
  }

  #addAllocation(record: AllocationRecord): void {
    this.allocationIds.add(record.allocation.id)
    this.#countAllocation(record)
  }

  #countAllocation(record: AllocationRecord): void {
    const { nodeId, modifyIndex, createIndex, allocation } = record
    const { namespace, jobId: id } = allocation
    const key = jobKey(namespace, id)
    let job = this.#jobs.get(key)
    if (!job) {
      const { createTimeMs } = allocation
      job = { namespace, id, createIndex, modifyIndex, createTimeMs, allocations: new Map(), groups: new Map() }
      this.#jobs.set(key, job)
      this.#jobOrder = undefined
    }
    const before = job.allocations.get(allocation.id)
    if (before) tally(job, before, -1)
    tally(job, record, 1)
    job.allocations.set(allocation.id, record)
    job.createTimeMs = Math.min(job.createTimeMs, allocation.createTimeMs)
    job.createIndex = Math.min(job.createIndex, createIndex)
    job.modifyIndex = Math.max(job.modifyIndex, modifyIndex)
    this.#allocationsIndex = Math.max(this.#allocationsIndex, modifyIndex)
    const known = this.#nodeAllocationsIndex.get(nodeId) ?? 0
    this.#nodeAllocationsIndex.set(nodeId, Math.max(known, modifyIndex))
  }

  #dropAllocation(record: AllocationRecord, index: number): void {
    const { allocation } = record
    const key = jobKey(allocation.namespace, allocation.jobId)
    const job = this.#jobs.get(key)
    if (!job) return
    if (job.allocations.delete(allocation.id)) tally(job, record, -1)
    job.modifyIndex = Math.max(job.modifyIndex, index)
    if (job.allocations.size > 0) return
    this.#jobs.delete(key)
    this.#jobOrder = undefined
  }

  #wake(...keys: readonly string[]): void {
    for (const key of keys) {
      const waiters = this.#waiters.get(key)
      if (!waiters) continue
      for (const wake of waiters) wake()
    }
  }
}

function tally(job: JobAllocations, record: AllocationRecord, by: 1 | -1): void {
  const { taskGroup, tasks } = record.allocation
  const group = job.groups.get(taskGroup) ?? { counts: new Map(), tasks: new Map() }
  job.groups.set(taskGroup, group)
  raise(group.counts, statusOf(record), by)
  for (const { name } of tasks) raise(group.tasks, name, by)
  if (group.counts.size === 0) job.groups.delete(taskGroup)
}

function raise<K>(counts: Map<K, number>, key: K, by: 1 | -1): void {
  const count = (counts.get(key) ?? 0) + by
  if (count > 0) counts.set(key, count)
  else counts.delete(key)
}

function isSameJob({ allocation: a }: AllocationRecord, { allocation: b }: AllocationRecord): boolean {
  return a.namespace === b.namespace && a.jobId === b.jobId
}

/** Unique, because a namespace contains no NUL. */
export function jobKey(namespace: string, id: string): string {
  return `${namespace}\0${id}`
}

function topicKey(topic: QueryTopic): string {
  switch (topic.kind) {
    case 'nodes':
    case 'allocations':
      return topic.kind
    case 'job':
      return `job ${jobKey(topic.namespace, topic.id)}`
    default:
      return `${topic.kind} ${topic.id}`
  }
}
