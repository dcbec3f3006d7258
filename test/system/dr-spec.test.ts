/**
 * Every row of the specification about replication, on two whole servers that live through all of it once: the states of a cluster
 * (3.1), those of an operation token (3.2), the endpoints (4.1) and the errors (7). Each row is a test with its name.
 */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { createConnection } from 'node:net'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { createServer } from 'node:tls'
import { decodeToken } from '../../src/storage/seal/token-generation.ts'
import { workDirectory } from '../helpers/agent-process.ts'
import { DR, DrServer } from '../helpers/dr-pair.ts'
import { eventually } from '../helpers/eventually.ts'
import { newPgpKey } from '../helpers/pgp-keys.ts'
import { makeCertificates } from '../helpers/certificates.ts'

const ANONYMOUS = ''
const SECONDARY = `${DR}/secondary`
const ATTEMPT = `${SECONDARY}/generate-operation-token/attempt`
const UPDATE = `${SECONDARY}/generate-operation-token/update`

async function refused(server: DrServer, status: number, text: RegExp, path: string, body: object, token?: string) {
  const answer = await server.ask('POST', path, body, token)
  assert.equal(answer.status, status, answer.text)
  assert.match(answer.errors.join('\n'), text)
}

async function becomes(server: DrServer, member: string, wanted: unknown): Promise<void> {
  await eventually(async () => (await server.status())[member] === wanted, `${member} becomes ${String(wanted)}`)
}

/** HTTPS in front of a server, with a certificate of an authority that no system knows; undefined without openssl. */
async function tlsInFront(t: TestContext, { agent, directory }: DrServer) {
  if (!makeCertificates(directory, ['front'])) return undefined
  const file = (name: string) => join(directory, name)
  const pem = (name: string) => readFileSync(file(name), 'utf8')
  const server = createServer({ cert: pem('front.pem'), key: pem('front.key') }, (socket) => {
    const plain = createConnection(agent.port, '127.0.0.1')
    socket.on('error', () => plain.destroy()).pipe(plain)
    plain.on('error', () => socket.destroy()).pipe(socket)
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  t.after(() => server.close())
  const address = server.address()
  const url = `https://127.0.0.1:${typeof address === 'object' ? address?.port : 0}`
  return { url, authority: file('ca.pem'), stranger: file('stranger.pem') }
}

test('replication behaves as in each row of the specification', { timeout: 300_000 }, async (t) => {
  const directory = workDirectory(t)
  const [a, b] = await Promise.all([DrServer.startHere(t, 'a', '', directory), DrServer.start(t, 'b', '', directory)])
  const root = a.keys.token
  let clusterId: unknown
  let operationToken = ''
  const held = () => ({ dr_operation_token: operationToken })

  await t.test('4.1 GET dr/status: unauthenticated', async () => {
    assert.deepEqual(await a.status(), { mode: 'disabled' })
  })

  await t.test('3.1 disabled, POST primary/enable: primary; 4.1 POST primary/enable', async () => {
    const { body, warnings } = await a.told('POST', `${DR}/primary/enable`, { primary_cluster_addr: '' })
    assert.equal(body['data'], null)
    assert.match(warnings[0] ?? '', /^This cluster is being enabled as a primary for replication\./)
    const status = await a.status()
    assert.deepEqual([status['mode'], status['state'], status['known_secondaries']], ['primary', 'running', []])
    assert.match(String(status['merkle_root']), /^[0-9a-f]{40}$/)
    clusterId = status['cluster_id']
    await refused(a, 400, /is "primary": this operation requires "disabled"/, `${DR}/primary/enable`, {})
  })

  await t.test('4.1 POST primary/secondary-token: unique id, ttl 30m, a wrapped token', async () => {
    const { body } = await a.told('POST', `${DR}/primary/secondary-token`, { id: 'b' })
    const info = body['wrap_info'] as Record<string, unknown>
    assert.deepEqual([info['ttl'], info['creation_path'], body['data']], [1800, `${DR}/primary/secondary-token`, null])
    assert.equal(String(info['token']).split('.').length, 3)
    assert.deepEqual((await a.status())['known_secondaries'], ['b'], 'as soon as there is a token')
    await refused(a, 400, /missing id/, `${DR}/primary/secondary-token`, {})
    await refused(a, 403, /permission denied/, `${DR}/primary/secondary-token`, { id: 'c' }, 's.nobodys')
  })

  await t.test(
    '7 activation whose token cannot be unwrapped against the given CA roots fails, and changes nothing',
    async (subtest) => {
      const front = await tlsInFront(t, a)
      if (!front) return subtest.skip('needs openssl')
      const enable = { token: await a.issue('b'), primary_api_addr: front.url }
      const path = `${SECONDARY}/enable`
      await refused(b, 400, /error unwrapping secondary token: .*certificate/, path, enable)
      await refused(b, 400, /certificate/, path, { ...enable, ca_file: front.stranger })
      await refused(b, 400, /ca_file or ca_path cannot be read/, path, { ...enable, ca_file: '/nowhere' })
      // With the right one the primary is asked.
      const unknown = { ...enable, token: 's.unknown', ca_path: a.directory }
      await refused(b, 400, /status code is 400: the activation token was used already, has expired/, path, unknown)
      assert.deepEqual(await b.status(), { mode: 'disabled' })
      await b.told('GET', 'auth/token/lookup-self')
    },
  )

  await t.test(
    '3.1 disabled, POST secondary/enable: secondary, all local data cleared; 4.1 POST secondary/enable',
    async () => {
      await b.told('POST', 'cubbyhole/own', { a: '1' })
      const token = await a.issue('b')
      const { warnings } = await b.told('POST', `${SECONDARY}/enable`, {
        token,
        primary_api_addr: '',
        ca_file: '',
        ca_path: '',
      })
      assert.match(warnings[0] ?? '', /^Vault has successfully found secondary information/)
      await b.follows(a)
      assert.equal((await b.status())['cluster_id'], clusterId)
      await refused(b, 400, /path disabled in replication DR secondary mode/, 'cubbyhole/own', { a: '2' })
      // The keys are those of the primary from now on.
      for (const key of b.keys.shares) await b.ask('PUT', 'sys/unseal', { key }, ANONYMOUS)
      assert.equal((await b.told('GET', 'sys/seal-status', undefined, ANONYMOUS)).body['sealed'], true)
      assert.equal(await b.health(), 503)
      await b.unseal(a.keys)
      assert.equal(await b.health(), 472)
      await refused(a, 400, /already|active|revoke/, `${DR}/primary/secondary-token`, { id: 'b' })
    },
  )

  await t.test('4.1 GET dr/status: primary and secondary differ in content', async () => {
    const [primary, secondary] = [await a.status(), await b.status()]
    const [row] = primary['secondaries'] as Record<string, unknown>[]
    assert.deepEqual([row?.['node_id'], row?.['connection_status']], ['b', 'connected'])
    const [other] = secondary['primaries'] as Record<string, unknown>[]
    assert.equal(other?.['api_address'], a.agent.url)
    assert.deepEqual(
      [secondary['mode'], secondary['connection_state'], secondary['secondary_id']],
      ['secondary', 'ready', 'b'],
    )
    for (const name of ['last_reindex_epoch', 'last_corruption_check_epoch'])
      assert.equal(typeof primary[name], 'string')
    for (const name of ['clock_skew_ms', 'last_heartbeat_duration_ms']) assert.equal(typeof row?.[name], 'string')
  })

  await operationTokens(t, a, b)
  operationToken = await b.operationToken(a.keys)

  await t.test('4.1 POST secondary/reindex: diff, force, skip_flush, with the operation token', async () => {
    for (const more of [{ diff: true }, { force: true, skip_flush: true }]) {
      const { warnings } = await b.told('POST', `${SECONDARY}/reindex`, { ...held(), ...more }, ANONYMOUS)
      assert.equal(warnings.length, 1)
      await eventually(async () => (await b.status())['reindex_progress'] === undefined, 'the reindex is over')
    }
    assert.notEqual((await b.status())['last_reindex_epoch'], '0')
  })

  await t.test('4.1 POST secondary/merkle-check: information about corruption', async () => {
    const { data } = await b.told('POST', `${SECONDARY}/merkle-check`, held(), ANONYMOUS)
    const report = data['merkle_corruption_report'] as Record<string, unknown>
    const trees = report['corrupted_tree_map'] as Record<string, Record<string, unknown>>
    assert.equal(report['corrupted_root'], false)
    assert.deepEqual([trees['1']?.['tree_type'], trees['2']?.['tree_type']], ['replicated', 'local'])
    assert.deepEqual(
      [trees['1']?.['corrupted_index_tuples_map'], trees['1']?.['corrupted_subtree_root']],
      [null, false],
    )
  })

  await t.test('4.1 POST primary/revoke-secondary: disconnects at once and for good', async () => {
    assert.equal((await a.told('POST', `${DR}/primary/revoke-secondary`, { id: 'b' })).status, 204)
    await refused(a, 400, /./, `${DR}/primary/revoke-secondary`, { id: 'nobody' })
    await eventually(async () => /revoked/.test(String((await b.status())['trouble'])), 'the secondary reports it')
    assert.deepEqual((await a.status())['known_secondaries'], [])
    await refused(
      b,
      400,
      /revoked/,
      `${SECONDARY}/update-primary`,
      { ...held(), update_primary_addrs: ['127.0.0.1:1'] },
      ANONYMOUS,
    )
  })

  await t.test('7 update-primary with both token and update_primary_addrs: invalid combination', async () => {
    const both = { ...held(), token: 'x', update_primary_addrs: ['127.0.0.1:1'] }
    await refused(
      b,
      400,
      /token and update_primary_addrs are mutually exclusive/,
      `${SECONDARY}/update-primary`,
      both,
      ANONYMOUS,
    )
    await refused(b, 400, /missing token or update_primary_addrs/, `${SECONDARY}/update-primary`, held(), ANONYMOUS)
  })

  await t.test(
    '3.1 secondary, POST update-primary: another primary, nothing wiped; 4.1 generate-public-key, update-primary',
    async () => {
      // Sealed to a key of the secondary: it does not call the API of the primary.
      const { data } = await b.told('POST', `${SECONDARY}/generate-public-key`, {}, root)
      const token = await a.issue('b2', { secondary_public_key: data['secondary_public_key'] })
      assert.match(token, /^dr1\./)
      const { warnings } = await b.told('POST', `${SECONDARY}/update-primary`, { ...held(), token }, ANONYMOUS)
      assert.match(warnings[0] ?? '', /^Vault has successfully found secondary information/)
      await b.follows(a)
      const address = String((await b.status())['primary_cluster_addr'])
      const addresses = ['https://127.0.0.1:1', address]
      await b.told('POST', `${SECONDARY}/update-primary`, { ...held(), update_primary_addrs: addresses }, ANONYMOUS)
      await b.follows(a)
    },
  )

  await t.test(
    '3.1 secondary, POST promote: primary; the previous primary accepts no more writes; 4.1 POST promote',
    async () => {
      await a.told('POST', 'cubbyhole/kept', { a: '1' }, root)
      await b.follows(a)
      const promoting = { ...held(), primary_cluster_addr: '', force: false }
      const { body, warnings } = await b.told('POST', `${SECONDARY}/promote`, promoting, ANONYMOUS)
      assert.equal(body['data'], null)
      assert.match(warnings[0] ?? '', /^This cluster is being promoted to a replication primary\./)
      const status = await b.status()
      assert.deepEqual([status['mode'], status['cluster_id'], status['known_secondaries']], ['primary', clusterId, []])
      assert.deepEqual((await b.told('GET', 'cubbyhole/kept', undefined, root)).data, { a: '1' })
      await becomes(a, 'state', 'fenced')
      assert.equal((await a.ask('POST', 'cubbyhole/late', { a: '1' }, root)).status, 503)
      await refused(b, 400, /^Not a DR secondary\.\n/, `${SECONDARY}/promote`, held(), ANONYMOUS)
    },
  )

  await t.test(
    '3.1 primary, POST demote: secondary, which connects to no primary and keeps its cluster ID; 4.1 POST demote',
    async () => {
      const { warnings } = await a.told('POST', `${DR}/primary/demote`, {})
      assert.match(warnings[0] ?? '', /^This cluster is being demoted to a replication secondary\./)
      const status = await a.status()
      assert.deepEqual([status['mode'], status['state'], status['cluster_id']], ['secondary', 'idle', clusterId])
      assert.deepEqual(status['known_primary_cluster_addrs'], [])
    },
  )

  operationToken = await a.operationToken(a.keys)

  await t.test('7 update_primary_addrs on a newly demoted secondary: invalid combination', async () => {
    const addresses = { ...held(), update_primary_addrs: ['127.0.0.1:1'] }
    await refused(a, 400, /use a token/, `${SECONDARY}/update-primary`, addresses, ANONYMOUS)
  })

  await t.test(
    '3.1 secondary, POST update-primary: a demoted one joins without a wipe, a blank token forgets',
    async () => {
      b.keys = { ...b.keys, token: root }
      await a.told('POST', `${SECONDARY}/update-primary`, { ...held(), token: await b.issue('a') }, ANONYMOUS)
      await a.follows(b)
      await a.told('POST', `${SECONDARY}/update-primary`, { ...held(), token: '' }, ANONYMOUS)
      await becomes(a, 'state', 'idle')
      assert.deepEqual((await a.status())['mode'], 'secondary')
    },
  )

  await t.test('4.1 POST secondary/disable with the operation token; 3.1 secondary: disabled', async () => {
    await refused(a, 400, /DR operation token was not provided/, `${SECONDARY}/disable`, {}, root)
    const { warnings } = await a.told('POST', `${SECONDARY}/disable`, held(), ANONYMOUS)
    assert.match(warnings[0] ?? '', /^This cluster is having replication disabled\./)
    assert.deepEqual(await a.status(), { mode: 'disabled' })
    assert.deepEqual((await a.told('GET', 'cubbyhole/kept', undefined, root)).data, { a: '1' }, 'its data stays')
  })

  await t.test(
    '3.1 primary, POST disable: disabled; enabled again, the cluster ID is another one; 4.1 POST disable',
    async () => {
      const { warnings } = await b.told('POST', `${DR}/primary/disable`, {})
      assert.match(warnings[0] ?? '', /^This cluster is having replication disabled\./)
      assert.deepEqual(await b.status(), { mode: 'disabled' })
      await b.told('POST', `${DR}/primary/enable`)
      assert.notEqual((await b.status())['cluster_id'], clusterId)
    },
  )

  await t.test('5 every endpoint but status: a namespace other than the root one is refused', async () => {
    const headers = { 'X-Vault-Namespace': 'team', 'X-Vault-Token': root }
    const answer = await fetch(`${b.agent.url}/v1/${DR}/primary/disable`, { method: 'POST', headers })
    assert.equal(answer.status, 404)
    assert.equal((await b.status())['mode'], 'primary')
  })
})

async function operationTokens(t: TestContext, a: DrServer, b: DrServer): Promise<void> {
  const [first = '', second = ''] = a.keys.shares

  await t.test('3.2 none, POST attempt: in progress, one at a time; 4.1 GET and POST attempt', async () => {
    const idle = await b.told('GET', ATTEMPT, undefined, ANONYMOUS)
    assert.deepEqual([idle.data['started'], idle.data['required'], idle.data['otp_length']], [false, 2, 28])
    const owner = await newPgpKey('owner')
    const { body } = await b.told('POST', ATTEMPT, { pgp_key: owner.publicKey }, ANONYMOUS)
    assert.deepEqual(
      [body['started'], body['progress'], body['otp'], body['pgp_fingerprint']],
      [true, 0, '', owner.fingerprint],
    )
    await refused(b, 400, /root generation already in progress/, ATTEMPT, {}, ANONYMOUS)
  })

  await t.test('3.2 in progress, DELETE attempt: none, progress cleared; 4.1 DELETE attempt', async () => {
    const { body } = await b.told('GET', ATTEMPT, undefined, ANONYMOUS)
    await b.told('POST', UPDATE, { key: first, nonce: body['nonce'] }, ANONYMOUS)
    assert.equal((await b.ask('DELETE', ATTEMPT, undefined, ANONYMOUS)).status, 400, 'its nonce is required')
    assert.equal(
      (await b.told('DELETE', `${ATTEMPT}?nonce=${String(body['nonce'])}`, undefined, ANONYMOUS)).status,
      204,
    )
    const { data } = await b.told('GET', ATTEMPT, undefined, ANONYMOUS)
    assert.deepEqual([data['started'], data['progress'], data['nonce']], [false, 0, ''])
  })

  await t.test('3.2 in progress, POST update below the threshold: progress increases; 4.1 POST update', async () => {
    const { nonce } = (await b.told('POST', ATTEMPT, {}, ANONYMOUS)).body
    const { body } = await b.told('POST', UPDATE, { key: first, nonce }, ANONYMOUS)
    assert.deepEqual([body['nonce'], body['progress'], body['complete'], body['encoded_token']], [nonce, 1, false, ''])
    await refused(b, 400, /^incorrect nonce supplied$/, UPDATE, { key: second, nonce: 'other' }, ANONYMOUS)
    await b.told('DELETE', ATTEMPT, { nonce }, ANONYMOUS)
  })

  await t.test(
    '3.2 in progress, POST update, threshold reached: complete, a token, encoded; 5 where it is taken',
    async () => {
      const { nonce, otp } = (await b.told('POST', ATTEMPT, {}, ANONYMOUS)).body
      await b.told('POST', UPDATE, { key: first, nonce }, ANONYMOUS)
      const { body, data } = await b.told('POST', UPDATE, { key: second, nonce }, ANONYMOUS)
      assert.deepEqual([body['complete'], body['progress'], data['complete']], [true, 2, true])
      const token = decodeToken(String(body['encoded_token']), String(otp))
      assert.match(token, /^hvs\.\w{24}$/)
      assert.equal((await b.ask('POST', `${SECONDARY}/generate-public-key`, {}, token)).status, 403)
      // It survives the process.
      await b.kill()
      await b.restartHere()
      await b.unseal(a.keys)
      const { status } = await b.told(
        'POST',
        `${SECONDARY}/operation-token/delete`,
        { dr_operation_token: token },
        ANONYMOUS,
      )
      assert.equal(status, 204)
    },
  )

  await t.test('4.1 POST operation-token/delete: the token is invalid', async () => {
    const dr_operation_token = await b.operationToken(a.keys)
    await b.told('POST', `${SECONDARY}/operation-token/delete`, { dr_operation_token }, ANONYMOUS)
    for (const path of ['promote', 'disable', 'update-primary', 'reindex', 'merkle-check', 'operation-token/delete']) {
      await refused(b, 403, /^permission denied$/, `${SECONDARY}/${path}`, { dr_operation_token }, ANONYMOUS)
    }
    await b.follows(a)
  })
}
