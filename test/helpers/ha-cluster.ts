/** A high availability cluster for one test, see `scripts/local-ha-cluster.ts`, with what faults need. */
import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { type HaClusterOptions, LocalHaCluster } from '../../scripts/local-ha-cluster.ts'
import { NamespaceNetwork, whyNoNamespaces } from './ha/namespace-network.ts'
import { clockFrom } from './ha/stepped-clock.ts'
import { OUTPOST } from './program.ts'
import { mountSmallDisk, unmount } from './small-disk.ts'

export { type HaServerProcess, LocalHaCluster, type NatsProcess } from '../../scripts/local-ha-cluster.ts'

export interface HaTestOptions extends Partial<HaClusterOptions> {
  /** Network namespaces, small disks and clocks that can be set, as far as this machine has them. */
  readonly hasFaults?: boolean
}

export interface HaTestCluster {
  readonly cluster: LocalHaCluster
  /** Undefined without namespaces. */
  readonly network: NamespaceNetwork | undefined
  /** The data of each member is on a small disk, see `diskOf`. */
  readonly hasSmallDisks: boolean
  /** Sets the wall clock of a server; undefined if its clock cannot be set. */
  readonly setClock: ((server: string, skewMs: number) => void) | undefined
}

const SERVERS = ['s1', 's2', 's3']
const NATS = ['n1', 'n2', 'n3']
const DISK_MIB = 256

/** Initialized and unsealed; it is ended after the test. */
export async function startHaCluster(t: TestContext, options: HaTestOptions = {}): Promise<HaTestCluster> {
  const directory = realpathSync(mkdtempSync(join(tmpdir(), 'outpost-ha-')))
  // In this order; hooks of the test run in the order of their registration, which is the reverse one.
  const cleanup: (() => void | Promise<void>)[] = [() => rmSync(directory, { recursive: true, force: true })]
  t.after(async () => {
    for (const step of cleanup.toReversed()) await step()
  })
  const undone = { after: (step: () => void) => void cleanup.push(step) }
  const { servers = SERVERS, nats = NATS, hasFaults = false } = options
  const members = [...servers, ...nats]
  const network = hasFaults && whyNoNamespaces() === undefined ? NamespaceNetwork.create(undone, members) : undefined
  const hasSmallDisks = hasFaults && mountDisks(undone, directory, members)
  const clockOf = (server: string) => join(directory, `clock-${server}`)
  const cluster = await LocalHaCluster.start({
    directory,
    program: OUTPOST,
    onEnd: (name, how) => t.diagnostic(`${name} has ended: ${how}\n${lastLines(join(directory, name, 'log'))}`),
    ...(network && { network }),
    ...options,
    environmentOf: (server) =>
      merged(hasFaults ? clockFrom(clockOf(server)) : {}, options.environmentOf?.(server) ?? {}),
  })
  cleanup.push(() => cluster.stop())
  const setClock = (server: string, skewMs: number) => writeFileSync(clockOf(server), String(skewMs))
  return { cluster, network, hasSmallDisks, setClock: hasFaults ? setClock : undefined }
}

type Environment = Readonly<Record<string, string>>

/** Each of them may preload a file. */
function merged(one: Environment, other: Environment): Environment {
  const [first = '', second = ''] = [one, other].map((each) => each['OUTPOST_NODE_OPTIONS'])
  return { ...one, ...other, OUTPOST_NODE_OPTIONS: `${first} ${second}`.trim() }
}

/** Of a log, which is removed with the cluster. */
function lastLines(file: string): string {
  return readFileSync(file, 'utf8').split('\n').slice(-15).join('\n')
}

/** A disk for the data of each member. False if this process may not mount. */
function mountDisks(undone: Pick<TestContext, 'after'>, directory: string, members: readonly string[]): boolean {
  for (const member of members) {
    mkdirSync(join(directory, member))
    const path = diskOf(directory, member)
    if (!mountSmallDisk(path, DISK_MIB)) return false
    undone.after(() => unmount(path))
  }
  return true
}

/** The directory of the data of a server, or of the streams of a NATS node. */
export function diskOf(directory: string, member: string): string {
  return join(directory, member, member.startsWith('n') ? 'jetstream' : 'data')
}
