/**
 * Cost of 100,000 leases: a start, the simultaneous expiry of all of them during other requests, and the revocation of 10,000 by
 * prefix. Runs a core in this process on a real database, with an engine that has nothing to revoke.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Engine, path } from '../src/engines/framework/engine.ts'
import { inPath, integer } from '../src/engines/framework/fields.ts'
import { CoreWorld } from '../test/helpers/core-world.ts'
import { alone, type Options, plainNumber, type Row, WrongContent } from './support/figure.ts'
import { nowMs, percentile } from './support/measure.ts'

const MANY = 100_000
const PREFIXED = 10_000
const AT_ONCE = 64

const lender: Engine = {
  type: 'lender',
  description: 'gives leases',
  paths: [
    path({
      pattern: 'creds/:role',
      summary: 'A lease',
      fields: { role: inPath('Any'), ttl: integer('Seconds', { fallback: 60 }) },
      read: ({ ttl }) => ({ data: {}, lease: { ttlSeconds: ttl, maxTtlSeconds: 0, renewable: true, internal: {} } }),
    }),
  ],
  revoke: () => undefined,
  isRevokedInside: () => true,
}

/** CPU of this process per lease since `before`, including the writer thread and garbage collection. */
function cpuSince(before: NodeJS.CpuUsage, count: number): string {
  const { system, user } = process.cpuUsage(before)
  return `${plainNumber((user + system) / count)} µs of CPU a lease`
}

async function give(world: CoreWorld, count: number, role: string, ttl: number): Promise<void> {
  let at = 0
  const one = async () => {
    while (at < count) {
      at++
      const { status, text } = await world.ask('GET', `lent/creds/${role}?ttl=${ttl}`)
      if (status !== 200) throw new WrongContent(text)
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, one))
}

async function opened(directory: string, world: CoreWorld): Promise<[CoreWorld, number]> {
  await world.close()
  const beganMs = nowMs()
  const again = await CoreWorld.reopen(directory, world.keys, { engines: [lender], nowMs: world.nowMs })
  return [again, nowMs() - beganMs]
}

export async function leases(options: Options): Promise<Row[]> {
  const many = options.quick ? MANY / 10 : MANY
  const prefixed = options.quick ? PREFIXED / 4 : PREFIXED
  const directory = mkdtempSync(join(tmpdir(), 'outpost-bench-leases-'))
  let world = await CoreWorld.create(directory, { engines: [lender] })
  try {
    await world.ask('POST', 'sys/mounts/lent', { type: 'lender' })
    let emptyMs: number
    let manyMs: number
    ;[world, emptyMs] = await opened(directory, world)
    await give(world, prefixed, 'prefixed', 100_000)
    const [beganMs, prefixCpu] = [nowMs(), process.cpuUsage()]
    const answer = await world.ask('PUT', 'sys/leases/revoke-prefix/lent/creds/prefixed')
    const prefixMs = nowMs() - beganMs
    const prefixNote = cpuSince(prefixCpu, prefixed)
    if (answer.status !== 204) throw new WrongContent(answer.text)
    await give(world, many, 'many', 3600)
    ;[world, manyMs] = await opened(directory, world)
    world.nowMs += 3_700_000
    const [endedAtMs, sweepCpu, times] = [nowMs(), process.cpuUsage(), [] as number[]]
    let isOver = false
    const sweep = world.core.open.leases.expiry.tick().finally(() => (isOver = true))
    const beside = async () => {
      for (;;) {
        if (isOver) return
        const askedMs = nowMs()
        await world.ask('GET', 'auth/token/lookup-self')
        times.push(nowMs() - askedMs)
        await new Promise((resolve) => setTimeout(resolve, 5))
      }
    }
    await Promise.all([sweep, beside()])
    const sweepMs = nowMs() - endedAtMs
    const sweepNote = cpuSince(sweepCpu, many)
    const { leases: left } = await world.core.open.leases.counts()
    if (left !== 0) throw new WrongContent(`${left} leases remain`)
    return [
      { figure: `${prefixed} leases revoked by prefix`, unit: 'ms', ours: [prefixMs], note: prefixNote },
      { figure: `start with ${many} leases`, unit: 'ms', ours: [manyMs], peer: { name: 'ms, none', runs: [emptyMs] } },
      { figure: `${many} expired leases, revoked together`, unit: 'ms', ours: [sweepMs], note: sweepNote },
      { figure: 'token lookup meanwhile, p99', unit: 'ms', ours: [percentile(times, 0.99)] },
    ]
  } finally {
    await world.close()
    rmSync(directory, { recursive: true, force: true })
  }
}

if (import.meta.main) await alone(leases)
