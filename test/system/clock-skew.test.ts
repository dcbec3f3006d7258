/** A host whose clock is ten minutes off: it refuses every forwarded call, and the server shows it as not usable with the reason. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Member, ROOT_TOKEN, startCluster } from '../helpers/cluster.ts'
import { OPS_ACL } from '../helpers/cluster-core.ts'
import { runHere } from '../helpers/command-here.ts'
import { eventually } from '../helpers/eventually.ts'
import { metricsOf, readinessOf } from '../helpers/exported-metrics.ts'
import { skewedBy } from '../helpers/skewed-clock.ts'

const HOST_ACL = 'acl { enabled = true }'

interface NodeStub {
  readonly ID: string
  readonly Name: string
  readonly Status: string
  readonly StatusDescription: string
}

test('a node with a clock skew of ten minutes is not ready, and the server reports why', {
  timeout: 120_000,
}, async (t) => {
  const world = await startCluster(t, { here: ['server', 'client'], hosts: 1, acl: OPS_ACL, hostAcl: HOST_ACL })
  const server = world.server()
  const skewed = await Member.make(t, 'skewed', {
    role: 'client',
    natsUrl: world.nats.url,
    acl: HOST_ACL,
    env: skewedBy(600_000),
  })
  await skewed.start()
  const headers = { 'X-Nomad-Token': ROOT_TOKEN }
  const nodes = async () => (await (await fetch(`${server.url}/v1/nodes`, { headers })).json()) as NodeStub[]
  const node = await eventually(async () => (await nodes()).find(({ Name }) => Name === 'skewed'), 'it is known')
  assert.equal(node.Status, 'disconnected')
  assert.match(
    node.StatusDescription,
    /^The clock of the node is (59\d|60\d) s ahead of this server and calls to it are refused/,
  )
  assert.equal((await nodes()).find(({ Name }) => Name === 'client-0')?.Status, 'ready')

  const call = await fetch(`${server.url}/v1/client/metadata?node_id=${node.ID}`, { headers })
  assert.equal(call.status, 503)
  assert.match(await call.text(), /Synchronize both clocks/)

  const metrics = await metricsOf(server)
  const skew = (name: string) => metrics.value('outpost_node_clock_skew_seconds', { name }) ?? Number.NaN
  assert.ok(Math.abs(skew('skewed') - 600) < 20, String(skew('skewed')))
  assert.ok(Math.abs(skew('client-0')) < 20, String(skew('client-0')))
  assert.match(
    (await readinessOf(server)).warnings.join('\n'),
    /clock of node "skewed" is (59\d|60\d) s ahead of this server/,
  )
  await eventually(() => /"@level":"warn".*node clock skew/.test(server.stderr), 'a warning in the log')

  await t.test('the host itself reports it, and a host with a right clock does not', async () => {
    const warning = /^clock of this host is (59\d|60\d) s ahead of server "server-0": synchronize both clocks \(NTP\)$/
    const found = await eventually(async () => {
      return (await readinessOf(skewed)).warnings.find((each) => each.includes('clock'))
    }, 'the host knows the clock of its server')
    assert.match(found, warning)
    const own = (await metricsOf(skewed)).value('outpost_server_clock_skew_seconds', { server: 'server-0' })
    assert.ok(Math.abs((own ?? Number.NaN) - 600) < 20, String(own))
    assert.match(skewed.stderr, /"@level":"warn".*clock skew to server.*"server":"server-0"/)
    const status = await runHere(['status', '-address', skewed.url], {})
    assert.match(status.stderr, /^warning: clock of this host is (59\d|60\d) s ahead of server "server-0"/m)
    const right = world.host().member
    assert.deepEqual((await readinessOf(right)).warnings, [])
    const other = (await metricsOf(right)).value('outpost_server_clock_skew_seconds', { server: 'server-0' })
    assert.ok(Math.abs(other ?? Number.NaN) < 20, String(other))
    assert.ok(!right.stderr.includes('clock skew to server'))
  })
})
