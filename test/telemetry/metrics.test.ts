/** `/v1/metrics`: both forms, against real requests, followers and allocations. */
import assert from 'node:assert/strict'
import { rmSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { isIncluded } from '../../src/telemetry/metric.ts'
import { Metrics, type MetricsSnapshot } from '../../src/telemetry/metrics.ts'
import { prometheusText } from '../../src/telemetry/prometheus.ts'
import { agentMetrics } from '../../src/telemetry/metrics-operation.ts'
import { RequestMeter } from '../../src/telemetry/request-metrics.ts'
import { agentFamilies } from '../../src/daemon/monitoring/host-metrics.ts'
import { type Edge, startEdge } from '../helpers/edge.ts'
import { readExposition } from '../helpers/exposition.ts'
import { recordingLogger } from '../host/allocations/host-fixture.ts'
import { ask } from '../helpers/raw-http.ts'
import { ALLOC, makeAllocation, UNKNOWN } from '../helpers/allocation.ts'
import { eventually } from '../helpers/eventually.ts'

const LABELS = { all: { host: 'h' }, node: { node_id: 'n', datacenter: 'dc1' } }
const PUBLISH = { publishNodeMetrics: true, publishAllocationMetrics: true }

interface Measured extends Edge {
  readonly metrics: Metrics
  readonly value: (name: string, labels?: Readonly<Record<string, string>>) => Promise<number | undefined>
}

async function startMeasured(t: TestContext, options: { textForm?: boolean } = {}): Promise<Measured> {
  const meter = new RequestMeter()
  const part: { edge?: Edge } = {}
  const metrics = new Metrics({
    meter,
    families: () =>
      agentFamilies({
        host: part.edge?.host,
        publish: PUBLISH,
        connections: part.edge?.listener.connections,
        reloads: { done: 0, refused: 0 },
      }),
    refresh: () => Promise.resolve(),
    completed: () => undefined,
    labels: LABELS,
    filter: { prefixes: [], otherwise: true },
    logger: recordingLogger(),
  })
  const operation = agentMetrics.in({ metrics, textForm: options.textForm ?? true })
  const edge = await startEdge(t, { meter, operations: [operation] })
  part.edge = edge
  return {
    ...edge,
    metrics,
    async value(name, labels = {}) {
      const { faults, series } = readExposition(await metrics.text())
      assert.deepEqual(faults, [])
      const wanted = Object.entries(labels)
      return series.find((one) => one.name === name && wanted.every(([key, value]) => one.labels.get(key) === value))
        ?.value
    },
  }
}

test('requests are counted by operation and status class, and by no value that a caller chooses', async (t) => {
  const { port, value, metrics } = await startMeasured(t)
  await ask(port, 'GET', `/v1/client/fs/ls/${ALLOC}?path=/`)
  await ask(port, 'GET', `/v1/client/fs/ls/${UNKNOWN}?path=/`)
  for (let i = 0; i < 50; i++) await ask(port, 'GET', `/nowhere/${i}`)
  await eventually(
    async () => (await value('outpost_http_requests_total', { operation: 'none' })) === 50,
    'all are over',
  )
  assert.equal(await value('outpost_http_requests_total', { operation: 'host.fs_ls', status: '2xx' }), 1)
  assert.equal(await value('outpost_http_requests_total', { operation: 'host.fs_ls', status: '4xx' }), 1)
  assert.equal(await value('outpost_http_request_duration_seconds_count', { operation: 'host.fs_ls' }), 2)
  assert.equal(await value('nomad_client_file_system_list_count'), 2)
  assert.equal(await value('outpost_http_requests_underway', { operation: 'none' }), 0)
  const text = await metrics.text()
  assert.ok(!text.includes('nowhere') && !text.includes(UNKNOWN))
})

test('the bytes and the lag of a follower are counted while it follows', async (t) => {
  const { port, value, directory, host } = await startMeasured(t)
  const size = 32 << 20
  writeFileSync(join(directory, 'alloc/logs/web.stdout.0'), Buffer.alloc(size, 'a line\n'))
  const socket = connect({ port, host: '127.0.0.1' })
  t.after(() => socket.destroy())
  socket.pause()
  socket.write(`GET /v1/client/fs/logs/${ALLOC}?task=web&follow=true HTTP/1.1\r\nHost: x\r\n\r\n`)
  const lag = () => host.followers.metrics().log.lagBytes
  await eventually(() => lag() > 0 && lag() < size, 'it has got something and is behind')
  assert.equal(await value('outpost_followers', { kind: 'log' }), 1)
  assert.equal(await value('outpost_followers', { kind: 'file' }), 0)
  assert.ok(((await value('outpost_follower_lag_max_bytes', { kind: 'log' })) ?? 0) > 1 << 20)
  assert.ok(((await value('outpost_http_sent_bytes_total', { operation: 'host.logs' })) ?? 0) > 0)
  assert.equal(await value('outpost_http_requests_underway', { operation: 'host.logs' }), 1)
  socket.resume()
  await eventually(() => lag() === 0, 'it has everything')
  assert.ok(((await value('outpost_http_sent_bytes_total', { operation: 'host.logs' })) ?? 0) > size)
  socket.destroy()
  await eventually(
    async () => (await value('outpost_http_requests_underway', { operation: 'host.logs' })) === 0,
    'gone',
  )
  assert.equal(await value('outpost_followers', { kind: 'log' }), 0)
  assert.equal(await value('outpost_http_request_duration_seconds_count', { operation: 'host.logs' }), 0, 'no duration')
})

test('metrics of the host and of tasks equal the statistics, and those of removed tasks are removed', async (t) => {
  const { value, host, allocDir, metrics } = await startMeasured(t)
  const other = 'a1b2c3d4-0000-4000-8000-000000000002'
  const started = new Date(Date.now() - process.uptime() * 1000).toISOString()
  makeAllocation(allocDir, other, {
    JobID: 'a "job"\n',
    Tasks: { web: { State: 'running', StartedAt: started, Pids: [process.pid] } },
  })
  await eventually(
    async () => (await value('nomad_client_allocs_memory_rss', { alloc_id: other })) !== undefined,
    'rss',
  )
  assert.ok(((await value('nomad_client_allocs_memory_rss', { alloc_id: other, job: 'a "job"\n' })) ?? 0) > 1 << 20)
  const stats = await host.sampler.hostStats()
  assert.equal(await value('nomad_client_host_memory_total', { node_id: 'n', host: 'h' }), stats.Memory.Total)
  assert.equal(await value('outpost_alloc_dir_size'), stats.AllocDirStats.Size)
  assert.equal(await value('nomad_client_allocations_running'), 2)
  rmSync(join(allocDir, other), { recursive: true })
  await eventually(async () => !(await metrics.text()).includes(other), 'its series are gone')
  assert.equal(await value('nomad_client_allocations_running'), 1)
})

test('JSON has gauges, counter increments and durations of an interval', async (t) => {
  const { port, metrics, host } = await startMeasured(t)
  await eventually(() => host.sampler.latestHostStats(), 'the host was looked at')
  metrics.complete()
  for (let i = 0; i < 3; i++) await ask(port, 'GET', `/v1/client/fs/ls/${ALLOC}?path=/`)
  await eventually(
    async () => (await metrics.text()).includes('operation="host.fs_ls",status="2xx"} 3'),
    'all are over',
  )
  metrics.complete()
  const answer = await ask(port, 'GET', '/v1/metrics')
  assert.equal(answer.headers.get('content-type'), 'application/json')
  const snapshot = JSON.parse(answer.body.toString()) as MetricsSnapshot
  assert.deepEqual(Object.keys(snapshot), ['Counters', 'Gauges', 'Points', 'PrecisionGauges', 'Samples', 'Timestamp'])
  assert.match(snapshot.Timestamp, /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+0000 UTC$/)
  const listed = snapshot.Samples.find(({ Name }) => Name === 'nomad.client.file_system.list')
  assert.ok(listed)
  assert.deepEqual(Object.keys(listed), ['Count', 'Labels', 'Max', 'Mean', 'Min', 'Name', 'Rate', 'Stddev', 'Sum'])
  assert.equal(listed.Count, 3)
  assert.ok(listed.Min > 0 && listed.Min <= listed.Mean && listed.Mean <= listed.Max)
  assert.ok(Math.abs(listed.Rate - listed.Sum / 10) < 1e-9)
  assert.deepEqual(listed.Labels, { host: 'h', node_id: 'n', datacenter: 'dc1' })
  const grown = snapshot.Counters.find(
    ({ Name, Labels }) => Name === 'outpost.http.requests' && Labels['operation'] === 'host.fs_ls',
  )
  assert.equal(grown?.Sum, 3)
  assert.ok(snapshot.Gauges.some(({ Name, Value }) => Name === 'nomad.client.host.memory.total' && Value > 0))
  metrics.complete()
  assert.ok(!metrics.json().Samples.some(({ Name }) => Name === 'nomad.client.file_system.list'), 'a quiet interval')
})

test('the text form is selected by parameter or Accept header, and can be disabled', async (t) => {
  const on = await startMeasured(t)
  const scraper = 'Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1'
  for (const [target, ...lines] of [
    ['/v1/metrics?format=prometheus'],
    ['/v1/metrics', scraper],
    ['/metrics', scraper],
  ]) {
    const answer = await ask(on.port, 'GET', target ?? '', ...lines)
    assert.equal(answer.status, 200)
    assert.equal(answer.headers.get('content-type'), 'text/plain; version=0.0.4; charset=utf-8')
    assert.deepEqual(readExposition(answer.body.toString()).faults, [])
  }
  assert.equal(
    (await ask(on.port, 'GET', '/v1/metrics', 'Accept: */*')).headers.get('content-type'),
    'application/json',
  )
  assert.equal((await ask(on.port, 'GET', '/v1/metrics?format=json', scraper)).status, 200)
  const odd = await ask(on.port, 'GET', '/v1/metrics?format=xml')
  assert.deepEqual([odd.status, odd.body.toString()], [400, 'format must be prometheus, or absent for JSON'])
  assert.equal((await ask(on.port, 'POST', '/v1/metrics')).status, 405)
  const off = await startMeasured(t, { textForm: false })
  for (const [target, ...lines] of [['/v1/metrics?format=prometheus'], ['/v1/metrics', scraper]]) {
    const answer = await ask(off.port, 'GET', target ?? '', ...lines)
    assert.deepEqual([answer.status, answer.body.toString()], [415, 'Prometheus is not enabled'])
  }
})

test('of the filters that match a name the longest applies', () => {
  const filter = { prefixes: ['-nomad', '+nomad.client', '-nomad.client.allocs'], otherwise: true }
  assert.deepEqual(
    ['nomad.x', 'nomad.client.uptime', 'nomad.client.allocs.cpu', 'outpost.x'].map((name) => isIncluded(name, filter)),
    [false, true, false, true],
  )
  assert.equal(isIncluded('outpost.x', { ...filter, otherwise: false }), false)
})

test('a name with the suffix of another kind is untyped, and a family without points is omitted', async () => {
  const text = await prometheusText(
    [
      { name: 'a.total', kind: 'gauge', help: 'A.', points: [{ value: 1 }] },
      { name: 'b', kind: 'gauge', help: 'B.', points: [] },
      { name: 'c', kind: 'counter', help: 'C.', points: [{ value: 2, labels: { x: 'a\\"\n' } }] },
    ],
    { all: {}, node: {} },
  )
  assert.equal(
    text,
    '# HELP a_total A.\n# TYPE a_total untyped\na_total 1\n\n# HELP c_total C.\n# TYPE c_total counter\nc_total{x="a\\\\\\"\\n"} 2\n',
  )
})
