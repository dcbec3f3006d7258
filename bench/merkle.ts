/**
 * The Merkle tree and copies of a store, without a network: cost of the tree for a durable write of 1 KiB through
 * barrier and store, in CPU time of all threads and in writes a second, compared with the same writes without it; duration of a
 * copy of many secrets into an empty store, compared with a copy of the file with a sync; duration of a check of all entries,
 * and the latency of a write meanwhile.
 */
import { closeSync, copyFileSync, fsyncSync, openSync } from 'node:fs'
import { join } from 'node:path'
import { Barrier } from '../src/storage/barrier/barrier.ts'
import { SqliteStore } from '../src/storage/store/store.ts'
import { removeDirectory, temporaryDirectory } from './support/child.ts'
import { alone, type Options, type Row, WrongContent } from './support/figure.ts'
import { inTurn, percentile } from './support/measure.ts'

const ROOT_KEY = Buffer.alloc(32, 7)
const VALUE_BYTES = 1024
const IN_FLIGHT = 64
const SECRETS = 100_000
/** Per round. Rounds are short, so that other load of the machine affects both sides. */
const WRITES = 512
const PIECE_ENTRIES = 1000
const EVERY_SUBPAGE: ReadonlySet<number> = new Set(Array.from({ length: 65_536 }, (_, subpage) => subpage))

interface Side {
  readonly store: SqliteStore
  readonly barrier: Barrier
  readonly cpuUs: number[]
  readonly perSecond: number[]
  written: number
}

async function opened(directory: string, name: string): Promise<Side> {
  const store = await SqliteStore.open(join(directory, `${name}.db`))
  const barrier = new Barrier(store)
  await barrier.initialise(ROOT_KEY)
  barrier.unseal(ROOT_KEY)
  return { store, barrier, cpuUs: [], perSecond: [], written: 0 }
}

/** Entries that a write of a versioned secret changes: a new version, the metadata of the secret, and the head that the barrier adds. */
async function round(side: Side): Promise<void> {
  const cpu = process.cpuUsage()
  const beganMs = performance.now()
  const end = side.written + WRITES
  const worker = async () => {
    while (side.written < end) {
      const at = side.written++
      const version = { path: `bench/versions/${at}`, value: Buffer.alloc(VALUE_BYTES, `${at} `) }
      const metadata = { path: `bench/metadata/${(at * 7919) % 4000}`, value: Buffer.alloc(300, `${at} `) }
      await side.barrier.commit({ puts: [version, metadata], deletes: [] })
    }
  }
  await Promise.all(Array.from({ length: IN_FLIGHT }, worker))
  const { system, user } = process.cpuUsage(cpu)
  side.cpuUs.push((system + user) / WRITES)
  side.perSecond.push((WRITES / (performance.now() - beganMs)) * 1000)
}

async function kept(options: Options): Promise<Row[]> {
  const directory = temporaryDirectory()
  const [without, with_] = [await opened(directory, 'without'), await opened(directory, 'with')]
  try {
    await with_.store.tree.enable()
    const rounds = options.quick ? 3 : 40
    await inTurn(rounds, [() => round(without), () => round(with_)])
    const { isRootCorrupted } = await with_.store.tree.check()
    if (isRootCorrupted) throw new WrongContent('the tree does not match the entries')
    const name = 'without the tree'
    return [
      {
        figure: 'CPU of a durable write with the tree',
        unit: 'us',
        ours: with_.cpuUs,
        peer: { name, runs: without.cpuUs },
      },
      {
        figure: 'durable writes with the tree',
        unit: 'writes/s',
        ours: with_.perSecond,
        peer: { name, runs: without.perSecond },
      },
    ]
  } finally {
    await Promise.all([without.store.close(), with_.store.close()])
    removeDirectory(directory)
  }
}

async function copyAll(primary: SqliteStore, replica: SqliteStore): Promise<void> {
  await replica.setRole('replica')
  await replica.tree.enable()
  await replica.beginCopy(primary.position())
  let writing: Promise<void> = Promise.resolve()
  for (let after: string | undefined = ''; after !== undefined; ) {
    const page: Awaited<ReturnType<typeof primary.tree.leaves>> = await primary.tree.leaves(
      EVERY_SUBPAGE,
      after,
      PIECE_ENTRIES,
    )
    const { entries, missing } = primary.entriesAt(page.leaves.map(({ path }) => path))
    await writing
    writing = replica.copyEntries(entries, missing)
    after = page.after
  }
  await writing
  await replica.finishCopy()
  if (!(await replica.tree.root()).equals(await primary.tree.root())) throw new WrongContent('the copy differs')
}

function copyFile(from: string, to: string): number {
  const beganMs = performance.now()
  copyFileSync(from, to)
  const fd = openSync(to, 'r+')
  fsyncSync(fd)
  closeSync(fd)
  return (performance.now() - beganMs) / 1000
}

async function copies(options: Options): Promise<Row[]> {
  const directory = temporaryDirectory()
  const secrets = options.quick ? 4000 : SECRETS
  const { store: primary } = await opened(directory, 'primary')
  try {
    for (let at = 0; at < secrets; at += 1000) {
      const puts = Array.from({ length: 1000 }, (_, index) => {
        return { path: `bench/${at + index}`, value: Buffer.alloc(VALUE_BYTES, `${at + index} `) }
      })
      await primary.commit({ puts, deletes: [] })
    }
    await primary.tree.enable()
    const [copied, files, looks, waits]: [number[], number[], number[], number[]] = [[], [], [], []]
    let count = 0
    await inTurn(Math.max(options.rounds, 3), [
      async () => {
        const replica = await SqliteStore.open(join(directory, `replica-${count++}.db`))
        const beganMs = performance.now()
        await copyAll(primary, replica)
        copied.push((performance.now() - beganMs) / 1000)
        await replica.close()
      },
      async () => void files.push(copyFile(primary.path, join(directory, `file-${count++}`))),
      async () => void looks.push(await look(primary, waits)),
    ])
    const peer = { name: 's, a copy of the file with a sync', runs: files }
    return [
      {
        figure: `copy of ${secrets} secrets of 1 KiB into an empty store, by comparison`,
        unit: 's',
        ours: copied,
        peer,
      },
      { figure: `check of ${secrets} secrets during commits`, unit: 's', ours: looks, peer },
      { figure: 'single durable write during such a check: p99', unit: 'ms', ours: waits },
    ]
  } finally {
    await primary.close()
    removeDirectory(directory)
  }
}

async function look(store: SqliteStore, waits: number[]): Promise<number> {
  const beganMs = performance.now()
  const state = { isOver: false }
  const looking = store.tree.check().finally(() => (state.isOver = true))
  const times: number[] = []
  for (let at = 0; !state.isOver; at++) {
    const startMs = performance.now()
    await store.commit({ puts: [{ path: 'bench/other', value: Buffer.alloc(VALUE_BYTES, `${at} `) }], deletes: [] })
    times.push(performance.now() - startMs)
  }
  if ((await looking).isRootCorrupted) throw new WrongContent('the tree does not match the entries')
  waits.push(percentile(times, 0.99))
  return (performance.now() - beganMs) / 1000
}

export async function merkle(options: Options): Promise<Row[]> {
  return [...(await kept(options)), ...(await copies(options))]
}

await alone(merkle)
