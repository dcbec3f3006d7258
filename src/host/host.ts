/**
 * The host room: what this machine can tell about its allocations, and do for them.
 *
 * An *allocation* is a directory `<alloc_dir>/<uuid>/` whose supervisor (`outpost alloc run`, or any other) describes it
 * in `alloc.json`. The room only ever reads what supervisors write. `allocations` keeps a picture of each; `alloc-files`
 * and `beneath` open a path of one without ever leaving it; `files`, `content`, `stream` and `logs` are the endpoints on
 * top; `sampler` measures the machine and the tasks; `metadata` and `state` hold what the node is called and tagged;
 * `gc` removes what has ended.
 *
 * A stream has a source (`stream-source`): a file (`one-file`), a rotated log (`log-cursor`) or several (`merged-logs`,
 * `logs-once`), beginning where `file-start`, `log-selection` and `log-resume` find that it should. `stream-serving` asks
 * it step by step; `line-stage` picks lines out of what comes, where they are asked for; `stream-encoder` makes frames.
 *
 * Promises. Nothing outside an allocation's directory is read or listed, and no content of `secrets/` or `private/`,
 * whatever links, races or letter case are tried. A follower gets every byte that is written, in order, with exact
 * offsets, across rotation and truncation. Followers of one file share one descriptor, one watch and one read; a slow
 * one costs its own buffers and nobody else anything. What was acknowledged about metadata is on the disk. Statistics
 * are at most two seconds old. Every descriptor is closed on every way out.
 *
 * Assumes that only the operator and supervisors write to `<alloc_dir>` itself, that tasks write anything they like
 * below their own directory, and that /proc is mounted.
 *
 * What can go wrong. No file watches left: followers and the registry poll, and say so once. Descriptors used up: 503
 * for new readers. A manifest that makes no sense: that allocation is reported and the others are served. A disk that is
 * full: metadata changes are refused, nothing else is. The room never imports another one: who calls and who may is
 * decided by the operations with the identity they are handed.
 */
import { statfsSync } from 'node:fs'
import type { Logger } from '../platform/log.ts'
import type { AnyOperation } from '../platform/operation.ts'
import type { Allocation, AllocationTable } from './allocations/allocation.ts'
import { AllocationRegistry } from './allocations/allocations.ts'
import { CollectedRecords } from './allocations/collected.ts'
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
  /** When the machine is asked what only child processes can tell; half a minute after the start unless given. */
  readonly fingerprintAfterMs?: number
  readonly logger: Logger
}

/** Behind the rush of a start, when all who followed come back at once: nothing waits for what the machine is made of. */
const FINGERPRINT_AFTER_MS = 30_000

/** Description of this host in the roster of the servers. */
export interface HostDescription {
  readonly attributes: Readonly<Record<string, string>>
  readonly meta: Readonly<Record<string, string>>
  readonly cpuMhz: number
  readonly cores: number
  readonly memoryBytes: number
  /** Of the file system that allocations are on; 0 where that cannot be told. */
  readonly diskBytes: number
  /** Those whose directories are still there. */
  readonly allocations: readonly Allocation[]
}

/** A running host: its endpoints, and how to stop it. */
export interface Host {
  readonly nodeId: string
  readonly operations: readonly AnyOperation[]
  readonly allocations: AllocationRegistry
  readonly followers: Followers
  readonly sampler: StatsSampler
  readonly collector: GarbageCollector
  readonly metadata: NodeMetadata
  /** What this host is and has, as of now. */
  describe(): HostDescription
  /** PEM of the Ed25519 key that this node speaks with. Never shown. */
  readonly signingKey: string
  stop(): Promise<void>
}

/** Opens state, looks at all allocations and starts what runs in the background. Rejects with a Fault for the operator. */
export async function startHost(options: HostOptions): Promise<Host> {
  await using begun = new AsyncDisposableStack()
  const lock = await lockState(options.stateDir, options.logger.named('state'))
  begun.defer(() => lock.release())
  const host = await startLocked(options, begun)
  const undo = begun.move()
  return { ...host, stop: () => undo.disposeAsync() }
}

/** `begun` gets what ends each part; the newest is to end first. */
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
    intervalMs: options.sampleIntervalMs,
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
  // It takes a third of a second of CPU and 35 child processes: not in the way of the start, and not for a host that is
  // stopped at once. Until its answer the description is shorter.
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
