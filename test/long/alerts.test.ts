/**
 * The alert rules against metrics of real processes: each state is provoked, its metrics are scraped twice, and promtool
 * evaluates the rules over series that continue what was seen. A healthy pair raises no alert for a simulated day.
 */
import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { test, type TestContext } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { workDirectory } from '../helpers/agent-process.ts'
import { DR, DrServer } from '../helpers/dr-pair.ts'
import { eventually } from '../helpers/eventually.ts'
import { readExposition, type Series } from '../helpers/exposition.ts'
import { metricsOf } from '../helpers/exported-metrics.ts'
import { startNatsServer } from '../helpers/nats-server.ts'
import { fill, mountSmallDisk, unmount } from '../helpers/small-disk.ts'
import { commandsAt } from '../helpers/secrets-server.ts'

const RULES = resolve(import.meta.dirname, '../../deploy/prometheus/outpost.rules.yml')
const NAMES = new Set(readFileSync(RULES, 'utf8').match(/\b(?:outpost|nomad|process)_[a-z0-9_]+/g))
const DAY_MINUTES = 1440
/** Above the number of requests that the reserve of an audit file holds. */
const RESERVED_REQUESTS_MAX = 20_000
/** The state begins after so long without a fault, and is looked at so much later. */
const CALM_MINUTES = 60
const FAULT_MINUTES = 30
/** Between the two scrapes of a state. */
const APART_MS = 3000

interface Scrape {
  readonly atMs: number
  readonly series: ReadonlyMap<string, Series>
}

/** Two scrapes of each process that answers; undefined for other processes. */
type State = Readonly<Record<string, readonly [Scrape, Scrape] | undefined>>

interface PromtoolTest {
  readonly interval: '1m'
  readonly input_series: readonly { readonly series: string; readonly values: string }[]
  readonly promql_expr_test: readonly unknown[]
}

async function scrape(url: string): Promise<Scrape | undefined> {
  try {
    const answer = await fetch(`${url}/v1/metrics?format=prometheus`, { signal: AbortSignal.timeout(APART_MS) })
    const { series } = readExposition(await answer.text())
    const wanted = series.filter(({ name }) => NAMES.has(name))
    return { atMs: Date.now(), series: new Map(wanted.map((each) => [keyOf(each), each])) }
  } catch {
    return undefined
  }
}

function keyOf({ labels, name }: Series): string {
  return `${name}{${[...labels].map(([label, value]) => `,${label}="${value}"`).join('')}}`
}

async function seen(servers: Readonly<Record<string, string>>, between = async () => {}): Promise<State> {
  const all = () => Promise.all(Object.values(servers).map((url) => scrape(url)))
  const first = await all()
  await delay(APART_MS)
  await between()
  const second = await all()
  const pairs = Object.keys(servers).map((name, at) => {
    const [one, two] = [first[at], second[at]]
    return [name, one && two ? ([one, two] as const) : undefined] as const
  })
  return Object.fromEntries(pairs)
}

const isTime = (name: string) => name.endsWith('_timestamp_seconds')
const isCounter = (name: string) => /_(?:total|sum|count)$/.test(name)

/** The value, and how much it changes in a minute. Times are relative to the first minute of the simulation. */
function courseOf(key: string, [first, second]: readonly [Scrape, Scrape]): { value: number; perMinute: number } {
  const [one, two] = [first.series.get(key), second.series.get(key)]
  const name = two?.name ?? ''
  const value = two?.value ?? 0
  if (isTime(name)) return { value: value - second.atMs / 1000, perMinute: 0 }
  const grows = isCounter(name) || name.includes('lag_seconds')
  const minutes = (second.atMs - first.atMs) / 60_000
  return { value, perMinute: grows ? Math.max(0, (value - (one?.value ?? value)) / minutes) : 0 }
}

const stretch = (from: number, perMinute: number, minutes: number) =>
  `${from.toFixed(6)}+${perMinute.toFixed(6)}x${minutes}`

/** A calm hour, then the state. */
function seriesOf(calm: State, state: State): PromtoolTest['input_series'] {
  return Object.keys(state).flatMap((instance) => {
    const [before, now] = [calm[instance], state[instance]]
    const up = `1x${CALM_MINUTES} ${now ? 1 : 0}x${FAULT_MINUTES}`
    const keys = new Set([...(before?.[1].series.keys() ?? []), ...(now?.[1].series.keys() ?? [])])
    const rows = [...keys].map((key) => {
      const start = before?.[1].series.has(key) ? courseOf(key, before) : undefined
      const first = start ? stretch(start.value, 0, CALM_MINUTES) : `_x${CALM_MINUTES}`
      if (!now?.[1].series.has(key)) return { series: named(key, instance), values: `${first} stale` }
      const then = courseOf(key, now)
      return { series: named(key, instance), values: `${first} ${stretch(then.value, then.perMinute, FAULT_MINUTES)}` }
    })
    return [{ series: named('up{}', instance), values: up }, ...rows]
  })
}

function named(key: string, instance: string): string {
  return key.replace('{,', '{').replace('{', `{job="outpost",instance="${instance}",`).replace(',}', '}')
}

function promtool(directory: string, name: string, tests: readonly PromtoolTest[]): void {
  const file = join(directory, `${name.replaceAll(' ', '-')}.yml`)
  // JSON is YAML.
  writeFileSync(file, JSON.stringify({ rule_files: [RULES], evaluation_interval: '1m', tests }))
  const ran = spawnSync('promtool', ['test', 'rules', file], { encoding: 'utf8' })
  assert.equal(ran.status, 0, `${name}: ${ran.stdout}${ran.stderr}`)
}

/** `alerts`: those that fire half an hour after the state began, as `Name instance`, and no others. */
function raises(
  directory: string,
  name: string,
  calmThenFault: readonly [State, State],
  alerts: readonly string[],
): void {
  const fired = alerts.map((alert) => {
    const [alertname, instance] = alert.split(' ')
    return { labels: `{alertname="Outpost${alertname}",instance="${instance}"}`, value: 1 }
  })
  const firing = {
    expr: 'count by (alertname, instance) (ALERTS{alertstate="firing"} > 0) ^ 0',
    eval_time: `${CALM_MINUTES + FAULT_MINUTES}m`,
    exp_samples: fired,
  }
  promtool(directory, name, [{ interval: '1m', input_series: seriesOf(...calmThenFault), promql_expr_test: [firing] }])
}

function calmDay(directory: string, state: State): void {
  const input = Object.entries(state).flatMap(([instance, scrapes]) => {
    assert.ok(scrapes, `${instance} answers`)
    const rows = [...scrapes[1].series.keys()].map((key) => {
      const { perMinute, value } = courseOf(key, scrapes)
      return { series: named(key, instance), values: stretch(value, perMinute, DAY_MINUTES) }
    })
    return [{ series: named('up{}', instance), values: `1x${DAY_MINUTES}` }, ...rows]
  })
  const none = { expr: `count_over_time(ALERTS[${DAY_MINUTES}m])`, eval_time: `${DAY_MINUTES}m`, exp_samples: [] }
  promtool(directory, 'a healthy day', [{ interval: '1m', input_series: input, promql_expr_test: [none] }])
}

test('each alert fires in its state of real processes, and none for a healthy pair', {
  timeout: 560_000,
}, async (t) => {
  try {
    execFileSync('promtool', ['--version'], { stdio: 'ignore' })
  } catch {
    return t.skip('needs promtool: apt-get install prometheus')
  }
  const directory = workDirectory(t)
  const [data, audit] = [join(directory, 'small'), join(directory, 'small-audit')]
  const mounted = [data, audit].filter((path) => mountSmallDisk(path, 64))
  try {
    // A test of its own, so that the servers have ended when the disks go.
    await t.test('alerts fire in each state', (inner) =>
      states(inner, { directory, data, audit, hasDisks: mounted.length === 2 }),
    )
  } finally {
    mounted.forEach(unmount)
  }
})

const haSeries = (name: string, values: string, more = '') => ({
  series: `outpost_ha_${name}{job="outpost",instance="a"${more}}`,
  values,
})
/** Expects these alerts, whose names begin with `prefix`, and no others. */
function firingAlerts(prefix: string, eval_time: string, alerts: readonly string[]) {
  return {
    expr: 'count by (alertname) (ALERTS{alertstate="firing"}) ^ 0',
    eval_time,
    exp_samples: alerts.map((name) => ({ labels: `{alertname="${prefix}${name}"}`, value: 1 })),
  }
}

const haFiring = (evalTime: string, ...alerts: readonly string[]) => firingAlerts('OutpostHa', evalTime, alerts)
const certificatesFiring = (evalTime: string, ...alerts: readonly string[]) =>
  firingAlerts('OutpostCertificate', evalTime, alerts)

test('the alerts of high availability fire for their states, and none for a cluster with a short takeover', (t) => {
  try {
    execFileSync('promtool', ['--version'], { stdio: 'ignore' })
  } catch {
    return t.skip('needs promtool: apt-get install prometheus')
  }
  const input_series = [
    haSeries('has_active', '1x9 0 1x9 0x20'),
    haSeries('members', '0x20 1x20', ',role="lost"'),
    haSeries('members', '1x40', ',role="standby"'),
    haSeries('missing_replicas', '0x9 1 0x9 1x20'),
    haSeries('lag_entries', '999x20 1001x20'),
  ]
  const promql_expr_test = [haFiring('15m'), haFiring('30m', 'NoActive', 'MemberLost', 'ReplicaMissing', 'StandbyLags')]
  promtool(workDirectory(t), 'high availability', [{ interval: '1m', input_series, promql_expr_test }])
})

test('a certificate that expires is a ticket, and one that has expired is a page only', (t) => {
  try {
    execFileSync('promtool', ['--version'], { stdio: 'ignore' })
  } catch {
    return t.skip('needs promtool: apt-get install prometheus')
  }
  const series = 'outpost_certificate_days_left{certificate="http",instance="a"}'
  const promql_expr_test = [
    certificatesFiring('90m'),
    certificatesFiring('190m', 'Expires'),
    certificatesFiring('290m', 'Expired'),
  ]
  const input_series = [{ series, values: '40x99 20x99 -1x99' }]
  promtool(workDirectory(t), 'certificates', [{ interval: '1m', input_series, promql_expr_test }])
})

interface Places {
  readonly directory: string
  readonly data: string
  readonly audit: string
  readonly hasDisks: boolean
}

async function states(t: TestContext, { audit, data, directory, hasDisks }: Places): Promise<void> {
  const nats = await startNatsServer(t)
  const withNats = `}\nnats {\n servers = ["${nats.url}"]\n`
  const [a, b] = await Promise.all([
    DrServer.start(t, 'a', `replication {\n fence_after = "40s"\n }\n${withNats}`, directory),
    DrServer.start(t, 'b', withNats, directory),
  ])
  const urls = () => ({ a: a.agent.url, b: b.agent.url })
  await a.told('POST', `${DR}/primary/enable`)
  await a.told('POST', 'sys/mounts/kv', { type: 'kv', options: { version: '2' } })
  await b.told('POST', `${DR}/secondary/enable`, { token: await a.issue('b') })
  await b.follows(a)
  await b.unseal(a.keys)
  const run = commandsAt(a.agent, directory)
  assert.equal((await run(`operator snapshot save ${directory}/one.snap`, '', a.keys.token)).code, 0)
  await eventually(async () => {
    const [one, two] = await Promise.all([metricsOf(a.agent), metricsOf(b.agent)])
    return [one, two].every((each) => each.value('outpost_ready') === 1)
  }, 'both are ready')
  const write = async () => void (await a.told('POST', 'kv/data/one', { data: { a: 1 } }))
  await write()
  await delay(15_000)
  const calm = await seen(urls(), write)
  calmDay(directory, calm)
  const isAway = () =>
    eventually(async () => {
      const row = (await metricsOf(a.agent)).value('outpost_replication_secondary_connected', { secondary: 'b' })
      return row === 0
    }, 'the secondary is away')
  const away = ['Down b', 'ReplicationLag a', 'SecondaryDisconnected a']

  await t.test('frozen secondary', async () => {
    b.process.child.kill('SIGSTOP')
    try {
      await isAway()
      raises(directory, 'frozen secondary', [calm, await seen(urls())], away)
    } finally {
      b.process.child.kill('SIGCONT')
    }
    await b.follows(a)
  })

  await t.test('killed secondary, then the primary fences itself', async () => {
    await b.kill()
    await isAway()
    raises(directory, 'killed secondary', [calm, await seen(urls())], away)
    await eventually(async () => (await a.status())['state'] === 'fenced', 'it is fenced')
    raises(directory, 'fenced', [calm, await seen(urls())], [...away, 'Fenced a', 'NotReady a'])
    await b.restart()
    await b.unseal(a.keys)
    await eventually(async () => (await a.status())['state'] === 'running', 'it serves again')
    await b.follows(a)
  })

  await t.test('NATS down', async () => {
    await nats.kill()
    await eventually(async () => (await natsConnected(a)) === 0, 'it is away')
    const alerts = ['NatsDisconnected a', 'NatsDisconnected b', 'NotReady a', 'NotReady b']
    raises(directory, 'NATS down', [calm, await seen(urls())], alerts)
    await nats.restart()
    await eventually(async () => (await natsConnected(a)) === 1, 'it is back')
  })

  await t.test('second core in the region', async () => {
    const e = await DrServer.start(t, 'e', withNats, directory)
    await eventually(async () => (await coresInRegion(a)) === 2 && (await coresInRegion(b)) === 2, 'both count it')
    raises(directory, 'second core', [calm, await seen(urls())], ['SecondSecretsCore a', 'SecondSecretsCore b'])
    await e.kill()
    await eventually(async () => (await coresInRegion(a)) === 1 && (await coresInRegion(b)) === 1, 'it is forgotten')
  })

  await t.test('killed primary', async () => {
    await a.kill()
    await eventually(async () => (await b.status())['state'] !== 'stream-wals', 'the secondary has lost it')
    const alerts = ['Down a', 'NotReady b', 'ReplicationLag b', 'SecondaryNotFollowing b']
    raises(directory, 'killed primary', [calm, await seen(urls())], alerts)
    await a.restart()
  })

  await t.test('sealed', async () => {
    await eventually(async () => (await a.status())['lag_entries'] === 0, 'its secondary is back')
    await b.follows(a)
    const refused = async () => assert.equal((await a.ask('GET', 'kv/data/one')).status, 503)
    raises(directory, 'sealed', [calm, await seen(urls(), refused)], ['NotReady a', 'Sealed a'])
  })
  if (!hasDisks) return
  const alone = async (name: string, place: string) => {
    const server = await DrServer.start(t, name, '', place)
    await server.told('POST', 'sys/mounts/kv', { type: 'kv', options: { version: '2' } })
    const commands = commandsAt(server.agent, directory)
    assert.equal((await commands(`operator snapshot save ${directory}/${name}.snap`, '', server.keys.token)).code, 0)
    return server
  }

  await t.test('full disk', async () => {
    const server = await alone('c', data)
    const before = await seen({ c: server.agent.url })
    fill(data)
    await eventually(async () => (await put(server)).status === 507, 'writes fail')
    const now = await seen({ c: server.agent.url }, async () => void (await put(server)))
    raises(
      directory,
      'full disk',
      [large(before), now],
      ['DiskSpaceLow c', 'Faults c', 'NotReady c', 'StoreFailures c'],
    )
  })

  await t.test('blocked audit device', async () => {
    const server = await alone('d', directory)
    mkdirSync(join(server.directory, 'data', 'audit'), { recursive: true })
    execFileSync('mount', ['--bind', audit, join(server.directory, 'data', 'audit')])
    try {
      const file = join(server.directory, 'data', 'audit', 'audit.log')
      const commands = commandsAt(server.agent, directory)
      const enabled = await commands(`audit enable file file_path=${file}`, '', server.keys.token)
      assert.equal(enabled.code, 0, enabled.stderr)
      const before = await seen({ d: server.agent.url })
      fill(audit)
      // The reserve of the audit file holds some thousand requests.
      for (let left = RESERVED_REQUESTS_MAX; left > 0 && (await put(server)).status === 200; ) left--
      assert.equal((await put(server)).status, 500, 'requests are refused')
      const now = await seen({ d: server.agent.url }, async () => void (await put(server)))
      raises(
        directory,
        'blocked audit device',
        [before, now],
        ['AuditDiskFull d', 'AuditFailures d', 'Faults d', 'NotReady d'],
      )
    } finally {
      unmount(join(server.directory, 'data', 'audit'))
    }
  })
}

async function natsConnected({ agent }: DrServer): Promise<number | undefined> {
  return (await metricsOf(agent)).value('outpost_nats_connected')
}

async function coresInRegion({ agent }: DrServer): Promise<number | undefined> {
  return (await metricsOf(agent)).value('outpost_secrets_cores_in_region')
}

function put(server: DrServer) {
  return server.ask('POST', 'kv/data/one', { data: { a: 'x'.repeat(10_000) } })
}

/** The disk of the test is too small from the start: before, it had room. */
function large(state: State): State {
  return Object.fromEntries(
    Object.entries(state).map(([name, pair]) => [name, pair && [widened(pair[0]), widened(pair[1])]]),
  )
}

function widened(given: Scrape): Scrape {
  const rows = [...given.series].map(([key, each]) => {
    return [key, each.name === 'outpost_store_disk_free_bytes' ? { ...each, value: 1e11 } : each] as const
  })
  return { ...given, series: new Map(rows) }
}
