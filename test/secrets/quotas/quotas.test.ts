/** Rate-limit quotas through the core: rule selection, refusals, and the state after a restart. */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { callerNetwork } from '../../../src/engines/framework/cidr.ts'
import { ANONYMOUS } from '../../../src/secrets/request/authorization.ts'
import { AddressRate } from '../../../src/secrets/quotas/address-rate.ts'
import { type RateLimit, QuotaBuckets } from '../../../src/secrets/quotas/quota-buckets.ts'
import { RULES_MAX } from '../../../src/secrets/quotas/quotas.ts'
import { type AskOptions, CoreWorld } from '../../helpers/core-world.ts'
import { openKv } from '../../helpers/kv-world.ts'
import { reopened } from '../token-world.ts'

async function set(world: CoreWorld, name: string, rule: object): Promise<void> {
  const answer = await world.ask('POST', `sys/quotas/rate-limit/${name}`, rule, OPERATOR)
  assert.equal(answer.status, 204, answer.text)
}

/** An address of its own, so that no rule of the tests is used up by the test's own work. */
const OPERATOR: AskOptions = { remote: '10.99.0.1' }

/** How many of ten requests were answered. */
async function passed(world: CoreWorld, path: string, options: AskOptions = {}, method = 'GET'): Promise<number> {
  let count = 0
  for (let at = 0; at < 10; at++) if ((await world.ask(method, path, undefined, options)).status !== 429) count++
  return count
}

async function opened(t: TestContext): Promise<CoreWorld> {
  const world = await openKv(t)
  assert.equal((await world.ask('POST', 'secret/data/app', { data: { a: 1 } }, OPERATOR)).status, 200)
  return world
}

test('a quota is written, read, listed and removed', async (t) => {
  const world = await opened(t)
  assert.equal((await world.ask('LIST', 'sys/quotas/rate-limit')).status, 404)
  await set(world, 'app', { path: '/secret//data/app/', rate: '2.5', interval: '1m', block_interval: 30 })
  await set(world, 'all', { rate: 1000 })
  const { data } = (await world.ask('GET', 'sys/quotas/rate-limit/app')).body
  assert.deepEqual(data, {
    type: 'rate-limit',
    name: 'app',
    path: 'secret/data/app',
    role: '',
    rate: 2.5,
    interval: 60,
    block_interval: 30,
    group_by: 'ip',
    inheritable: false,
  })
  assert.deepEqual((await world.ask('LIST', 'sys/quotas/rate-limit')).body.data, { keys: ['all', 'app'] })
  assert.equal((await world.ask('DELETE', 'sys/quotas/rate-limit/app')).status, 204)
  assert.equal((await world.ask('DELETE', 'sys/quotas/rate-limit/app')).status, 204)
  assert.equal((await world.ask('GET', 'sys/quotas/rate-limit/app')).status, 404)
  assert.deepEqual((await world.ask('LIST', 'sys/quotas/rate-limit')).body.data, { keys: ['all'] })
})

test('an invalid rule is refused and changes nothing', async (t) => {
  const world = await opened(t)
  await set(world, 'app', { path: 'secret/data/app', rate: 1 })
  for (const [rule, text] of [
    [{ rate: 0 }, /'rate' is invalid/],
    [{ rate: -1 }, /'rate' is invalid/],
    [{ rate: 'many' }, /expected a number/],
    [{ rate: 1, interval: '-1s' }, /negative/],
    [{ rate: 1, path: 'nowhere/x' }, /invalid mount path "nowhere\/x"/],
    [{ rate: 1, path: 'secret/../sys' }, /relative paths/],
    [{ rate: 1, path: 'auth/token', role: 'r' }, /does not support use with role-based quotas/],
    [{ rate: 1, group_by: 'entity' }, /'group_by' is invalid/],
    [{ rate: 1, path: 'secret/data/APP' }, /similar properties exists under the name "app"/],
  ] as const) {
    const answer = await world.ask('POST', 'sys/quotas/rate-limit/other', rule)
    assert.equal(answer.status, 400, answer.text)
    assert.match(answer.body.errors.join(), text)
  }
  assert.equal((await world.ask('POST', 'sys/quotas/rate-limit/a%20b', { rate: 1 })).status, 400)
  assert.deepEqual((await world.ask('LIST', 'sys/quotas/rate-limit')).body.data, { keys: ['app'] })
})

test('only the most specific rule applies', async (t) => {
  const world = await opened(t)
  await set(world, 'all', { rate: 9, interval: '1h' })
  assert.equal(await passed(world, 'cubbyhole/x', { remote: '10.0.0.1' }), 9)
  assert.equal(await passed(world, 'sys/mounts', { remote: '10.0.0.1' }), 0, 'one bucket for everything')
  await set(world, 'mount', { path: 'secret', rate: 7, interval: '1h' })
  assert.equal(await passed(world, 'secret/data/app', { remote: '10.0.0.1' }), 7)
  await set(world, 'prefix', { path: 'secret/data/*', rate: 5, interval: '1h' })
  await set(world, 'longer', { path: 'secret/data/team/*', rate: 4, interval: '1h' })
  await set(world, 'exact', { path: 'secret/data/app', rate: 2, interval: '1h' })
  assert.equal(await passed(world, 'secret/data/app', { remote: '10.0.0.2' }), 2)
  assert.equal(await passed(world, 'secret/data/other', { remote: '10.0.0.2' }), 5)
  assert.equal(await passed(world, 'secret/data/team/x', { remote: '10.0.0.2' }), 4)
  assert.equal(await passed(world, 'secret/metadata/app', { remote: '10.0.0.2' }), 7)
})

test('a refused caller gets Retry-After and is served after that time', async (t) => {
  const world = await opened(t)
  await set(world, 'app', { path: 'secret', rate: 2, interval: '10s' })
  const asked = () => world.ask('GET', 'secret/data/app')
  assert.equal((await asked()).headers['X-Ratelimit-Limit'], undefined, 'headers are sent only if enabled')
  await asked()
  const over = await asked()
  assert.equal(over.status, 429)
  assert.equal(over.text, '{"errors":["request path \\"secret/data/app\\": rate limit quota exceeded"]}\n')
  assert.equal(over.headers['Retry-After'], '5')
  world.nowMs += 5000
  assert.equal((await asked()).status, 200)
  assert.equal((await asked()).status, 429)
  assert.equal((await world.ask('POST', 'sys/quotas/config', { enable_rate_limit_response_headers: true })).status, 204)
  world.nowMs += 10_000
  const { headers } = await asked()
  assert.equal(headers['X-Ratelimit-Limit'], '2')
  assert.equal(headers['X-Ratelimit-Remaining'], '1')
  assert.equal(headers['X-Ratelimit-Reset'], '5')
  world.setClock(86_400_000)
  assert.equal(await passed(world, 'secret/data/app'), 1, 'a clock that is set gives no requests')
})

test('a blocked caller stays blocked for the block interval', async (t) => {
  const world = await opened(t)
  await set(world, 'app', { path: 'secret', rate: 1, interval: '1s', block_interval: '60s' })
  assert.equal(await passed(world, 'secret/data/app'), 1)
  world.nowMs += 30_000
  const blocked = await world.ask('GET', 'secret/data/app')
  assert.deepEqual([blocked.status, blocked.headers['Retry-After']], [429, '30'])
  world.nowMs += 30_000
  assert.equal((await world.ask('GET', 'secret/data/app')).status, 200, 'asking does not make it longer')
})

test('each address and each IPv6 /64 network has its own bucket, and unknown addresses share one', async (t) => {
  const world = await opened(t)
  await set(world, 'app', { path: 'secret', rate: 3, interval: '1h' })
  assert.equal(await passed(world, 'secret/data/app', { remote: '10.0.0.1' }), 3)
  assert.equal(await passed(world, 'secret/data/app', { remote: '10.0.0.2' }), 3)
  assert.equal(await passed(world, 'secret/data/app', { remote: '2001:db8::1' }), 3)
  assert.equal(await passed(world, 'secret/data/app', { remote: '2001:db8::ffff:1' }), 0)
  assert.equal(await passed(world, 'secret/data/app', { remote: '2001:db8:0:1::1' }), 3)
  await set(world, 'app', { path: 'secret', rate: 3, interval: '1h', group_by: 'none' })
  assert.equal(await passed(world, 'secret/data/app', { remote: '10.0.0.1' }), 3, 'a changed rule starts a new count')
  assert.equal(await passed(world, 'secret/data/app', { remote: '10.0.0.2' }), 0)
})

test('exempt paths are not counted, and the list of them can be changed', async (t) => {
  const world = await opened(t)
  await set(world, 'all', { rate: 1, interval: '1h' })
  for (const path of ['sys/health', 'sys/seal-status', 'sys/generate-root/attempt']) {
    assert.equal(await passed(world, path), 10, path)
  }
  assert.equal(await passed(world, 'sys/mounts'), 1)
  const change = { rate_limit_exempt_paths: 'sys/quotas/*,/sys/mounts/' }
  assert.equal((await world.ask('POST', 'sys/quotas/config', change, OPERATOR)).status, 204)
  assert.equal(await passed(world, 'sys/mounts'), 10)
  assert.equal(await passed(world, 'sys/health', { remote: '10.0.0.7' }), 1)
  const { data } = (await world.ask('GET', 'sys/quotas/config')).body
  assert.deepEqual(data, {
    enable_rate_limit_audit_logging: false,
    enable_rate_limit_response_headers: false,
    rate_limit_exempt_paths: ['sys/quotas/*', 'sys/mounts'],
  })
})

test('rules survive a restart, move with their mount, and have no effect without it', async (t) => {
  const world = await opened(t)
  await set(world, 'app', { path: 'secret/data/app', rate: 1, interval: '1h' })
  await world.ask('POST', 'sys/quotas/config', { enable_rate_limit_response_headers: true })
  await world.close()
  const next = await reopened(t, world, { engines: world.core.options.engines })
  assert.equal((await next.ask('GET', 'sys/quotas/config')).body.data['enable_rate_limit_response_headers'], true)
  assert.equal(await passed(next, 'secret/data/app'), 1)
  assert.equal((await next.ask('POST', 'sys/remount', { from: 'secret', to: 'moved' }, OPERATOR)).status, 200)
  assert.equal(await passed(next, 'moved/data/app'), 0, 'it counts on')
  assert.equal((await next.ask('GET', 'sys/quotas/rate-limit/app')).body.data['path'], 'moved/data/app')
  assert.equal((await next.ask('DELETE', 'sys/mounts/moved')).status, 204)
  assert.equal((await next.ask('GET', 'sys/quotas/rate-limit/app')).status, 404)
  await set(next, 'app', { rate: 100 })
})

test('refusals are counted by name for at most 100 rules', async (t) => {
  const world = await opened(t)
  const { quotas } = world.core.open
  for (let at = 0; at < 103; at++) await set(world, `q${at}`, { path: `secret/data/${at}`, rate: 1, interval: '1h' })
  for (let at = 0; at < 103; at++) await passed(world, `secret/data/${at}`)
  const counts = quotas.exceeded()
  assert.equal(counts.length, 101)
  assert.deepEqual(
    counts.find(({ name }) => name === 'other'),
    { name: 'other', count: 27 },
  )
  await world.ask('DELETE', 'sys/quotas/rate-limit/q0', undefined, OPERATOR)
  assert.equal(quotas.exceeded().find(({ name }) => name === 'other')?.count, 36)
})

test('the number of rules is limited', async (t) => {
  const world = await opened(t)
  const rule = {
    mount: '',
    rate: 1,
    intervalSeconds: 1,
    blockSeconds: 0,
    groupBy: 'ip',
    inheritable: true,
    revision: 1,
  }
  const rules = Array.from({ length: RULES_MAX }, (_, at) => ({ ...rule, name: `q${at}`, suffix: `${at}` }))
  const value = Buffer.from(JSON.stringify(rules))
  await world.core.open.storage.commit({ puts: [{ path: 'core/quotas/rate-limit', value }], deletes: [] })
  const answer = await world.ask('POST', 'sys/quotas/rate-limit/more', { path: 'secret', rate: 1 }, OPERATOR)
  assert.match(answer.text, /at most 1000 quotas/)
})

test('the number of buckets is limited, and the fullest of the least recently used is evicted', () => {
  const limit: RateLimit = { capacity: 10, tokensPerMs: 1e-6, blockMs: 0 }
  const buckets = new QuotaBuckets(1000)
  for (let at = 0; at < 10; at++) buckets.take('greedy', limit, 0)
  assert.equal(buckets.take('greedy', limit, 0).isAllowed, false)
  for (let at = 0; at < 5000; at++) buckets.take(`caller ${at}`, limit, 0)
  assert.equal(buckets.size, 1000)
  assert.equal(buckets.take('greedy', limit, 0).isAllowed, false, 'other buckets were evicted')
})

test('a bucket that is unused for a long time holds no more than its capacity', () => {
  const limit: RateLimit = { capacity: 3, tokensPerMs: 1, blockMs: 0 }
  const buckets = new QuotaBuckets(10)
  buckets.take('caller', limit, 0)
  const allowed = Array.from({ length: 5 }, () => buckets.take('caller', limit, 1_000_000).isAllowed)
  assert.deepEqual(allowed, [true, true, true, false, false])
})

test('full buckets of a flood are removed by later requests', () => {
  const limit: RateLimit = { capacity: 2, tokensPerMs: 1, blockMs: 0 }
  const most = 5000
  const buckets = new QuotaBuckets(most)
  for (let at = 0; at < most * 2; at++) buckets.take(`caller ${at}`, limit, 0)
  assert.equal(buckets.size, most)
  for (let at = 0; at < most; at++) buckets.take('later', limit, 1_000_000 + at)
  for (let at = 0; at < most; at++) buckets.take(`new ${at}`, limit, 2_000_000 + at * 10)
  assert.ok(buckets.size < 100, String(buckets.size))
})

test('all spellings of an address are one caller', () => {
  for (const [address, network] of [
    ['10.0.0.1', '10.0.0.1'],
    ['::ffff:10.0.0.1', '10.0.0.1'],
    ['::1', '0:0:0:0::/64'],
    ['fe80::1%eth0', 'fe80:0:0:0::/64'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
    ['2001:0DB8:0001:2::', '2001:db8:1:2::/64'],
    ['64:ff9b::10.0.0.1', '64:ff9b:0:0::/64'],
  ] as const) {
    assert.equal(callerNetwork(address), network)
  }
})

test('all addresses of an IPv6 /64 network share one rate', () => {
  const rate = new AddressRate(2, 'attempts', () => 0)
  const ask = (remote: string) => rate.check({ caller: ANONYMOUS.caller, remote, sudo: false })
  ask('2001:db8:1:2::1')
  ask('2001:db8:1:2:ffff::2')
  assert.throws(() => ask('2001:db8:1:2:3:4:5:6'), /more than 2 attempts in a minute/)
  ask('2001:db8:1:3::1')
  ask('10.0.0.1')
  ask('::ffff:10.0.0.1')
  assert.throws(() => ask('10.0.0.1'), /more than 2 attempts/)
})
