/**
 * An attacker receives every message on NATS, like its operator or another server. It must not be able to read a token,
 * a path or a value of a secret, and recorded messages must be useless when they are replayed.
 */
import '../helpers/short-timings.ts'
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { test, type TestContext } from 'node:test'
import { connect, type NatsConnection } from '@nats-io/transport-node'
import { type ClusterWorld, ROOT_TOKEN, startCluster } from '../helpers/cluster.ts'
import { send } from '../helpers/openbao-replay.ts'
import { eventually } from '../helpers/eventually.ts'

const sha256 = createHash('sha256').update(ROOT_TOKEN).digest('hex')
const POLICY = 'node { policy = "write" } namespace "*" { policy = "write" }'
const ACL = `acl {\n enabled = true\n token "ops" {\n sha256 = "${sha256}"\n policy = ${JSON.stringify(POLICY)}\n }\n}`
const HOST_ACL = 'acl { enabled = true }'
const PLANTED = { path: 'planted-path-of-a-secret', name: 'planted-name', value: 'planted-value-of-a-secret' }

interface Heard {
  readonly subject: string
  readonly reply: string
  readonly data: Uint8Array
}

interface Eavesdropper {
  readonly bus: NatsConnection
  readonly heard: Heard[]
}

async function eavesdropperOn(t: TestContext, world: ClusterWorld): Promise<Eavesdropper> {
  const bus = await connect({ servers: [world.nats.url] })
  t.after(() => bus.close())
  const heard: Heard[] = []
  bus.subscribe('>', {
    callback: (_error, { subject, reply = '', data }) =>
      void heard.push({ subject, reply, data: Uint8Array.from(data) }),
  })
  await bus.flush()
  return { bus, heard }
}

/** Every way in which a text stands in bytes: as it is, in hex, and in base64 at each of three places. */
function formsOf(text: string): string[] {
  const base64 = [0, 1, 2].flatMap((before) => {
    const encoded = Buffer.concat([Buffer.alloc(before), Buffer.from(text)]).toString('base64')
    const inner = encoded.slice(before === 0 ? 0 : 4, -4)
    return [inner, inner.replaceAll('+', '-').replaceAll('/', '_')]
  })
  const hex = Buffer.from(text).toString('hex')
  return [text, hex, hex.toUpperCase(), ...base64]
}

function readers(heard: readonly Heard[], secrets: Readonly<Record<string, string>>): string[] {
  const found = new Set<string>()
  for (const { subject, data } of heard) {
    const text = Buffer.from(data).toString('latin1')
    for (const [what, secret] of Object.entries(secrets)) {
      if (formsOf(secret).some((form) => text.includes(form))) found.add(`${what} on ${subject.replace(/[^.]*$/, '*')}`)
    }
  }
  return [...found]
}

const notOpened = (log: string) => log.split('\n').filter((line) => line.includes('sealed call refused'))

interface Asked {
  readonly port: number
  readonly method: string
  readonly path: string
  readonly token: string
  readonly body?: unknown
}

async function ask({ port, method, path, token, body }: Asked) {
  const headers = { 'X-Vault-Token': token }
  const answer = await send(port, { method, path: `/v1/${path}`, headers, body: JSON.stringify(body) })
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${answer.body}`)
  return answer.body
}

async function openCore(port: number): Promise<string> {
  const init = { secret_shares: 1, secret_threshold: 1 }
  const made: unknown = JSON.parse(await ask({ port, method: 'PUT', path: 'sys/init', token: '', body: init }))
  assert.ok(typeof made === 'object' && made && 'keys' in made && Array.isArray(made.keys) && 'root_token' in made)
  await ask({ port, method: 'PUT', path: 'sys/unseal', token: '', body: { key: made.keys[0] } })
  assert.ok(typeof made.root_token === 'string')
  await ask({
    port,
    method: 'POST',
    path: 'sys/mounts/kv',
    token: made.root_token,
    body: { type: 'kv', options: { version: '2' } },
  })
  return made.root_token
}

test('an eavesdropper on NATS reads no token and no secret and cannot replay a message', {
  timeout: 240_000,
}, async (t) => {
  const world = await startCluster(t, {
    here: ['server', 'client'],
    servers: 2,
    hosts: 1,
    acl: ACL,
    hostAcl: HOST_ACL,
    oneCore: true,
  })
  const [core, edge, host] = [world.server(0), world.server(1), world.host().member]
  const token = await openCore(core.port)
  const { bus, heard } = await eavesdropperOn(t, world)
  const data = `kv/data/${PLANTED.path}`
  const through = { port: edge.port, token }

  await t.test('calls of a server without a core to the active core', async () => {
    await ask({ ...through, method: 'POST', path: data, body: { data: { [PLANTED.name]: PLANTED.value } } })
    assert.ok((await ask({ ...through, method: 'GET', path: data })).includes(PLANTED.value))
    // Larger than one message.
    const many = Object.fromEntries(
      Array.from({ length: 4000 }, (_, at) => [`${PLANTED.name}-${at}`, PLANTED.value.repeat(4)]),
    )
    await ask({ ...through, method: 'POST', path: `${data}-large`, body: { data: many } })
    assert.ok((await ask({ ...through, method: 'GET', path: `${data}-large` })).length > 400_000)
    assert.ok((await ask({ ...through, method: 'LIST', path: 'kv/metadata' })).includes(PLANTED.path))
    const child = JSON.parse(await ask({ ...through, method: 'POST', path: 'auth/token/create', body: {} })) as unknown
    const made = /"client_token":"([^"]+)"/.exec(JSON.stringify(child))?.[1] ?? ''
    assert.ok(made.length > 10)
    assert.ok(heard.length > 8)
    assert.deepEqual(readers(heard, { ...PLANTED, token, child: made }), [])
  })

  await t.test('calls that enter at a host, and its token lookups', async () => {
    const before = heard.length
    const asked = await ask({ port: host.port, method: 'GET', path: 'nodes', token: ROOT_TOKEN })
    assert.ok(asked.includes(host.nodeId))
    await ask({ port: host.port, method: 'GET', path: 'client/metadata', token })
    const calls = heard.slice(before).filter(({ subject }) => subject.includes(`.call.${host.nodeId}`))
    assert.ok(calls.length >= 2, 'for the nodes, and who the second token is')
    assert.deepEqual(readers(heard.slice(before), { operator: ROOT_TOKEN, token }), [])
  })

  await t.test('a recorded call is refused when it is replayed, truncated, modified or redirected', async () => {
    const path = `${data}-again`
    const from = heard.length
    await ask({ ...through, method: 'POST', path, body: { data: { counted: '1' } } })
    const call = heard.slice(from).find(({ subject }) => /\.server\.[^.]+\.core\./.test(subject))
    assert.ok(call)
    const changed = Buffer.from(call.data)
    changed[changed.length - 20] = (changed[changed.length - 20] ?? 0) ^ 1
    const refused = heard.length
    for (const bytes of [call.data, call.data, call.data.subarray(0, -1), call.data.subarray(0, 60), changed]) {
      bus.publish(call.subject, bytes, { reply: call.reply })
    }
    bus.publish(call.subject.replace('.core.', '.call.'), call.data, { reply: call.reply })
    // Only the server has its key, so each is refused in two bytes.
    const refusals = () =>
      heard.slice(refused).filter(({ subject, data: bytes }) => subject === call.reply && bytes.length === 2)
    await eventually(() => refusals().length === 6)
    const metadata = JSON.parse(
      await ask({ ...through, method: 'GET', path: path.replace('/data/', '/metadata/') }),
    ) as {
      data: { current_version: number }
    }
    assert.equal(metadata.data.current_version, 1)
    // Once for calls of servers, once for those of hosts.
    await eventually(() => notOpened(core.stderr).length >= 2)
    assert.equal(notOpened(core.stderr).length, 2)
    assert.match(notOpened(core.stderr)[0] ?? '', /sent before/)
  })

  await t.test('forged responses are dropped, and the call continues', async () => {
    const forging = bus.subscribe('outpost.global.server.*.core.*')
    const forge = (async () => {
      for await (const { reply = '' } of forging) {
        for (const bytes of [Buffer.alloc(40, 0x12), Buffer.from('81a46b696e64a56661756c74', 'hex')])
          bus.publish(reply, bytes)
        // What an earlier call was answered with.
        for (const old of heard.filter(({ subject }) => subject.includes('.reply.any.')).slice(0, 20))
          bus.publish(reply, old.data)
        await bus.flush()
      }
    })()
    await bus.flush()
    for (let at = 0; at < 20; at++)
      assert.ok((await ask({ ...through, method: 'GET', path: data })).includes(PLANTED.value))
    forging.unsubscribe()
    await forge
    assert.ok(edge.stderr.split('\n').filter((line) => line.includes('no answers of a server')).length <= 1)
  })
})
