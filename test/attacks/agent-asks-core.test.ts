/**
 * An attacker with the key of a worker host calls operations of servers: snapshots, the seal, secrets, a reload, and
 * announces itself as a server. Its token has all permissions, so that only the caller check can refuse.
 */
import '../helpers/short-timings.ts'
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { connect, nkeyAuthenticator, type NatsConnection } from '@nats-io/transport-node'
import { Forwarder } from '../../src/cluster/rpc/forwarder.ts'
import { openNatsBus } from '../../src/cluster/nats/nats-bus.ts'
import { newSeed, signingKeyOf } from '../../src/cluster/nats/nkey.ts'
import { signAnnouncement } from '../../src/cluster/trust/server-announcement.ts'
import { CurveKey } from '../../src/cluster/trust/envelope.ts'
import { type ServerGroup, type ClusterMember, Subjects } from '../../src/cluster/nats/subjects.ts'
import { recordingLogger } from '../host/allocations/host-fixture.ts'
import { workDirectory } from '../helpers/agent-process.ts'
import { startNatsServer } from '../helpers/nats-server.ts'
import { type PermittedCluster, permittedCluster, TOKEN } from '../helpers/permitted-cluster.ts'
import { sealingFor } from '../helpers/sealed-world.ts'
import { isAgentPath } from '../../src/secrets/request/core-endpoints.ts'
import { Member } from '../helpers/cluster.ts'
import { eventually } from '../helpers/eventually.ts'

const subjects = new Subjects('global')

/** Who calls servers over this NATS under this name, with what outpost itself calls with. */
async function callerOn(t: TestContext, login: Parameters<typeof openNatsBus>[0], self: ClusterMember) {
  const { logger } = login
  const bus = await openNatsBus(login)
  t.after(() => bus.close())
  const sealing = sealingFor(t, { bus, subjects, self, logger, hasCore: false })
  const forwarder = new Forwarder({ bus, subjects })
  forwarder.start(self, { sender: sealing.calls })
  t.after(() => forwarder.stop())
  await eventually(() => sealing.keys.servers(true).length > 0)
  const ask = (operation: string, group: ServerGroup) =>
    forwarder.value({
      nodeId: undefined,
      group,
      operation,
      input: { params: { path: 'sys/seal' }, query: [], headers: {}, body: undefined },
      token: TOKEN,
      requestId: 'attack',
      hops: 0,
      signal: AbortSignal.timeout(10_000),
    })
  return { ask, bus, sealing }
}

/** By its address, for which the client has no name to compare with. */
async function thief(t: TestContext, cluster: PermittedCluster): Promise<NatsConnection> {
  const tls = { ca: cluster.authority, checkServerIdentity: () => undefined }
  const authenticator = nkeyAuthenticator(cluster.seedOf('w1'))
  const bus = await connect({ servers: [cluster.nats.url], authenticator, tls })
  t.after(() => bus.close())
  return bus
}

test('the key of a host allows no operation that is reserved for servers or the secrets core', async (t) => {
  const directory = workDirectory(t)
  const cluster = await permittedCluster(t, directory, ['-server', 's1', '-agent', 'w1'])
  if (!cluster) return t.skip('needs openssl')
  const server = await cluster.start('s1')
  const nodeId = cluster.nodeIdOf('w1')
  const logger = recordingLogger()
  const nkeyFile = `${directory}/keys/w1/cluster.nk`
  const login = { servers: [cluster.nats.url], name: 'thief', nkeyFile, caFile: `${directory}/ca.pem`, logger }
  const { ask } = await callerOn(t, login, { nodeId })

  await t.test('the operations that agents may call do not include those of servers', async () => {
    // What an agent does need is served, so that refusals mean something.
    assert.match((await ask('cluster.resolve_token', 'any')) ?? '', /"accessor"/)
    const own = ['secrets.snapshot_save', 'secrets.snapshot_restore', 'secrets.snapshot_restore_force', 'agent.reload']
    for (const operation of [...own, 'agent.self', 'secrets.read', 'secrets.write']) {
      await assert.rejects(ask(operation, 'any'), { code: 'not_implemented' }, operation)
    }
    // The operation for logins accepts logins only: this call requests sys/seal.
    await assert.rejects(ask('secrets.agent_login', 'any'), { code: 'permission_denied' })
    const asked = ['auth/token/renew-self', 'auth/token/revoke-self', 'sys/wrapping/lookup', 'sys/wrapping/unwrap']
    for (const path of asked) assert.ok(isAgentPath(path, undefined), path)
    assert.ok(isAgentPath('auth/approle/login', 'approle') && isAgentPath('auth/a/b/login', 'approle'))
    for (const path of ['auth/token/create', 'secret/data/app', 'auth/approle/role/web', 'auth/approle/login/x']) {
      assert.ok(!isAgentPath(path, 'approle'), path)
    }
    for (const path of ['auth//login', 'auth/../sys/login', 'auth/./login', 'auth/a?b/login', 'auth/a/../b/login']) {
      assert.ok(!isAgentPath(path, 'approle'), path)
    }
    assert.ok(!isAgentPath('auth/userpass/login', 'userpass'))
  })

  await t.test(
    'NATS permissions prevent an agent from publishing to the core and from announcing itself as a server',
    async () => {
      await assert.rejects(ask('secrets.read', 'core'), { code: 'no_answer' })
      assert.ok(logger.lines.some(({ fields }) => /server\..*\.core/.test(String(fields['subject']))))
      const bus = await thief(t, cluster)
      const about = { serverId: 'mine', hasCore: true, curveKey: new CurveKey().publicKey, clockMs: 0, sequence: 1 }
      bus.publish(subjects.serverKey, signAnnouncement(about, subjects.serverKey, signingKeyOf(newSeed())))
      await bus.flush()
      assert.ok(!server.stderr().includes('server announcement rejected'), 'it has not even arrived')
    },
  )
})

test('without NATS permissions, configured server keys still exclude a host from the core', async (t) => {
  const nats = await startNatsServer(t)
  const key = signingKeyOf(newSeed())
  const member = await Member.make(t, 's1', {
    role: 'server',
    natsUrl: nats.url,
    acl: 'acl { enabled = false }',
    nats: `server_keys = ["${key.publicKey}"]`,
  })
  await member.start()
  const logger = recordingLogger()
  const login = { servers: [nats.url], name: 'stranger', logger }
  // The server's own key is not among them either, as after a rotation that forgot it: it says so.
  await eventually(() => member.stderr.includes('key is not in nats.server_keys'))
  const { ask } = await callerOn(t, login, { serverId: 'stranger' })
  await assert.rejects(ask('secrets.read', 'core'), {
    code: 'unavailable',
    message: /accepts this call from servers only/,
  })
  await eventually(() => member.stderr.includes('server announcement rejected'))
  await eventually(() => /sealed call refused.*no server/.test(member.stderr))
})
