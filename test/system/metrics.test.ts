/** The metrics of a whole agent, as Prometheus' own checker sees them. */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { test } from 'node:test'
import { agentHere } from '../helpers/agent-here.ts'
import { workDirectory, writeConfig } from '../helpers/agent-process.ts'
import { readExposition } from '../helpers/exposition.ts'
import { ask } from '../helpers/raw-http.ts'
import { eventually } from '../helpers/eventually.ts'

const PROMTOOL = process.env['OUTPOST_PROMTOOL'] ?? 'promtool'

test('all exposed metrics follow the text format, without a token', async (t) => {
  const agent = await agentHere(t, ['-config', writeConfig(workDirectory(t), '')])
  const answer = await eventually(async () => {
    const scraped = await ask(agent.port, 'GET', '/v1/metrics?format=prometheus', 'X-Nomad-Token: stale')
    // The first look at the host may not be over yet, and no request may have been counted before this one.
    const known = ['nomad_client_host_disk', 'outpost_http_requests_total']
    return known.every((name) => scraped.body.includes(name)) && scraped
  }, 'the host was looked at')
  assert.equal(answer.status, 200)
  const { faults, series } = readExposition(answer.body.toString())
  assert.deepEqual(faults, [])
  const names = new Set(series.map(({ name }) => name))
  for (const name of [
    'nomad_client_uptime',
    'nomad_client_host_memory_total',
    'nomad_client_host_cpu_total_percent',
    'nomad_client_allocations_running',
    'nomad_client_tasks_running',
    'nomad_nomad_agent_http_connections',
    'outpost_http_requests_total',
    'outpost_config_reloads_total',
    'process_resident_memory_bytes',
    'process_open_fds',
    'process_cpu_seconds_total',
    'outpost_event_loop_delay_seconds_count',
  ]) {
    assert.ok(names.has(name), name)
  }
  const hosts = new Set(series.map(({ labels }) => labels.get('host')))
  assert.equal(hosts.size, 1)
  const checked = spawnSync(PROMTOOL, ['check', 'metrics'], { input: answer.body, encoding: 'utf8' })
  if (checked.error) return // not installed: the reader above has looked for the same things
  assert.equal(checked.status, 0, checked.stderr + checked.stdout)
})

test('telemetry settings select the exposed metrics', async (t) => {
  const telemetry = `telemetry {
    publish_node_metrics = false
    disable_hostname = true
    prefix_filter = ["-outpost.http", "-process"]
  }`
  const agent = await agentHere(t, ['-config', writeConfig(workDirectory(t), telemetry)])
  const answer = await ask(agent.port, 'GET', '/v1/metrics?format=prometheus')
  const { series } = readExposition(answer.body.toString())
  assert.ok(series.length > 0)
  for (const { name, labels } of series) {
    assert.ok(!/^(nomad_client_host|outpost_http|process)_/.test(name), name)
    assert.ok(!labels.has('host'))
  }
  const off = await agentHere(t, ['-config', writeConfig(workDirectory(t), 'telemetry { prometheus_metrics = false }')])
  assert.equal((await ask(off.port, 'GET', '/v1/metrics?format=prometheus')).status, 415)
  assert.equal((await ask(off.port, 'GET', '/v1/metrics')).status, 200)
})
