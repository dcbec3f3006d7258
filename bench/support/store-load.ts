/**
 * One process that writes through a barrier at full speed, or measures the limit of the disk. Prints
 * its measurements as JSON. `write DIRECTORY IN_FLIGHT COUNT`, `limit DIRECTORY COUNT`, `fill DIRECTORY COUNT`,
 * `start DIRECTORY`, `rest DIRECTORY MS`.
 */
import { fdatasyncSync, openSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { setTimeout } from 'node:timers/promises'
import { Barrier } from '../../src/storage/barrier/barrier.ts'
import { SqliteStore } from '../../src/storage/store/store.ts'
import { percentile } from './measure.ts'

const VALUE_BYTES = 1024
const ROOT_KEY = Buffer.alloc(32, 7)
const HOLD_RESOLUTION_MS = 1

export interface Written {
  readonly perSecond: number
  readonly p50Ms: number
  readonly p99Ms: number
  /** Event loop time of a write until it is queued, 99th percentile. */
  readonly callMs: number
  /** Timer delay in this process, 99th percentile. */
  readonly lateMs: number
  readonly isWhole: boolean
}

export interface Started {
  readonly ms: number
  readonly isWhole: boolean
}

const [verb = '', directory = '', first = '0', second = '0'] = process.argv.slice(2)
const database = join(directory, 'secrets.db')

async function opened(): Promise<{ store: SqliteStore; barrier: Barrier }> {
  const store = await SqliteStore.open(database)
  const barrier = new Barrier(store)
  if (!barrier.isInitialised) await barrier.initialise(ROOT_KEY)
  barrier.unseal(ROOT_KEY)
  return { store, barrier }
}

const valueOf = (at: number) => Buffer.alloc(VALUE_BYTES, `${at} `)

function figures(times: number[], totalMs: number): Pick<Written, 'perSecond' | 'p50Ms' | 'p99Ms'> {
  const perSecond = (times.length / totalMs) * 1000
  return { perSecond, p50Ms: percentile(times, 0.5), p99Ms: percentile(times, 0.99) }
}

async function write(inFlight: number, count: number): Promise<Written> {
  const { store, barrier } = await opened()
  const times: number[] = []
  const calls: number[] = []
  let next = 0
  const worker = async () => {
    while (next < count) {
      const at = next++
      const startMs = performance.now()
      const done = barrier.commit({ puts: [{ path: `bench/${inFlight}/${at}`, value: valueOf(at) }], deletes: [] })
      calls.push(performance.now() - startMs)
      await done
      times.push(performance.now() - startMs)
    }
  }
  const hold = monitorEventLoopDelay({ resolution: HOLD_RESOLUTION_MS })
  hold.enable()
  const startMs = performance.now()
  await Promise.all(Array.from({ length: inFlight }, worker))
  const totalMs = performance.now() - startMs
  hold.disable()
  let isWhole = true
  for (let at = 0; at < count; at++) isWhole &&= barrier.get(`bench/${inFlight}/${at}`)?.equals(valueOf(at)) === true
  await store.close()
  return { ...figures(times, totalMs), callMs: percentile(calls, 0.99), lateMs: lateness(hold), isWhole }
}

function limit(count: number): Written {
  const fd = openSync(join(directory, 'limit'), 'a')
  const times: number[] = []
  const begunMs = performance.now()
  for (let at = 0; at < count; at++) {
    const startMs = performance.now()
    writeSync(fd, valueOf(at))
    fdatasyncSync(fd)
    times.push(performance.now() - startMs)
  }
  return { ...figures(times, performance.now() - begunMs), callMs: Number.NaN, lateMs: Number.NaN, isWhole: true }
}

/** Timer delay in an idle process. */
async function rest(ms: number): Promise<{ lateMs: number }> {
  const hold = monitorEventLoopDelay({ resolution: HOLD_RESOLUTION_MS })
  hold.enable()
  await setTimeout(ms)
  return { lateMs: lateness(hold) }
}

const lateness = (hold: ReturnType<typeof monitorEventLoopDelay>) => hold.percentile(99) / 1e6 - HOLD_RESOLUTION_MS

async function fill(count: number): Promise<void> {
  const { store, barrier } = await opened()
  for (let at = 0; at < count; at += 1000) {
    const puts = Array.from({ length: Math.min(1000, count - at) }, (_, index) => ({
      path: `bench/${at + index}`,
      value: valueOf(at + index),
    }))
    await barrier.commit({ puts, deletes: [] })
  }
  await store.close()
}

async function start(): Promise<Started> {
  const startMs = performance.now()
  const { store, barrier } = await opened()
  const isWhole = barrier.get('bench/0')?.equals(valueOf(0)) === true
  const ms = performance.now() - startMs
  await store.close()
  return { ms, isWhole }
}

const print = (result: object) => process.stdout.write(JSON.stringify(result))
if (verb === 'write') print(await write(Number(first), Number(second)))
else if (verb === 'limit') print(limit(Number(first)))
else if (verb === 'rest') print(await rest(Number(first)))
else if (verb === 'start') print(await start())
else await fill(Number(first))
