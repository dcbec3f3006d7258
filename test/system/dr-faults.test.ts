/** A primary with two secondaries, through faults of one of these: a clock that is wrong and a disk that is full. */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { workDirectory } from '../helpers/agent-process.ts'
import { DR, DrServer } from '../helpers/dr-pair.ts'
import { eventually } from '../helpers/eventually.ts'
import { readinessOf } from '../helpers/exported-metrics.ts'
import { commandsAt } from '../helpers/secrets-server.ts'
import { skewedBy } from '../helpers/skewed-clock.ts'
import { empty, fill, mountSmallDisk, unmount } from '../helpers/small-disk.ts'

const HOUR_MS = 3_600_000
/** Less than what keeps a secondary from joining. */
const SKEW_MS = 200_000
const DISK_MIB = 48
/** A server whose clock was ahead once does not believe an earlier time. */
const LONG = { ttl: '3h' }

interface World {
  readonly a: DrServer
  readonly b: DrServer
  readonly c: DrServer
}

test('secondaries recover from faults', { timeout: 240_000 }, async (t) => {
  const directory = workDirectory(t)
  const disk = join(directory, 'c')
  const isMounted = mountSmallDisk(disk, DISK_MIB)
  try {
    const [a, b, c] = await Promise.all([
      DrServer.startHere(t, 'a', '', directory),
      DrServer.startHere(t, 'b', '', directory),
      DrServer.start(t, 'c', '', directory, skewedBy(HOUR_MS)),
    ])
    const world = { a, b, c }
    await a.told('POST', `${DR}/primary/enable`)
    await a.told('POST', 'sys/mounts/kv', { type: 'kv', options: { version: '2' } })
    await t.test('a clock skew of an hour prevents a join, and one of minutes is reported', () => skewed(world))
    await t.test('a secondary that was frozen does not blame its primary, nor the reverse', () => frozen(world))
    await t.test('a full disk of a secondary delays no other, and it continues once there is space', (of) =>
      isMounted ? onFullDisk(world, disk) : of.skip('needs the right to mount'),
    )
  } finally {
    if (isMounted) unmount(disk)
  }
})

function warns(server: DrServer, pattern: RegExp): Promise<unknown> {
  const isShown = async () => (await readinessOf(server.agent)).warnings.some((text) => pattern.test(text))
  return eventually(isShown, String(pattern))
}

async function skewed(world: World): Promise<void> {
  const { a, b, c } = world
  const refused = await c.ask('POST', `${DR}/secondary/enable`, { token: await a.issue('c', LONG) })
  assert.equal(refused.status, 400, refused.text)
  assert.match(refused.text, /clocks of this cluster and of the primary differ by 3[56]\d\d s/)
  await c.told('GET', 'auth/token/lookup-self')
  await c.kill()
  c.env = skewedBy(SKEW_MS)
  await c.restart()
  await c.unseal(c.keys)
  await Promise.all(
    [b, c].map(async (one) => {
      const token = await a.issue(one === b ? 'b' : 'c', LONG)
      await one.told('POST', `${DR}/secondary/enable`, { token })
      await one.follows(a)
      await one.unseal(a.keys)
    }),
  )
  await eventually(async () => {
    const rows = (await a.status())['secondaries'] as Record<string, string>[]
    const skewMs = Number(rows.find(({ node_id: id }) => id === 'c')?.['clock_skew_ms'])
    return Math.abs(skewMs - SKEW_MS) < SKEW_MS / 2
  }, 'the skew is reported')
  const tail = String.raw`: synchronize both clocks \(NTP\)$`
  await warns(a, new RegExp(String.raw`^clock of DR secondary "c" is \d+ s ahead of this server${tail}`))
  await warns(c, new RegExp(String.raw`^clock of this host is \d+ s ahead of the DR primary at ${a.agent.url}${tail}`))
  const status = await commandsAt(c.agent, c.directory)('status')
  assert.match(status.stderr, /^warning: clock of this host is \d+ s ahead of the DR primary/m)
  assert.match(c.process.stderr(), /"@level":"warn".*clock skew to the DR primary/)
  assert.deepEqual((await readinessOf(b.agent)).warnings, [], 'its clock is right')
}

async function frozen({ a, c }: World): Promise<void> {
  const { child, stderr } = c.process
  const before = stderr().length
  child.kill('SIGSTOP')
  const isGone = async () => {
    const rows = (await a.status())['secondaries'] as Record<string, string>[]
    return Number(rows.find(({ node_id: id }) => id === 'c')?.['disconnected_seconds']) > 2
  }
  // Longer than a busy machine delays a process.
  await eventually(isGone, 'the primary has no message from it').finally(() => child.kill('SIGCONT'))
  await eventually(() => stderr().slice(before).includes('replication from primary interrupted'), 'it was interrupted')
  const [line] = /.*replication from primary interrupted.*/.exec(stderr().slice(before)) ?? []
  assert.match(String(line), /"error":"this process was stopped for \d+ s \(frozen, or its machine was paused\)/)
  assert.doesNotMatch(stderr().slice(before), /no message from the primary/)
  await c.follows(a)

  // The primary is in this process, which does not run for longer than its secondary waits for a heartbeat.
  const seen = a.agent.stderr().length
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 8000)
  const reason = /DR secondary disconnected.*"id":"c".*"reason":"this process was stopped for \d+ s/
  await eventually(() => reason.test(a.agent.stderr().slice(seen)), 'the primary does not blame its secondary')
  await c.follows(a)
}

async function onFullDisk(world: World, disk: string): Promise<void> {
  const { a, b, c } = world
  let count = 0
  try {
    await eventually(async () => {
      fill(disk)
      await a.told('POST', `kv/data/large/${++count}`, { data: { value: 'x'.repeat(500_000) } })
      return /the disk of this secondary is full/.test(String((await c.status())['trouble']))
    }, 'the status says so')
    assert.ok(!JSON.stringify(await c.status()).includes(disk), 'no path of the machine')
    assert.equal(await c.health(), 472)
    await b.follows(a)
  } finally {
    empty(disk)
  }
  await c.follows(a)
}
