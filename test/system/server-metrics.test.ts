/**
 * The metrics of a server, with a real NATS server that goes away and comes back and a core that is sealed and opened.
 * Before there were any, no metric told either of them.
 */
import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { test, type TestContext } from 'node:test'
import { startAgent, workDirectory } from '../helpers/agent-process.ts'
import { metricsOf } from '../helpers/exported-metrics.ts'
import { type NatsServer, startNatsServer } from '../helpers/nats-server.ts'
import { commandsAt, jsonOf } from '../helpers/secrets-server.ts'
import { AwsEndpoint } from '../helpers/aws/endpoint.ts'
import { eventually } from '../helpers/eventually.ts'
import { prometheusName } from '../../scripts/reference.ts'
import { METRIC_DOCS } from '../../src/telemetry/metric-docs.ts'

const ALLOCATION = 'd3b07384-d9a0-4c9b-8f3e-0123456789ab'
/** Only a DR primary has them: see dr-health.test.ts. */
const OF_SECONDARIES = 'outpost_replication_secondary_'
/** This server has no certificate, and no other server: see tls.test.ts and clock-skew.test.ts. */
const ELSEWHERE = new Set(['outpost_certificate_days_left', 'outpost_server_clock_skew_seconds'])
/** Metrics of other servers: a primary with secondaries, a server of a highly available core. */
const isElsewhere = (name: string) =>
  ELSEWHERE.has(name) || name.startsWith(OF_SECONDARIES) || name.startsWith('outpost_ha_')
const RULES = resolve(import.meta.dirname, '../../deploy/prometheus/outpost.rules.yml')
const METRIC = /\b(?:outpost|nomad|process)_[a-z0-9_]+/g
/** Labels that all metrics of a host have, and the bounds of histograms. */
const COMMON_LABELS = ['host', 'datacenter', 'node_class', 'node_id', 'node_pool', 'le']

function configOf(directory: string, nats: NatsServer): string {
  writeAllocation(join(directory, 'data', 'alloc', ALLOCATION))
  const file = join(directory, 'server.hcl')
  const lines = [
    `data_dir = "${directory}/data"`,
    'ports {\n http = 0\n cluster = 0\n}',
    `server {\n enabled = true\n snapshot {\n path = "${directory}/backups"\n }\n}\nclient { enabled = true }`,
    `nats { servers = ["${nats.url}"] }`,
    // It never succeeds, and has metrics all the same.
    `secrets {\n role_id = "none"\n secret_id_file = "${directory}/none"\n}`,
  ]
  writeFileSync(file, `${lines.join('\n')}\n`)
  return file
}

/** A server in this process, with its own metrics. */
function writeAllocation(directory: string): void {
  mkdirSync(directory, { recursive: true })
  const task = { State: 'running', Failed: false, StartedAt: new Date().toISOString(), FinishedAt: null }
  const manifest = {
    ID: ALLOCATION,
    Name: 'web.api[0]',
    Namespace: 'default',
    JobID: 'web',
    TaskGroup: 'api',
    DesiredStatus: 'run',
    ClientStatus: 'running',
    CreateTime: Date.now() * 1e6,
    Tasks: { server: { ...task, Pids: [process.pid], LogsDisabled: false, MaxFiles: 10, MaxFileSizeMB: 10 } },
  }
  writeFileSync(join(directory, 'alloc.json'), JSON.stringify(manifest))
}

/** Roles of AWS have metrics of their own: a session that is shared, a refusal, a revoked user. */
async function useCloud(t: TestContext, run: (line: string) => Promise<unknown>) {
  const aws = await AwsEndpoint.open(t)
  const { key } = aws.root()
  const arn = aws.account.addRole('deploy')
  const endpoints = `iam_endpoint=${aws.url} sts_endpoint=${aws.url}`
  await run('secrets enable cloud')
  await run(`write cloud/config/root access_key=${key.id} secret_key=${key.secret} ${endpoints}`)
  await run(`write cloud/roles/deploy credential_type=assumed_role role_arns=${arn} cache_ttl=10m`)
  await run('write cloud/roles/user credential_type=iam_user policy_arns=arn:aws:iam::aws:policy/ReadOnlyAccess')
  for (let at = 0; at < 2; at++) await run('read cloud/creds/deploy')
  await run('write cloud/creds/deploy role_arn=arn:aws:iam::1:role/none')
  await run('write cloud/creds/user wait=false')
  await run('lease revoke -prefix cloud/creds/user')
}

async function openServer(t: TestContext) {
  const nats = await startNatsServer(t)
  const directory = workDirectory(t)
  const config = configOf(directory, nats)
  const agent = await startAgent(t, ['-config', config])
  return { nats, directory, config, agent, run: commandsAt(agent, directory) }
}

test('a server exports metrics of its seal, its NATS connection and its store', async (t) => {
  const { agent, config, directory, nats, run } = await openServer(t)
  const metrics = () => metricsOf(agent)
  const becomes = (name: string, wanted: number, labels = {}) =>
    eventually(async () => (await metrics()).value(name, labels) === wanted, `${name} becomes ${wanted}`)

  await t.test('the seal metrics distinguish not initialized, sealed and unsealed', async () => {
    let seen = await metrics()
    const states = () =>
      ['initialized', 'sealed', 'active'].map((state) => seen.value(`outpost_secrets_${state}`)).join()
    assert.equal(states(), '0,1,0')
    const made = await jsonOf(run, 'operator init -key-shares=1 -key-threshold=1')
    seen = await metrics()
    assert.equal(states(), '1,1,0')
    const [key] = made['unseal_keys_b64'] as string[]
    assert.equal((await run(`operator unseal ${key}`)).code, 0)
    seen = await metrics()
    assert.equal(states(), '1,0,1')
    const token = String(made['root_token'])
    await run('token create', '', token)
    await run('secrets enable -path=app -version=2 kv', '', token)
    await useCloud(t, (line) => run(line, '', token))
    assert.equal((await run(`audit enable file file_path=${directory}/data/audit/audit.log`, '', token)).code, 0)
    assert.equal((await run('write sys/quotas/rate-limit/few path=cubbyhole/ rate=1 interval=1h', '', token)).code, 0)
    for (let at = 0; at < 2; at++) await run('read cubbyhole/none', '', token)
    await run('kv put app/one a=1', '', token)
    await run('kv get app/none', '', token)
    await run('kv get app/one', '', 'no-such-token')
    seen = await metrics()
    const requests = (labels: Record<string, string>) => seen.value('outpost_secrets_requests_total', labels) ?? 0
    assert.ok(requests({ mount: 'app/', verb: 'write', status: '2xx' }) >= 1)
    assert.ok(requests({ mount: 'app/', verb: 'read', status: '4xx' }) >= 1)
    assert.ok(requests({ mount: 'sys/', verb: 'write', status: '2xx' }) >= 1)
    await becomes('outpost_quota_exceeded_total', 1, { name: 'few' })
    await becomes('outpost_tokens', 2)
    assert.equal((await run(`operator snapshot save ${directory}/one.snap`, '', token)).code, 0)
  })

  await t.test('the store metrics count commits', async () => {
    const seen = await metrics()
    const commits = seen.value('outpost_store_commits_total') ?? 0
    const transactions = seen.value('outpost_store_commit_seconds_count') ?? 0
    assert.ok(commits >= 3 && transactions >= 3 && transactions <= commits, `${transactions} of ${commits}`)
    assert.ok((seen.value('outpost_store_commit_seconds_sum') ?? 0) > 0)
    for (const name of ['bytes', 'log_bytes', 'disk_free_bytes']) {
      assert.ok((seen.value(`outpost_store_${name}`) ?? 0) > 0, name)
    }
    for (const reason of ['full', 'failed', 'busy', 'fenced', 'replica', 'displaced', 'closed']) {
      assert.equal(seen.value('outpost_store_failures_total', { reason }), 0, reason)
    }
    const savedAt = seen.value('outpost_snapshot_last_success_timestamp_seconds') ?? 0
    assert.ok(Math.abs(Date.now() / 1000 - savedAt) < 120)
  })

  await t.test('the NATS metrics show a lost connection and its recovery', async () => {
    await becomes('outpost_nats_connected', 1)
    await becomes('outpost_nodes', 1, { status: 'ready' })
    assert.equal((await metrics()).value('outpost_nats_reconnects_total'), 0)
    await nats.kill()
    await becomes('outpost_nats_connected', 0)
    await nats.restart()
    await becomes('outpost_nats_connected', 1)
    assert.equal((await metrics()).value('outpost_nats_reconnects_total'), 1)
    assert.ok(((await metrics()).value('outpost_node_messages_total', { result: 'taken' }) ?? 0) >= 1)
  })

  await t.test('each metric has documentation with its kind and labels, and no other metric is exported', async () => {
    const {
      faults,
      kinds,
      labels: labelsByFamily,
      names,
    } = await eventually(async () => {
      const seen = await metrics()
      // The first look at the host and its tasks may not be over yet.
      const known = ['nomad_client_host_disk_size', 'nomad_client_allocs_memory_rss']
      return known.every((name) => seen.names.includes(name)) && seen
    }, 'the host and its tasks were looked at')
    assert.deepEqual(faults, [])
    const described = new Map(Object.entries(METRIC_DOCS).map(([name, doc]) => [prometheusName(name, doc), doc]))
    assert.deepEqual(
      names.filter((name) => !described.has(name)),
      [],
      'metrics without a description',
    )
    assert.deepEqual(
      [...described.keys()].filter((name) => !isElsewhere(name) && !names.includes(name)),
      [],
      'descriptions without a metric',
    )
    for (const name of names) {
      const { kind, labels = [] } = described.get(name) ?? { kind: undefined }
      assert.ok(kinds.get(name) === kind || kinds.get(name) === 'untyped', `${name} is a ${kinds.get(name)}`)
      const unknown = [...(labelsByFamily.get(name) ?? [])].filter(
        (label) => !labels.includes(label) && !COMMON_LABELS.includes(label),
      )
      assert.deepEqual(unknown, [], `labels of ${name}`)
    }
  })

  await t.test('the alert rules name only metrics that are exported', async () => {
    const { names } = await metrics()
    const rules = readFileSync(RULES, 'utf8')
    const named = [...rules.matchAll(/expr: '(.*)'$/gm)].flatMap(([, expr = '']) => expr.match(METRIC) ?? [])
    assert.ok(named.length >= 30, `${named.length} names`)
    const unknown = named.filter((name) => {
      const family = name.replace(/_(sum|count|bucket)$/, '')
      return !isElsewhere(name) && !names.includes(family) && !names.includes(name)
    })
    assert.deepEqual(unknown, [])
  })

  await t.test('the JSON form has the same metrics after its interval', async () => {
    interface Picture {
      Gauges: { Name: string; Value: number }[]
      Counters: { Name: string }[]
      Samples: { Name: string }[]
    }
    const seen = { gauges: new Map<string, number>(), counters: new Set<string>(), samples: new Set<string>() }
    await eventually(
      async () => {
        const picture = (await (await fetch(`${agent.url}/v1/metrics`)).json()) as Picture
        for (const { Name, Value } of picture.Gauges) seen.gauges.set(Name, Value)
        for (const { Name } of picture.Counters) seen.counters.add(Name)
        for (const { Name } of picture.Samples) seen.samples.add(Name)
        await run('kv put app/one a=2', '', 'no-such-token')
        return (
          seen.gauges.get('outpost.secrets.sealed') === 0 &&
          seen.gauges.get('outpost.nats.connected') === 1 &&
          seen.gauges.has('outpost.store.disk_free_bytes') &&
          seen.counters.has('outpost.secrets.requests')
        )
      },
      'the JSON form shows the state',
      undefined,
      500,
    )
  })

  await t.test('the time of the last snapshot is known after a restart', async () => {
    const before = (await metrics()).value('outpost_snapshot_last_success_timestamp_seconds')
    agent.child.kill('SIGTERM')
    await agent.ended
    const again = await startAgent(t, ['-config', config])
    const seen = await metricsOf(again)
    assert.equal(seen.value('outpost_snapshot_last_success_timestamp_seconds'), before)
    assert.equal(seen.value('outpost_secrets_sealed'), 1)
    assert.equal(seen.value('outpost_tokens'), undefined)
  })
})
