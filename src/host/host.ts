/**
 * The host module: allocations of this machine, their files, logs and statistics, and the node's metadata.
 *
 * An *allocation* is a directory `<alloc_dir>/<uuid>/` whose supervisor (`outpost alloc run` or another one) describes it in
 * `alloc.json`. This module only reads what supervisors write. `allocations/` has a snapshot of each allocation; `files/` opens
 * their paths without leaving their directories; `logs/` follows logs and files; `stats/` samples the machine and the tasks;
 * `node/` has the node's ID, key, metadata and fingerprint; `gc/` removes allocations that have ended.
 *
 * A stream has a source (`logs/follow/stream-source`): a file (`single-file`), a rotated log (`log-cursor`), several
 * (`merged-logs`), or logs that are read once (`log-reader`). It starts at the position that `log-selection`, `resume` or
 * `single-file` finds. `stream-serving` steps the source, `line-stage` selects lines, `stream-encoder` encodes frames.
 *
 * Promises. Nothing outside an allocation's directory is read or listed, and no content of `secrets/` or `private/`, regardless
 * of links, races and letter case. A follower gets every written byte, in order, with exact offsets, across rotation and
 * truncation. Followers of one file share a descriptor, a watch and a read; a slow one costs its own buffers and does not delay
 * others. Acknowledged metadata updates are durable. Statistics are at most two seconds old. Every descriptor is closed on every
 * path.
 *
 * Assumptions. Only the operator and supervisors write to `<alloc_dir>` itself; tasks may write anything below their own
 * directory; /proc is mounted.
 *
 * Failure modes. No inotify watches left: followers and the registry poll and log it once. No descriptors left: new readers get
 * 503. Invalid manifest: that allocation is logged and the others are served. Full disk: only metadata updates are refused.
 *
 * The module imports no other one: the operations authorize calls with the identity that they receive.
 */
import { statfsSync } from 'node:fs'
import type { Logger } from '../platform/log.ts'
import type { AnyOperation } from '../platform/operation.ts'
import type { Allocation, AllocationTable } from './allocations/allocation.ts'
import { AllocationRegistry } from './allocations/allocations.ts'
import { CollectedRecords } from './allocations/collected-records.ts'
import { Followers } from './logs/follow/followers.ts'
import { GarbageCollector, type GcSettings } from './gc/gc.ts'
import { hostOperations } from './host-operations.ts'
import { builtInMeta, NodeMetadata } from './node/metadata.ts'
import { createFingerprint, type NodeFacts } from './node/fingerprint.ts'
import { StatsSampler } from './stats/sampler.ts'
import { HostState } from './node/state.ts'
import { lockState } from './node/state-lock.ts'

export interface HostOptions {
  readonly allocDir: string
  readonly stateDir: string
  readonly nodeId?: string
  readonly staticMeta: Readonly<Record<string, string>>
  readonly version: string
  readonly gc: GcSettings
  /** 0 means no limit. */
  readonly followersMax: number
  readonly sampleIntervalMs: number
  /** Delay of the full fingerprint, which starts child processes; half a minute unless set. */
  readonly fingerprintAfterMs?: number
  readonly logger: Logger
}

/** After the start, when all followers reconnect at once: nothing waits for the full fingerprint. */
const FINGERPRINT_AFTER_MS = 30_000

/** Description of this host in the roster of the servers. */
export interface HostDescription {
  readonly attributes: Readonly<Record<string, string>>
  readonly meta: Readonly<Record<string, string>>
  readonly cpuMhz: number
  readonly cores: number
  readonly memoryBytes: number
  /** Size of the allocation directory's file system; 0 if unknown. */
  readonly diskBytes: number
  /** Without collected ones. */
  readonly allocations: readonly Allocation[]
}

/** A running host module. */
export interface Host {
  readonly nodeId: string
  readonly operations: readonly AnyOperation[]
  readonly allocations: AllocationRegistry
  readonly followers: Followers
  readonly sampler: StatsSampler
  readonly collector: GarbageCollector
  readonly metadata: NodeMetadata

  describe(): HostDescription
  /** PEM of the private Ed25519 key of this node. Never log it. */
  readonly signingKey: string
  stop(): Promise<void>
}

/** Opens the state, scans all allocations and starts the background tasks. Rejects with a Fault. */
export async function startHost(options: HostOptions): Promise<Host> {
  await using begun = new AsyncDisposableStack()
  const lock = await lockState(options.stateDir, options.logger.named('state'))
  begun.defer(() => lock.release())
  const host = await startLocked(options, begun)
  const undo = begun.move()
  return { ...host, stop: () => undo.disposeAsync() }
}

/** Registers in `begun` how to stop each part, in reverse order. */
async function startLocked(options: HostOptions, begun: AsyncDisposableStack): Promise<Omit<Host, 'stop'>> {
  const { logger, allocDir, stateDir } = options
  const state = await HostState.open({
    stateDir,
    log: logger.named('state'),
    ...(options.nodeId === undefined ? {} : { nodeId: options.nodeId }),
  })
  const staticMeta = { ...builtInMeta(options.version), ...options.staticMeta }
  const metadata = await NodeMetadata.open({ state, staticMeta, log: logger.named('metadata') })
  const collected = await CollectedRecords.open({ stateDir, allocDir, log: logger.named('gc') })
  const allocations = new AllocationRegistry({ allocDir, collected, log: logger.named('allocations') })
  begun.defer(() => allocations.stop())
  await allocations.start()
  const sampler = new StatsSampler({
    allocations,
    allocDir: allocations.allocDir,
    sampleIntervalMs: options.sampleIntervalMs,
    log: logger.named('stats'),
  })
  sampler.start()
  const collector = new GarbageCollector({ allocations, collected, settings: options.gc, log: logger.named('gc') })
  collector.start()
  begun.defer(() => collector.stop())
  begun.defer(() => sampler.stop())
  const followers = new Followers({ limit: options.followersMax, logger: logger.named('followers') })
  const { nodeId } = state
  const fingerprint = createFingerprint({ log: logger.named('fingerprint') })
  // The full fingerprint takes a third of a second of CPU and 35 child processes, so it does not delay the start and does not
  // run if the host stops at once. Until then the description has fewer attributes.
  const asking = setTimeout(() => void fingerprint.complete(), options.fingerprintAfterMs ?? FINGERPRINT_AFTER_MS)
  asking.unref()
  begun.defer(() => clearTimeout(asking))
  return {
    nodeId,
    allocations,
    followers,
    sampler,
    collector,
    metadata,
    describe: () => describeHost({ facts: fingerprint.nodeFacts(), metadata, allocations, allocDir: options.allocDir }),
    signingKey: state.nodeKeyPem,
    operations: hostOperations({ allocations, followers, sampler, metadata, collector, nodeId }),
  }
}

function describeHost(host: {
  facts: NodeFacts
  metadata: Pick<NodeMetadata, 'view'>
  allocations: AllocationTable
  allocDir: string
}): HostDescription {
  const { facts } = host
  return {
    attributes: facts.attributes,
    meta: host.metadata.view().Meta,
    cpuMhz: facts.totalComputeMhz,
    cores: facts.cores,
    memoryBytes: facts.memoryMb * 1024 * 1024,
    diskBytes: fileSystemBytes(host.allocDir),
    allocations: [...host.allocations.all()].filter(({ collected }) => !collected),
  }
}

function fileSystemBytes(directory: string): number {
  try {
    const { blocks, bsize } = statfsSync(directory)
    return blocks * bsize
  } catch {
    return 0
  }
}
