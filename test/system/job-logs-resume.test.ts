/** `outpost job logs -f` while its server and a host are killed and come back: no line is lost, and none is repeated. */
import '../helpers/short-timings.ts'
import assert from 'node:assert/strict'
import { appendFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { OUTPOST, start } from '../cli/outpost-process.ts'
import { makeAllocation } from '../helpers/allocation.ts'
import { allocIdOf, startCluster } from '../helpers/cluster.ts'
import { setTimeout as sleep } from 'node:timers/promises'
import { TIMINGS } from '../../src/cluster/nats/timings.ts'
import { eventually } from '../helpers/eventually.ts'

/** Lines of each log between two events. */
const LINES = 200
const PHASES = 5

test('following a job resumes exactly after a break of the server, of a host and of NATS', {
  timeout: 240_000,
}, async (t) => {
  const world = await startCluster(t, { hosts: 2 })
  const ids = [allocIdOf(0), allocIdOf(1)] as const
  for (const at of [0, 1]) {
    const allocations = join(world.host(at).member.dataDir, 'alloc')
    makeAllocation(allocations, allocIdOf(at), { JobID: 'shop', Name: `shop.web[${at}]`, TaskGroup: 'web' })
  }
  const { url } = world.server()
  await eventually(async () => {
    const answer = await fetch(`${url}/v1/job/shop/allocations`)
    return answer.ok && ((await answer.json()) as unknown[]).length === 2
  }, 'the server knows both')
  let written = 0
  const write = () => {
    for (const at of [0, 1]) {
      const lines = Array.from({ length: LINES }, (_, line) => `${written + line} of ${at}\n`)
      // A line that is continued later: a break is in the middle of it.
      appendFileSync(join(world.host(at).logs, 'web.stdout.0'), `${lines.join('')}${written + LINES}`)
    }
    written += LINES + 1
  }
  const finishLine = () => {
    for (const at of [0, 1]) appendFileSync(join(world.host(at).logs, 'web.stdout.0'), ` of ${at}\n`)
  }
  for (const at of [0, 1]) writeFileSync(join(world.host(at).logs, 'web.stdout.0'), '')
  write()
  const env = { ...process.env, OUTPOST_ADDR: url, HOME: '/' }
  const following = start(OUTPOST, ['job', 'logs', '-f', '-json', '-since', '2020-01-01T00:00:00Z', 'shop'], { env })
  let [rest, stderr] = ['', '']
  const lines = new Map<string, string[]>(ids.map((id) => [id, []]))
  following.child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    const complete = (rest + text).split('\n')
    rest = complete.pop() ?? ''
    for (const each of complete) {
      const { AllocID, Line } = JSON.parse(each) as { AllocID: string; Line: string }
      lines.get(AllocID)?.push(Line)
    }
  })
  following.child.stderr?.setEncoding('utf8').on('data', (text: string) => (stderr += text))
  t.after(() => void following.child.kill('SIGKILL'))
  const linesOf = (id: string) => lines.get(id) ?? []
  const arrived = async (count: number) => {
    await eventually(
      () => ids.every((id) => linesOf(id).length >= count),
      () => `${count} lines, got ${ids.map((id) => linesOf(id).length).join(' and ')}: ${stderr}`,
    )
    for (const [at, id] of ids.entries()) {
      assert.deepEqual(
        linesOf(id),
        Array.from({ length: count }, (_, line) => `${line} of ${at}`),
      )
    }
  }
  await arrived(LINES)
  await world.server().kill()
  finishLine()
  write()
  await eventually(() => /connection to \S+ lost \(.*\), resuming/.test(stderr), 'the outage is reported')
  await world.server().start()
  await arrived(2 * LINES + 1)
  await eventually(() => /^outpost: resumed$/m.test(stderr), 'and its end')
  const { member } = world.host(1)
  await member.kill()
  finishLine()
  write()
  await eventually(
    () => stderr.includes(`allocation ${ids[1]}: log failed`),
    () => `the host is missing: ${stderr}`,
  )
  await member.start()
  await arrived(3 * LINES + 2)
  // Both at once.
  await Promise.all([world.server().kill(), member.kill()])
  finishLine()
  write()
  await Promise.all([world.server().start(), member.start()])
  finishLine()
  await arrived(4 * LINES + 4)
  const outages = stderr.length
  await world.nats.kill()
  write()
  await eventually(() => /log failed: 50[34]/.test(stderr.slice(outages)), 'NATS is missing')
  // The server retries meanwhile.
  await sleep(2 * TIMINGS.logRetryMs)
  await world.nats.restart()
  finishLine()
  await arrived(PHASES * LINES + PHASES)
  following.child.kill('SIGINT')
  assert.equal((await following.finished).code, 0, stderr)
})
