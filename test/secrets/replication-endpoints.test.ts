/** The endpoints of replication in one process: every text and status that a caller can meet, without a second server. */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { Refusal } from '../../src/platform/errors.ts'
import { decodeToken } from '../../src/storage/seal/token-generation.ts'
import { type AskOptions, CoreWorld, type WorldOptions } from '../helpers/core-world.ts'
import { newPgpKey } from '../helpers/pgp-keys.ts'
import { ScriptedReplication } from '../helpers/scripted-replication.ts'

const DR = 'sys/replication/dr'
const ATTEMPT = `${DR}/secondary/generate-operation-token/attempt`
const UPDATE = `${DR}/secondary/generate-operation-token/update`
const DISABLED = 'path disabled in replication DR secondary mode'
const NO_TOKEN = { token: null }

const jwt = (claims: object) => `e30.${Buffer.from(JSON.stringify(claims)).toString('base64url')}.c2ln`

async function open(t: TestContext, options: WorldOptions = {}) {
  const replication = new ScriptedReplication()
  const world = await CoreWorld.open(t, { ...options, replication })
  replication.world = world
  const told = async (method: string, path: string, body?: unknown, asking: AskOptions = {}) => {
    const answer = await world.ask(method, path, body, asking)
    assert.equal(answer.status, 200, answer.text)
    return answer.body
  }
  const refused = async (status: number, text: RegExp, path: string, body?: unknown, asking: AskOptions = {}) => {
    const answer = await world.ask('POST', path, body, asking)
    assert.equal(answer.status, status, answer.text)
    assert.match(answer.body.errors.join('\n'), text)
  }
  return { world, replication, told, refused }
}

/** A demoted primary, whose root key is held. */
async function secondary(t: TestContext, options: WorldOptions = {}) {
  const opened = await open(t, options)
  await opened.told('POST', `${DR}/primary/enable`)
  await opened.told('POST', `${DR}/primary/demote`)
  return opened
}

/** An operation token, made of the one share that there is. */
async function operationToken({ told, world }: Awaited<ReturnType<typeof open>>): Promise<string> {
  const { nonce, otp } = await told('PUT', ATTEMPT, {}, NO_TOKEN)
  const key = world.unsealKey.toString('hex')
  const { encoded_token: encoded } = await told('PUT', UPDATE, { key, nonce }, NO_TOKEN)
  return decodeToken(String(encoded), String(otp))
}

test('sys/health has the DR mode and does not read the replication status', async (t) => {
  const { replication, told, world } = await secondary(t)
  replication.statuses = 0
  const { status, body } = await world.ask('GET', 'sys/health', undefined, NO_TOKEN)
  assert.deepEqual([status, body['replication_dr_mode']], [472, 'secondary'])
  assert.equal(replication.statuses, 0)
  await told('GET', `${DR}/status`, undefined, NO_TOKEN)
  assert.equal(replication.statuses, 1)
})

test('status has all fields without replication, alone and in the combined form', async (t) => {
  const { told, world } = await open(t)
  assert.deepEqual((await told('GET', `${DR}/status`, undefined, NO_TOKEN)).data, { mode: 'disabled' })
  const both = { dr: { mode: 'disabled' }, performance: { mode: 'disabled' } }
  assert.deepEqual((await told('GET', 'sys/replication/status', undefined, NO_TOKEN)).data, both)
  await world.core.seal()
  assert.deepEqual((await told('GET', `${DR}/status`, undefined, NO_TOKEN)).data, { mode: 'disabled' })
})

test('a primary supports enable, secondary-token and revoke, and refuses operations of other modes', async (t) => {
  const { refused, replication, told, world } = await open(t)
  for (const path of ['demote', 'disable', 'secondary-token', 'revoke-secondary']) {
    await refused(
      400,
      /DR replication mode of this cluster is "disabled": this operation requires "primary"/,
      `${DR}/primary/${path}`,
      { id: 'a' },
    )
  }
  await refused(403, /permission denied/, `${DR}/primary/enable`, {}, NO_TOKEN)
  await refused(400, /primary_cluster_addr: expected/, `${DR}/primary/enable`, { primary_cluster_addr: 'nowhere' })
  const enabled = await told('PUT', `${DR}/primary/enable`, { primary_cluster_addr: 'https://10.0.0.1:4647' })
  assert.deepEqual(
    [enabled.data, enabled.warnings],
    [
      null,
      [
        'This cluster is being enabled as a primary for replication. Vault will be unavailable for a brief period and will resume service shortly.',
      ],
    ],
  )
  await refused(400, /is "primary": this operation requires "disabled"/, `${DR}/primary/enable`)
  await refused(400, /missing id/, `${DR}/primary/secondary-token`, {})
  await refused(400, /^id:/, `${DR}/primary/secondary-token`, { id: '.current' })
  await refused(400, /ttl: /, `${DR}/primary/secondary-token`, { id: 'a', ttl: 0 })
  const { wrap_info: info, data } = await told('POST', `${DR}/primary/secondary-token`, { id: 'a' })
  assert.equal(data, null)
  const { creation_path, token, ttl } = info as Record<string, unknown>
  assert.deepEqual([creation_path, ttl], ['sys/replication/dr/primary/secondary-token', 1800])
  assert.deepEqual(JSON.parse(Buffer.from(String(token).split('.')[0] ?? '', 'base64url').toString()), {
    alg: 'ES512',
    typ: 'JWT',
  })
  assert.deepEqual((await told('POST', 'sys/wrapping/unwrap', { token }, NO_TOKEN)).data, { id: 'a' })
  const again = await world.ask('POST', 'sys/wrapping/unwrap', { token }, NO_TOKEN)
  assert.equal(again.status, 400)
  const sealed = await told('POST', `${DR}/primary/secondary-token`, { id: 'b', ttl: '5m', secondary_public_key: 'k' })
  assert.deepEqual([sealed.data, sealed['wrap_info']], [{ token: 'dr1.sealed' }, null])
  assert.equal((await world.ask('POST', `${DR}/primary/revoke-secondary`, { id: 'a' })).status, 204)
  await refused(400, /missing id/, `${DR}/primary/revoke-secondary`)
  assert.deepEqual(
    replication.asked.map(([name]) => name),
    ['enablePrimary', 'issueSecondary', 'issueSecondary', 'revokeSecondary'],
  )
  for (const path of ['promote', 'disable', 'update-primary', 'operation-token/delete', 'reindex', 'merkle-check']) {
    const asked = { dr_operation_token: 'x' }
    await refused(400, /^Not a DR secondary\.\n.*"primary"/, `${DR}/secondary/${path}`, asked, NO_TOKEN)
  }
  await refused(400, /^Not a DR secondary/, ATTEMPT, {}, NO_TOKEN)
  assert.equal((await world.ask('GET', ATTEMPT, undefined, NO_TOKEN)).status, 400)
  const health = await told('GET', 'sys/health', undefined, NO_TOKEN)
  assert.equal(health['replication_dr_mode'], 'primary')
  const elsewhere = await world.ask('POST', `${DR}/primary/demote`, {}, { headers: { 'X-Vault-Namespace': 'team' } })
  assert.equal(elsewhere.status, 404)
})

test('a secondary serves the declared operations and refuses others with the address of the primary', async (t) => {
  const { replication, told, world } = await secondary(t)
  replication.primaryAddress = 'https://10.0.0.2:4646'
  for (const [method, path] of [
    ['GET', 'secret/data/a'],
    ['GET', 'sys/mounts'],
    ['PUT', 'sys/init'],
    ['POST', `${DR}/primary/enable`],
    ['POST', `${DR}/secondary/enable`],
    ['GET', 'auth/token/lookup-self'],
    ['GET', 'nowhere'],
  ] as const) {
    const { body, status } = await world.ask(method, path, method === 'GET' ? undefined : {})
    assert.deepEqual(
      [status, body.errors],
      [400, [DISABLED, 'send the request to the primary, https://10.0.0.2:4646']],
      path,
    )
  }
  const health = await world.ask('GET', 'sys/health', undefined, NO_TOKEN)
  assert.equal(health.status, 472)
  const { initialized, replication_dr_mode: mode, sealed } = health.body
  assert.deepEqual([initialized, sealed, mode], [true, false, 'secondary'])
  assert.equal((await world.ask('GET', 'sys/health?drsecondarycode=299', undefined, NO_TOKEN)).status, 299)
  assert.equal((await told('GET', 'sys/seal-status', undefined, NO_TOKEN))['sealed'], false)
  assert.equal((await told('GET', 'sys/leader', undefined, NO_TOKEN))['is_self'], false)
  assert.equal((await told('GET', 'sys/init', undefined, NO_TOKEN))['initialized'], true)
  assert.deepEqual((await told('GET', `${DR}/status`, undefined, NO_TOKEN)).data, { mode: 'secondary' })
  // A replicated token may still do what it may, where the path takes one.
  const { data } = await told('POST', `${DR}/secondary/generate-public-key`)
  assert.deepEqual(data, { secondary_public_key: 'a-public-key' })
  assert.equal((await world.ask('POST', `${DR}/secondary/generate-public-key`, {}, NO_TOKEN)).status, 403)
})

test('an operation token needs one attempt at a time, shares and a one-time password, and every operation verifies it', async (t) => {
  const opened = await secondary(t)
  const { refused, replication, told, world } = opened
  const idle = await told('GET', ATTEMPT, undefined, NO_TOKEN)
  const fresh = {
    nonce: '',
    started: false,
    progress: 0,
    required: 1,
    complete: false,
    encoded_token: '',
    encoded_root_token: '',
    pgp_fingerprint: '',
    otp: '',
    otp_length: 28,
  }
  assert.deepEqual(idle.data, fresh)
  assert.deepEqual({ ...fresh, ...idle }, idle, 'also beside the envelope')
  await refused(400, /OTP string has incorrect length/, ATTEMPT, { otp: 'short' }, NO_TOKEN)
  await refused(400, /otp and pgp_key are mutually exclusive/, ATTEMPT, { otp: 'x'.repeat(28), pgp_key: 'y' }, NO_TOKEN)
  await refused(
    400,
    /no root generation in progress/,
    UPDATE,
    { key: world.unsealKey.toString('hex'), nonce: 'n' },
    NO_TOKEN,
  )
  const { nonce } = await told('POST', ATTEMPT, null, NO_TOKEN)
  await refused(400, /root generation already in progress/, ATTEMPT, {}, NO_TOKEN)
  await refused(400, /'key' must be specified/, UPDATE, { nonce }, NO_TOKEN)
  const wrong = await world.ask('PUT', UPDATE, { key: world.unsealKey.toString('hex'), nonce: 'other' }, NO_TOKEN)
  assert.deepEqual([wrong.status, wrong.body.errors], [400, ['incorrect nonce supplied']])
  assert.equal((await world.ask('DELETE', ATTEMPT, { nonce }, NO_TOKEN)).status, 204)
  assert.equal((await told('GET', ATTEMPT, undefined, NO_TOKEN))['started'], false)
  assert.equal((await world.ask('DELETE', ATTEMPT, undefined, NO_TOKEN)).status, 204, 'there is nothing to cancel')

  const token = await operationToken(opened)
  assert.match(token, /^hvs\.[A-Za-z0-9]{24}$/)
  const asToken = await world.ask('POST', `${DR}/secondary/generate-public-key`, {}, { token })
  assert.equal(asToken.status, 403, 'it is no token of the core')
  for (const path of ['promote', 'disable', 'update-primary', 'operation-token/delete', 'reindex', 'merkle-check']) {
    await refused(400, /^DR operation token was not provided$/, `${DR}/secondary/${path}`, {}, NO_TOKEN)
    await refused(403, /^permission denied$/, `${DR}/secondary/${path}`, { dr_operation_token: `${token}x` }, NO_TOKEN)
    await refused(
      403,
      /^permission denied$/,
      `${DR}/secondary/${path}`,
      { dr_operation_token: world.rootToken },
      NO_TOKEN,
    )
  }
  const held = { dr_operation_token: token }
  const { data } = await told('POST', `${DR}/secondary/merkle-check`, held, NO_TOKEN)
  assert.deepEqual(data, { merkle_corruption_report: { corrupted_root: false } })
  assert.equal((await told('POST', `${DR}/secondary/reindex`, { ...held, diff: true }, NO_TOKEN)).warnings?.length, 1)
  assert.deepEqual(replication.asked.at(-1), ['reindex', { diff: true, force: false, skipFlush: false }])

  const newer = await operationToken(opened)
  await refused(403, /^permission denied$/, `${DR}/secondary/operation-token/delete`, held, NO_TOKEN)
  const deleted = await world.ask(
    'POST',
    `${DR}/secondary/operation-token/delete`,
    { dr_operation_token: newer },
    NO_TOKEN,
  )
  assert.equal(deleted.status, 204)
  await refused(403, /^permission denied$/, `${DR}/secondary/promote`, { dr_operation_token: newer }, NO_TOKEN)
})

test('canceling an operation-token attempt requires its nonce, also with a token that has sudo', async (t) => {
  const { told, world } = await secondary(t)
  const { nonce } = await told('POST', ATTEMPT, {}, NO_TOKEN)
  for (const [body, asking, text] of [
    [undefined, NO_TOKEN, 'no nonce supplied'],
    [{ nonce: 'other' }, NO_TOKEN, 'incorrect nonce supplied'],
    [{}, {}, 'no nonce supplied'],
  ] as const) {
    const refused = await world.ask('DELETE', ATTEMPT, body, asking)
    assert.deepEqual([refused.status, refused.body.errors], [400, [`${text}: send the nonce of the attempt to cancel`]])
    assert.equal((await told('GET', ATTEMPT, undefined, NO_TOKEN))['nonce'], nonce, 'the attempt goes on')
  }
  assert.equal((await world.ask('DELETE', `${ATTEMPT}?nonce=${String(nonce)}`, undefined, NO_TOKEN)).status, 204)
  assert.equal((await told('GET', ATTEMPT, undefined, NO_TOKEN))['started'], false)
})

test('an operation token can be encrypted to a PGP key, and attempts are limited per address', async (t) => {
  const { refused, told, world } = await secondary(t)
  const owner = await newPgpKey('owner')
  const started = await told('PUT', ATTEMPT, { pgp_key: owner.publicKey }, NO_TOKEN)
  assert.deepEqual([started['otp'], started['pgp_fingerprint']], ['', owner.fingerprint])
  const key = world.unsealKey.toString('base64')
  const { encoded_token: encoded } = await told('PUT', UPDATE, { key, nonce: started['nonce'] }, NO_TOKEN)
  assert.match(await owner.decrypt(Buffer.from(String(encoded), 'base64')), /^hvs\./)
  await refused(400, /error parsing PGP key/, ATTEMPT, { pgp_key: 'bm8=' }, NO_TOKEN)
  for (let count = 0; count < 40; count++) await world.ask('DELETE', ATTEMPT, undefined, NO_TOKEN)
  await refused(429, /attempts to generate an operation token in a minute/, ATTEMPT, {}, NO_TOKEN)
  assert.equal((await world.ask('POST', ATTEMPT, {}, { token: null, remote: '10.1.1.1' })).status, 200)
})

test('promote activates the core with the held key, consumes the operation token, and keeps earlier tokens valid', async (t) => {
  const opened = await secondary(t)
  const { refused, replication, told, world } = opened
  const dr_operation_token = await operationToken(opened)
  const promoted = await told('PUT', `${DR}/secondary/promote`, { dr_operation_token, force: 'true' }, NO_TOKEN)
  assert.match(promoted.warnings?.[0] ?? '', /^This cluster is being promoted to a replication primary\. /)
  assert.deepEqual(replication.asked.at(-1), ['promote', { primaryClusterAddr: '', force: true }])
  assert.ok(world.core.isActive)
  assert.equal((await told('GET', 'auth/token/lookup-self')).data['path'], 'auth/token/root')
  await told('POST', `${DR}/primary/demote`)
  await refused(403, /^permission denied$/, `${DR}/secondary/promote`, { dr_operation_token }, NO_TOKEN)
  const events = world.lines.filter(({ message }) => /promoted|demoted/.test(message)).slice(-2)
  const [promotion, demotion] = events.map(({ fields }) => fields)
  assert.equal(promotion?.['accessor'], '', 'no token was sent')
  assert.equal(promotion['authorized_by'], 'operation token')
  assert.ok(String(demotion?.['accessor']).length > 10, 'the accessor of the root token')
  assert.ok(events.every(({ fields }) => typeof fields['remote'] === 'string'))
})

test('the operation token stays valid after a refused promotion, and is spent by one that succeeds', async (t) => {
  const opened = await secondary(t)
  const { refused, replication, told } = opened
  const dr_operation_token = await operationToken(opened)
  replication.refusal = new Refusal('invalid_request', 'replication is still catching up')
  for (const force of [false, true]) {
    await refused(400, /still catching up/, `${DR}/secondary/promote`, { dr_operation_token, force }, NO_TOKEN)
  }
  await told('POST', `${DR}/secondary/merkle-check`, { dr_operation_token }, NO_TOKEN)
  replication.refusal = undefined
  await told('POST', `${DR}/secondary/promote`, { dr_operation_token }, NO_TOKEN)
  await told('POST', `${DR}/primary/demote`)
  await refused(403, /^permission denied$/, `${DR}/secondary/merkle-check`, { dr_operation_token }, NO_TOKEN)
})

test('update-primary accepts a token, addresses, or a blank token that removes the primary, and refuses both or neither', async (t) => {
  const opened = await secondary(t)
  const { refused, replication, told } = opened
  const dr_operation_token = await operationToken(opened)
  const path = `${DR}/secondary/update-primary`
  const both = { dr_operation_token, token: 'a', update_primary_addrs: ['h:1'] }
  await refused(400, /are mutually exclusive/, path, both, NO_TOKEN)
  await refused(400, /are mutually exclusive/, path, { ...both, token: '' }, NO_TOKEN)
  await refused(400, /missing token or update_primary_addrs/, path, { dr_operation_token }, NO_TOKEN)
  await refused(
    400,
    /expected https:\/\/host:port or host:port/,
    path,
    { ...both, token: undefined, update_primary_addrs: ['x'] },
    NO_TOKEN,
  )
  const ask = (more: object) => told('POST', path, { dr_operation_token, ...more }, NO_TOKEN)
  assert.match((await ask({ token: '' })).warnings?.[0] ?? '', /^Vault has successfully found secondary information/)
  await ask({ update_primary_addrs: ['https://h:1', 'i:2'] })
  await ask({ token: 'dr1.x' })
  assert.deepEqual(replication.asked.slice(-3), [
    ['updatePrimary', { forget: true }],
    ['updatePrimary', { addresses: ['https://h:1', 'i:2'] }],
    ['updatePrimary', { bundle: { token: 'dr1.x' } }],
  ])
})

test('secondary/enable refuses an invalid token before it deletes data', async (t) => {
  const { refused, replication, told, world } = await open(t)
  const path = `${DR}/secondary/enable`
  await refused(403, /permission denied/, path, { token: 'x' }, NO_TOKEN)
  await refused(400, /missing token/, path, {})
  await refused(400, /has no address/, path, { token: 's.plain' })
  await refused(400, /primary_api_addr: expected a URL/, path, { token: 's.plain', primary_api_addr: 'ftp://x' })
  await refused(400, /has expired; create a new one/, path, { token: jwt({ addr: 'https://h:1', exp: 1 }) })
  const token = jwt({ addr: 'https://h:1', exp: 4e9 })
  await refused(400, /status code is 400: the activation token was used already, has expired, was revoked/, path, {
    token,
  })
  replication.unwrapped = new Error('connect ECONNREFUSED')
  await refused(400, /Post "https:\/\/h:1\/v1\/sys\/wrapping\/unwrap": connect ECONNREFUSED/, path, { token })
  replication.unwrapped = { status: 503, text: '{"errors":["Vault is sealed"]}' }
  await refused(400, /status code is 503: Vault is sealed: check that/, path, { token })
  assert.deepEqual(replication.asked, [])
  assert.ok(world.core.isActive)
  replication.unwrapped = { status: 200, text: '{"data":{"id":"a"}}' }
  const given = { token, primary_api_addr: 'https://other:2/', ca_file: '/ca', ca_path: '/cas', ca_cert: 'PEM' }
  assert.match((await told('PUT', path, given)).warnings?.[0] ?? '', /^Vault has successfully found/)
  assert.deepEqual(replication.unwraps.at(-1), {
    address: 'https://other:2',
    caFile: '/ca',
    caPath: '/cas',
    caCert: 'PEM',
  })
  assert.deepEqual(replication.asked, [['enableSecondary', { parsed: { id: 'a' } }]])
})

test('activation over plain HTTP to another host needs insecure=true; loopback and HTTPS do not', async (t) => {
  const opened = await open(t)
  const { refused, replication, told } = opened
  const path = `${DR}/secondary/enable`
  const token = jwt({ addr: 'http://10.0.0.9:4646', exp: 4e9 })
  replication.unwrapped = new Error('connect ECONNREFUSED')
  await refused(400, /plain HTTP \(http:\/\/10\.0\.0\.9:4646\).*insecure=true/, path, { token })
  await refused(400, /plain HTTP/, path, { token, primary_api_addr: 'http://primary.example:4646', insecure: false })
  await refused(400, /plain HTTP/, path, { token, primary_api_addr: 'http://127.0.0.1.example:1' })
  assert.deepEqual(replication.unwraps, [], 'the token went nowhere')
  const loopback = ['http://127.0.0.1:4646', 'http://127.1:4646', 'http://localhost:4646', 'http://[::1]:4646']
  for (const address of [...loopback, 'https://10.0.0.9:4646']) {
    await refused(400, /ECONNREFUSED/, path, { token, primary_api_addr: address })
  }
  await refused(400, /ECONNREFUSED/, path, { token, insecure: true })
  assert.equal(replication.unwraps.length, loopback.length + 2)
  await told('POST', `${DR}/primary/enable`)
  await told('POST', `${DR}/primary/demote`)
  const dr_operation_token = await operationToken(opened)
  await refused(400, /plain HTTP/, `${DR}/secondary/update-primary`, { dr_operation_token, token }, NO_TOKEN)
})

test('paths that change replication need sudo on the path', async (t) => {
  const { refused, replication, told, world } = await open(t)
  const policy = `path "${DR}/*" { capabilities = ["create", "update", "read"] }`
  assert.equal((await world.ask('PUT', 'sys/policies/acl/operator', { policy })).status, 204)
  const { auth } = await told('POST', 'auth/token/create', { policies: ['operator'], no_parent: true })
  const asking = { token: String(auth['client_token']) }
  const changes = ['primary/enable', 'secondary/enable', 'secondary/generate-public-key', 'primary/secondary-token']
  for (const path of changes) await refused(403, /permission denied/, `${DR}/${path}`, { token: 'x', id: 'a' }, asking)
  assert.deepEqual(replication.asked, [])
  await told('POST', `${DR}/primary/enable`)
  for (const path of ['demote', 'disable', 'revoke-secondary', 'secondary-token']) {
    await refused(403, /permission denied/, `${DR}/primary/${path}`, { id: 'a' }, asking)
  }
  assert.deepEqual(replication.asked, [['enablePrimary', { primaryClusterAddr: '' }]])
  await told('POST', `${DR}/primary/demote`)
  await refused(403, /permission denied/, `${DR}/secondary/generate-public-key`, {}, asking)
})

test('dr/status answers in any namespace; other replication paths only in the root namespace', async (t) => {
  const { told, world } = await open(t)
  const asking = { token: null, headers: { 'X-Vault-Namespace': 'team/a' } }
  assert.deepEqual((await told('GET', `${DR}/status`, undefined, asking)).data, { mode: 'disabled' })
  const others: readonly (readonly [string, string])[] = [
    ['GET', 'sys/replication/status'],
    ['GET', 'sys/replication/performance/status'],
    ['POST', `${DR}/primary/enable`],
    ['GET', ATTEMPT],
    ['GET', 'sys/health'],
  ]
  for (const [method, path] of others) {
    const { body, status } = await world.ask(method, path, method === 'GET' ? undefined : {}, {
      headers: asking.headers,
    })
    assert.deepEqual([status, body.errors?.[0]], [404, 'namespace not found'], path)
  }
})

test('a sealed secondary needs its key and serves status and unseal, and sealing requires permission', async (t) => {
  const opened = await secondary(t)
  const { refused, told, world } = opened
  const dr_operation_token = await operationToken(opened)
  await refused(400, /DR operation token was not provided/, 'sys/seal', {}, NO_TOKEN)
  await refused(403, /permission denied/, 'sys/seal', {}, { token: 's.nobodys' })
  assert.equal((await world.ask('PUT', 'sys/seal', {})).status, 204, 'the root token of the primary')
  assert.equal((await world.ask('GET', 'sys/health', undefined, NO_TOKEN)).status, 503)
  await refused(503, /Vault is sealed/, `${DR}/secondary/promote`, { dr_operation_token }, NO_TOKEN)
  await refused(503, /Vault is sealed/, ATTEMPT, {}, NO_TOKEN)
  assert.deepEqual((await told('GET', `${DR}/status`, undefined, NO_TOKEN)).data, { mode: 'secondary' })
  const key = Buffer.alloc(32).toString('hex')
  await refused(400, /unseal failed, invalid key/, 'sys/unseal', { key }, NO_TOKEN)
  const opening = await told('PUT', 'sys/unseal', { key: world.unsealKey.toString('hex') }, NO_TOKEN)
  assert.equal(opening['sealed'], false)
  assert.ok(!world.core.isActive && world.core.barrier.isSealed, 'the barrier stays closed')
  assert.equal((await world.ask('PUT', 'sys/seal', { dr_operation_token }, NO_TOKEN)).status, 204)
})

test('a batch token of the primary is accepted as an operation token if its policy allows it', async (t) => {
  const { refused, told, world } = await open(t)
  const policy = `path "${DR}/secondary/promote" { capabilities = ["update"] }`
  assert.equal((await world.ask('PUT', 'sys/policies/acl/night', { policy })).status, 204)
  const { auth } = await told('POST', 'auth/token/create', {
    type: 'batch',
    policies: ['night'],
    ttl: '8h',
    no_parent: true,
  })
  const dr_operation_token = auth['client_token']
  await told('POST', `${DR}/primary/enable`)
  await told('POST', `${DR}/primary/demote`)
  await refused(403, /permission denied/, `${DR}/secondary/disable`, { dr_operation_token }, NO_TOKEN)
  await told('POST', `${DR}/secondary/promote`, { dr_operation_token }, NO_TOKEN)
})
