/** Status, readiness, health, metrics, log and errors of a DR pair: in each state they agree and name the cause. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { workDirectory } from '../helpers/agent-process.ts'
import { type AgentHere } from '../helpers/agent-here.ts'
import { DR, DrServer } from '../helpers/dr-pair.ts'
import { eventually } from '../helpers/eventually.ts'
import { commandsAt } from '../helpers/secrets-server.ts'
import { metricsOf, readinessOf } from '../helpers/exported-metrics.ts'

interface SecondaryRow {
  readonly node_id: string
  readonly connection_status: string
  readonly authenticated: boolean
  readonly lag_seconds: number
}

test('a DR primary reports a missing secondary and why it is fenced', { timeout: 180_000 }, async (t) => {
  const directory = workDirectory(t)
  const [primary, secondary] = [
    await DrServer.startHere(t, 'a', 'replication {\n fence_after = "3s"\n }', directory),
    await DrServer.startHere(t, 'b', '', directory),
  ]
  await primary.told('POST', `${DR}/primary/enable`)
  await secondary.told('POST', `${DR}/secondary/enable`, { token: await primary.issue('berlin') })
  await secondary.follows(primary)
  const sealed = 'DR secondary "berlin" is connected and not authenticated (sealed?): unseal it'
  const warnings = async () => (await readinessOf(primary.agent)).warnings.join('\n')
  await eventually(async () => (await warnings()) === sealed, 'a sealed secondary cannot take over')
  await secondary.unseal(primary.keys)
  await eventually(async () => (await warnings()) === '', 'it is unsealed')
  await primary.told('POST', 'sys/mounts/secret', { type: 'kv', options: { version: '2' } })
  await primary.told('POST', 'secret/data/one', { data: { a: 1 } })

  const rowOf = async () => ((await primary.status())['secondaries'] as SecondaryRow[])[0]
  const gauge = async (name: string) =>
    (await metricsOf(primary.agent)).value(`outpost_replication_${name}`, { secondary: 'berlin' })
  const replication = async () => (await readinessOf(primary.agent)).checks['replication']?.reason ?? ''

  await t.test('a load balancer can distinguish the active server from a healthy standby', async () => {
    await eventually(async () => (await readyCodes(primary)) === '200 200', 'the primary serves')
    await eventually(async () => (await readyCodes(secondary)) === '472 200', 'the secondary is a standby')
    const status = await commandsAt(secondary.agent, directory)('status')
    assert.deepEqual([status.code, /^Role +standby$/m.test(status.stdout)], [0, true], status.stderr)
  })

  await t.test('an unsealed secondary exports no seal and snapshot metrics that would raise alerts', async () => {
    const metrics = await metricsOf(secondary.agent)
    assert.equal(metrics.value('outpost_secrets_sealed'), 0)
    assert.equal(metrics.value('outpost_snapshot_last_success_timestamp_seconds'), undefined)
    assert.equal((await metricsOf(primary.agent)).value('outpost_snapshot_last_success_timestamp_seconds'), 0)
  })

  await t.test('a connected secondary raises no warning', async () => {
    await eventually(async () => (await gauge('secondary_connected')) === 1, 'it is connected')
    assert.equal((await metricsOf(primary.agent)).value('outpost_replication_expected'), 1)
    await eventually(async () => (await gauge('secondary_lag_seconds')) === 0, 'it has everything')
    assert.deepEqual((await readinessOf(primary.agent)).warnings, [])
    assert.equal(await replication(), 'DR primary, 1 of 1 secondaries connected')
  })

  await t.test('a sealed primary does not report its secondaries as sealed', async () => {
    await primary.told('PUT', 'sys/seal')
    await eventually(async () => (await rowOf())?.authenticated === false, 'it cannot verify its secondary')
    assert.equal(await warnings(), '')
    assert.equal((await readinessOf(secondary.agent)).status, 472)
    await primary.unseal(primary.keys)
    await eventually(async () => (await rowOf())?.authenticated === true, 'it can again')
    await eventually(async () => (await readyCodes(primary)) === '200 200', 'the primary serves')
  })

  await t.test('a disconnected secondary is named in readiness, metrics and log, and its lag grows', async () => {
    await (secondary.agent as AgentHere).stop()
    await eventually(async () => (await rowOf())?.connection_status === 'disconnected', 'the status shows it')
    assert.match(await replication(), /secondary "berlin" disconnected for \d+ s \(.+\)/)
    const { checks, warnings: all } = await readinessOf(primary.agent)
    assert.match(all.join('\n'), /DR secondary "berlin" disconnected/)
    assert.deepEqual(checks['replication']?.warnings, all, 'the warning belongs to the check')
    assert.equal(await gauge('secondary_connected'), 0)
    assert.equal((await metricsOf(primary.agent)).value('outpost_replication_expected'), 1)
    // Nothing is committed meanwhile.
    const lag = (await rowOf())?.lag_seconds ?? 0
    await eventually(async () => ((await rowOf())?.lag_seconds ?? 0) > Math.max(lag, 1), 'the lag grows')
    assert.ok(Number(await gauge('secondary_lag_seconds')) >= 1)
    assert.ok(Number((await metricsOf(primary.agent)).value('outpost_replication_lag_seconds')) >= 1)
    await eventually(() => {
      const lines = (primary.agent as AgentHere).stderr().split('\n')
      return lines.some((line) => line.includes('DR secondary disconnected') && line.includes('"warn"'))
    }, 'a warning in the log')
  })

  const path = 'secret/data/one'
  const fenced = async (reason: string, text: RegExp) => {
    await eventually(async () => (await primary.status())['fence_reason'] === reason, reason)
    for (const [method, body] of [['GET'], ['POST', { data: { a: 2 } }]] as const) {
      const answer = await primary.ask(method, path, body)
      assert.equal(answer.status, 503, answer.text)
      assert.match(answer.errors.join(), text)
    }
    const headers = { 'X-Nomad-Token': primary.keys.token }
    const self = await fetch(`${primary.agent.url}/v1/agent/self`, { headers })
    assert.equal(self.status, 503, 'tokens may be revoked elsewhere')
    assert.match(await self.text(), text)
    const health = await primary.ask('GET', 'sys/health', undefined, '')
    assert.equal(health.status, 474)
    assert.deepEqual([health.body['standby'], health.body['fence_reason']], [true, reason])
    assert.match(String(health.body['fence_detail']), text)
    assert.match(String((await primary.status())['fence_detail']), text)
    const { checks, status } = await readinessOf(primary.agent)
    assert.deepEqual([status, checks['replication']?.state], [503, 'failing'])
    assert.match(checks['replication']?.reason ?? '', text)
    await roleIsFenced(primary, directory, text)
    const metrics = await metricsOf(primary.agent)
    const roles = ['fenced', 'primary'].map((role) => metrics.value('outpost_replication_role', { role }))
    assert.deepEqual(roles, [1, 0], 'Prometheus finds one primary after a failover')
    assert.equal(metrics.value('outpost_secrets_active'), 0)
    assert.equal(metrics.value('outpost_replication_fenced'), 1)
    assert.equal(metrics.value('outpost_replication_fence_reason', { reason }), 1)
  }

  await t.test('an isolated primary reports it and serves no reads', () =>
    fenced('isolated', /no heartbeat from a secondary for \d+ s \(fence_after is 3 s\)/),
  )

  await t.test('the primary serves again when the secondary is connected', async () => {
    await secondary.restartHere()
    await eventually(async () => (await replication()).includes('not authenticated'), 'it is connected, and sealed')
    await fenced(
      'isolated',
      /no heartbeat from an authenticated secondary for \d+ s .*, connected and not authenticated \(sealed\?\): "berlin"/,
    )
    assert.match((await primary.ask('GET', path)).text, /when a secondary connects and is unsealed/)
    await secondary.unseal(primary.keys)
    await eventually(async () => (await primary.ask('GET', path)).status === 200, 'reads')
    assert.equal(await primary.health(), 200)
    await secondary.follows(primary)
  })

  await t.test('a replaced primary reports its successor, and can be demoted', async () => {
    const token = await secondary.operationToken(primary.keys)
    await secondary.told('POST', `${DR}/secondary/promote`, { dr_operation_token: token }, '')
    await fenced('replaced', new RegExp(`replaced by "berlin" at ${secondary.agent.url}`))
    assert.equal(await secondary.health(), 200)
    assert.match(await replication(), /, next: outpost operator dr demote$/)
    assert.deepEqual((await readinessOf(primary.agent)).warnings, [], 'its successor is no disconnected secondary')
    const metrics = await metricsOf(primary.agent)
    assert.equal(metrics.value('outpost_replication_secondary_connected', { secondary: 'berlin' }), undefined)
    assert.equal(metrics.value('outpost_replication_lag_seconds'), undefined)
    const counts = ['connected', 'expected'].map((name) => metrics.value(`outpost_replication_${name}`))
    assert.deepEqual(counts, [0, 0])
    await primary.told('POST', `${DR}/primary/demote`)
    assert.equal((await primary.status())['mode'], 'secondary')
    await eventually(
      async () => (await replication()) === 'DR secondary without a primary, next: outpost operator dr join',
      'it names what is missing',
    )
  })
})

test('a synchronous primary without a secondary warns that its commits are not replicated', async (t) => {
  const primary = await DrServer.startHere(t, 'a', 'replication {\n sync = true\n }')
  await primary.told('POST', `${DR}/primary/enable`)
  assert.equal((await primary.status())['sync'], 'degraded')
  const warning = 'synchronous replication is degraded, there is no DR secondary: commits are acknowledged without one'
  const { checks, warnings } = await readinessOf(primary.agent)
  assert.deepEqual(warnings, [warning])
  assert.deepEqual(checks['replication']?.warnings, [warning])
  const status = await commandsAt(primary.agent, primary.directory)('status')
  assert.match(status.stderr, new RegExp(`^warning: ${warning}$`, 'm'))
})

/** No surface calls a fenced primary active, or a primary without the fence and its reason. */
async function roleIsFenced({ agent }: DrServer, directory: string, text: RegExp): Promise<void> {
  const ready = (await (await fetch(`${agent.url}/v1/agent/ready`)).json()) as { role: string }
  assert.equal(ready.role, 'fenced')
  const run = commandsAt(agent, directory)
  const status = await run('status')
  assert.deepEqual([status.code, /^Role +fenced$/m.test(status.stdout)], [1, true], status.stdout)
  assert.match(status.stdout.match(/^Fence Reason +(.+)$/m)?.[1] ?? '', text)
  const json = JSON.parse((await run('status -format=json')).stdout) as { readiness: { role: string } }
  assert.equal(json.readiness.role, 'fenced')
  const dr = await run('operator dr status')
  assert.match(dr.stdout, /^State +fenced$/m)
  assert.match(dr.stdout.match(/^Fence Detail +(.+)$/m)?.[1] ?? '', text)
  if (/replaced/.test(dr.stdout)) assert.doesNotMatch(dr.stdout, /^Secondary /m, 'it has none')
  const both = (await (await fetch(`${agent.url}/v1/sys/replication/status`)).json()) as {
    data: { dr: Record<string, unknown> }
  }
  assert.equal(both.data.dr['state'], 'fenced')
  assert.match(String(both.data.dr['fence_detail']), text)
}

/** The status of `/v1/agent/ready`, then the one with `standbyok`. */
async function readyCodes({ agent }: DrServer): Promise<string> {
  const [plain, withStandby] = await Promise.all(
    ['', '?standbyok=true'].map((query) => fetch(`${agent.url}/v1/agent/ready${query}`)),
  )
  return `${plain?.status} ${withStandby?.status}`
}
