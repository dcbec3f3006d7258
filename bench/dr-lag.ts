/**
 * A primary with one asynchronous secondary in another process, over the real link on loopback: how long a commit exists only
 * on the primary at a steady rate, and how fast the primary commits with and without the secondary.
 */
import { join } from 'node:path'
import { Site } from '../test/helpers/replication-site.ts'
import { start, stop } from './support/child.ts'
import { alone, type Options, type Row, WrongContent } from './support/figure.ts'
import { nowMs, percentile } from './support/measure.ts'

const SECONDARY = join(import.meta.dirname, 'support/dr-secondary.ts')
const PER_SECOND = 1000
const VALUE = Buffer.alloc(1024, 7)
const IN_FLIGHT = 64
/** Target for p99 at the steady rate. */
const ASKED_MS = 100
const TIMINGS = { heartbeatMs: 1000, gatherMs: 4, startMs: 1 }

const lagOf = (primary: Site) => primary.replication.metrics.primary?.secondaries[0]?.lagEntries ?? 0

async function untilCaughtUp(primary: Site): Promise<void> {
  const deadlineMs = nowMs() + 60_000
  while (lagOf(primary) > 0 || !primary.replication.metrics.primary?.secondaries[0]?.isConnected) {
    if (nowMs() > deadlineMs) throw new WrongContent('the secondary does not catch up')
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

/** Milliseconds from the response of a commit to the acknowledgement of the secondary, with a resolution of about a millisecond. */
async function lags(primary: Site, seconds: number): Promise<number[]> {
  const waiting: { readonly sequence: number; readonly atMs: number }[] = []
  const found: number[] = []
  const look = setInterval(() => {
    const acknowledged = primary.store.position().sequence - lagOf(primary)
    const atMs = nowMs()
    while (waiting[0] && waiting[0].sequence <= acknowledged) found.push(atMs - (waiting.shift()?.atMs ?? atMs))
  }, 1)
  const beganAtMs = nowMs()
  for (let at = 0; at < PER_SECOND * seconds; ) {
    const due = Math.min(PER_SECOND * seconds, ((nowMs() - beganAtMs) * PER_SECOND) / 1000)
    for (; at < due; at++) {
      void primary.put(`steady/${at % 5000}`, VALUE).then((sequence) => waiting.push({ sequence, atMs: nowMs() }))
    }
    await new Promise((resolve) => setTimeout(resolve, 1))
  }
  await untilCaughtUp(primary)
  await new Promise((resolve) => setTimeout(resolve, 50))
  clearInterval(look)
  return found
}

async function perSecond(primary: Site, count: number): Promise<number> {
  let at = 0
  const beganAtMs = nowMs()
  const one = async () => {
    while (at < count) await primary.put(`fast/${at++ % 5000}`, VALUE)
  }
  await Promise.all(Array.from({ length: IN_FLIGHT }, one))
  return count / ((nowMs() - beganAtMs) / 1000)
}

async function figure({ quick, rounds }: Options): Promise<Row[]> {
  const over: (() => Promise<void> | void)[] = []
  const after = (work: () => Promise<void> | void) => void over.push(work)
  const primary = await Site.start({ after }, 'primary', {
    timings: TIMINGS,
    settings: { bufferBytes: 4 << 20 },
  })
  try {
    await primary.replication.enablePrimary({ primaryClusterAddr: '' })
    const issued = await primary.replication.issueSecondary({ id: 'two', ttlMs: 60_000 })
    const child = start(process.execPath, [SECONDARY, JSON.stringify('bundle' in issued ? issued.bundle : {})])
    const [p50, p99, rates, alones]: number[][] = [[], [], [], []]
    try {
      while (!primary.replication.metrics.primary?.secondaries[0])
        await new Promise((resolve) => setTimeout(resolve, 20))
      await untilCaughtUp(primary)
      for (let round = 0; round < rounds; round++) {
        const found = (await lags(primary, quick ? 2 : 10)).sort((a, b) => a - b)
        p50?.push(percentile(found, 0.5))
        p99?.push(percentile(found, 0.99))
        rates?.push(await perSecond(primary, quick ? 2000 : 20_000))
        await untilCaughtUp(primary)
        // A stopped secondary receives nothing, and the primary soon fills its window.
        child.kill('SIGSTOP')
        await perSecond(primary, 5000)
        alones?.push(await perSecond(primary, quick ? 2000 : 20_000))
        child.kill('SIGCONT')
        await untilCaughtUp(primary)
      }
    } finally {
      await stop(child, 'SIGKILL')
    }
    const asked = { name: 'ms target', runs: [ASKED_MS] }
    const peer = { name: 'writes/s, secondary stopped', runs: alones ?? [] }
    return [
      { figure: `lag at ${PER_SECOND} writes/s of 1 KiB: p50`, unit: 'ms', ours: p50 ?? [] },
      { figure: `lag at ${PER_SECOND} writes/s of 1 KiB: p99`, unit: 'ms', ours: p99 ?? [], peer: asked },
      { figure: `durable writes with a secondary, ${IN_FLIGHT} in flight`, unit: 'writes/s', ours: rates ?? [], peer },
    ]
  } finally {
    for (const work of over) await work()
  }
}

if (import.meta.main) await alone(figure)
