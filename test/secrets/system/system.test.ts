/** The endpoints of `sys/` for the state and the global settings of the server. */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { test, type TestContext } from 'node:test'
import { Validator } from '@seriousme/openapi-schema-validator'
import { kv } from '../../../src/engines/kv/kv.ts'
import { isObject } from '../../../src/engines/framework/fields.ts'
import { CoreWorld } from '../../helpers/core-world.ts'
import { MountTestEngine } from '../../helpers/mount-test-engine.ts'

async function open(t: TestContext) {
  const world = await CoreWorld.open(t, { engines: [kv, new MountTestEngine().engine] })
  const told = async (method: string, path: string, body?: unknown) => {
    const answer = await world.ask(method, path, body)
    assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${answer.text}`)
    return answer.body
  }
  const refused = async (method: string, path: string, body: unknown, ...errors: string[]) => {
    const answer = await world.ask(method, path, body)
    assert.deepEqual([answer.status, answer.body.errors], [400, errors], `${method} ${path}`)
  }
  return { world, told, refused }
}

test('sys/health has the fields that clients need and the status codes that load balancers expect', async (t) => {
  const world = await CoreWorld.open(t, { raw: true })
  const asked = (query = '') => world.ask('GET', `sys/health${query}`, undefined, { token: null })
  assert.equal((await asked()).status, 501)
  assert.equal((await asked('?uninitcode=299')).status, 299)
  await world.initialise()
  const all = '?standbycode=299&drsecondarycode=299&performancestandbycode=299&removedcode=299&haunhealthycode=299'
  const { body, status } = await asked(`${all}&perfstandbyok=true&standbyok=1`)
  assert.equal(status, 200)
  assert.deepEqual(Object.keys(body), [
    'initialized',
    'sealed',
    'standby',
    'performance_standby',
    'replication_performance_mode',
    'replication_dr_mode',
    'server_time_utc',
    'version',
    'outpost_version',
    'cluster_name',
    'cluster_id',
    'last_wal',
  ])
  assert.equal((await asked('?activecode=204')).text, '')
  for (const code of ['abc', '1', '99', '199', '600', '1e9', '-1', '2.5']) {
    assert.equal((await asked(`?activecode=${code}`)).status, 400, code)
  }
  assert.equal((await asked('?sealedcode=1')).status, 200, 'a code that is not needed is not looked at')
  await world.core.seal()
  const sealed = await asked()
  assert.deepEqual([sealed.status, sealed.body['cluster_id']], [503, undefined])
  assert.equal((await asked('?sealedcode=200')).status, 200)
})

test('a sealed or uninitialized server answers 503 on all paths except those that need no core', async (t) => {
  const world = await CoreWorld.open(t, { raw: true })
  const open200 = new Set(['sys/leader', 'sys/seal-status', 'sys/init', 'sys/health?uninitcode=200&sealedcode=200'])
  const check = async () => {
    for (const path of [
      ...open200,
      'sys/mounts',
      'sys/auth',
      'sys/internal/ui/mounts',
      'sys/nope',
      'x/y',
      'cubbyhole/a',
      'auth/token/lookup-self',
      'sys/internal/specs/openapi',
      'sys/config/cors',
      '',
    ]) {
      const { body, status } = await world.ask('GET', path, undefined, { token: 'any' })
      if (open200.has(path)) assert.equal(status, 200, path)
      else assert.deepEqual([status, body.errors], [503, ['Vault is sealed']], path)
    }
    assert.equal((await world.ask('POST', 'sys/mounts/x', { type: 'kv-v2' })).status, 503)
  }
  await check()
  await world.initialise()
  await world.core.seal()
  await check()
})

test('leader, servers and replication status are reported', async (t) => {
  const { told, world } = await open(t)
  assert.equal((await told('GET', 'sys/leader'))['ha_enabled'], false)
  const { data, nodes } = await told('GET', 'sys/ha-status')
  assert.deepEqual(data['nodes'], nodes)
  assert.ok(Array.isArray(nodes) && nodes.length === 1 && isObject(nodes[0]) && nodes[0]['active_node'] === true)
  for (const path of ['sys/replication/dr/status', 'sys/replication/performance/status']) {
    const { body } = await world.ask('GET', path, undefined, { token: null })
    assert.deepEqual(body.data, { mode: 'disabled' })
  }
})

test('host info, metrics and requests in progress are reported', async (t) => {
  const { refused, told } = await open(t)
  const { data } = await told('GET', 'sys/host-info')
  assert.deepEqual(Object.keys(data), ['timestamp', 'cpu', 'cpu_times', 'disk', 'host', 'memory'])
  const processors = data['cpu']
  assert.ok(Array.isArray(processors) && isObject(processors[0]) && Array.isArray(processors[0]['flags']))
  assert.ok(processors[0]['flags'].length > 0, 'the kernel lists them for each processor')
  assert.ok(isObject(data['memory']) && Number(data['memory']['total']) > 0)
  assert.ok(Array.isArray(data['disk']) && isObject(data['disk'][0]) && Number(data['disk'][0]['total']) > 0)
  await refused('GET', 'sys/metrics?format=xml', undefined, 'metric response format "xml" unknown')
  const underWay = Object.values(await told('GET', 'sys/in-flight-req'))
  assert.equal(underWay.length, 1)
  assert.ok(isObject(underWay[0]) && underWay[0]['request_path'] === '/v1/sys/in-flight-req')
})

test('sys/tools/hash computes hashes', async (t) => {
  const { refused, told } = await open(t)
  const input = Buffer.from('hi').toString('base64')
  for (const [name, own] of [
    ['sha2-224', 'sha224'],
    ['sha2-256', 'sha256'],
    ['sha2-384', 'sha384'],
    ['sha2-512', 'sha512'],
    ['sha3-224', 'sha3-224'],
    ['sha3-512', 'sha3-512'],
  ] as const) {
    const sum = createHash(own).update('hi')
    assert.equal((await told('POST', `sys/tools/hash/${name}`, { input })).data['sum'], sum.copy().digest('hex'))
    const body = { input, algorithm: name, format: 'base64' }
    assert.equal((await told('POST', 'sys/tools/hash', body)).data['sum'], sum.digest('base64'))
  }
  await refused('POST', 'sys/tools/hash', { input: '%%' }, 'unable to decode input as base64')
  await refused('POST', 'sys/tools/hash/md5', { input }, 'unsupported algorithm "md5"')
  await refused('POST', 'sys/tools/hash/constructor', { input }, 'unsupported algorithm "constructor"')
  await refused(
    'POST',
    'sys/tools/hash',
    { input, format: 'x' },
    'unsupported encoding format "x"; must be "hex" or "base64"',
  )
})

test('sys/tools/random returns random bytes', async (t) => {
  const { refused, told } = await open(t)
  const bytes = async (path: string, body: object = {}) => {
    const { format = 'base64' } = { ...body } as { format?: BufferEncoding }
    return Buffer.from(String((await told('POST', `sys/tools/${path}`, body)).data['random_bytes']), format).length
  }
  assert.equal(await bytes('random'), 32)
  assert.equal(await bytes('random', { bytes: '7', format: 'hex' }), 7)
  assert.equal(await bytes('random/16', { format: 'hex', bytes: 3 }), 16)
  assert.equal(await bytes('random/platform'), 32)
  assert.equal(await bytes('random/all/131072'), 131_072)
  await refused('POST', 'sys/tools/random/0', {}, '"bytes" cannot be less than 1')
  await refused('POST', 'sys/tools/random/131073', {}, '"bytes" should be less than or equal to 131072')
  await refused('POST', 'sys/tools/random/x', {}, 'error parsing url-set byte count: must be an integer')
  await refused('POST', 'sys/tools/random/moon/5', {}, 'unsupported entropy source "moon"')
})

test('CORS settings are validated, effective immediately, and kept over a restart', async (t) => {
  const { refused, told, world } = await open(t)
  assert.deepEqual((await told('GET', 'sys/config/cors'))['enabled'], false)
  const rule = () => world.core.crossOrigin
  assert.equal(rule(), undefined)
  await refused('POST', 'sys/config/cors', {}, 'at least one origin or the wildcard must be provided')
  await refused(
    'POST',
    'sys/config/cors',
    { allowed_origins: ['*', 'https://a.example'] },
    "to allow all origins the '*' must be the only value for allowed_origins",
  )
  for (const wrong of ['a.example', 'https://a.example/path', 'https://', 'javascript:x']) {
    assert.equal((await world.ask('POST', 'sys/config/cors', { allowed_origins: wrong })).status, 400, wrong)
  }
  const some = { allowed_origins: 'https://a.example,http://b.example:8200', allowed_headers: 'X-Own, x-vault-token' }
  await told('POST', 'sys/config/cors', { ...some, allow_credentials: true })
  await world.core.seal()
  world.unseal()
  assert.deepEqual(rule()?.allowedOrigins, ['https://a.example', 'http://b.example:8200'])
  assert.equal(rule()?.allowedHeaders.filter((each) => /own|token/i.test(each)).length, 2)
  await told('DELETE', 'sys/config/cors')
  assert.equal(rule(), undefined)
})

test('request headers for the audit log and response headers are configured', async (t) => {
  const { refused, told, world } = await open(t)
  const audited = 'sys/config/auditing/request-headers'
  await Promise.all([told('POST', `${audited}/X-One`, { hmac: true }), told('POST', `${audited}/X-Two`)])
  const both = { 'x-one': { hmac: true }, 'x-two': { hmac: false } }
  assert.deepEqual((await told('GET', audited)).data, { headers: both })
  assert.deepEqual((await told('GET', `${audited}/X-One`)).data, { 'X-One': { hmac: true } })
  await told('DELETE', `${audited}/X-One`)
  await refused('GET', `${audited}/X-One`, undefined, 'Could not find header in config')
  const shown = 'sys/config/ui/headers'
  assert.equal((await world.ask('LIST', shown)).status, 404)
  await told('POST', `${shown}/X-Frame`, { values: ['a', 'b'] })
  assert.deepEqual((await told('LIST', shown)).data['keys'], ['x-frame'])
  assert.deepEqual((await told('GET', `${shown}/X-Frame?multivalue=true`)).data['values'], ['a', 'b'])
  await refused('POST', `${shown}/X-Vault-Own`, { values: ['a'] }, 'X-Vault headers cannot be set')
  await refused(
    'POST',
    `${shown}/X-A`,
    { values: ['a\r\nb'] },
    'the value of a header must be one line of at most 8192 characters',
  )
  await refused('POST', `${shown}/X-A`, { values: [] }, 'headers must have at least one value')
  // Inherited keys of objects are not configured headers.
  for (const name of ['constructor', '__proto__']) {
    await refused('GET', `${audited}/${name}`, undefined, 'Could not find header in config')
    assert.equal((await world.ask('GET', `${shown}/${name}`)).status, 404, name)
    await refused('POST', `${shown}/${name}`, { values: ['a'] }, 'invalid header name')
  }
})

test('engines, version history and tokens are listed', async (t) => {
  const { refused, told, world } = await open(t)
  assert.deepEqual((await told('LIST', 'sys/plugins/catalog/secret')).data['keys'], ['kv', 'shelf'])
  assert.equal((await world.ask('LIST', 'sys/plugins/catalog/auth')).status, 404)
  await refused('LIST', 'sys/plugins/catalog/x', undefined, '"x" is not a supported plugin type')
  assert.equal((await told('GET', 'sys/plugins/catalog/secret/kv')).data['builtin'], true)
  assert.equal((await world.ask('GET', 'sys/plugins/catalog/secret/cubbyhole')).status, 404)
  const { data } = await told('GET', 'sys/plugins/catalog')
  assert.deepEqual([data['secret'], data['auth'], data['database']], [['kv', 'shelf'], [], []])
  assert.deepEqual((await told('LIST', 'sys/version-history')).data['keys'], ['0.0.0-test'])
  const counters = (await told('GET', 'sys/internal/counters/tokens')).data['counters']
  assert.deepEqual(counters, { service_tokens: { total: 1 } })
})

test('the OpenAPI document is valid and shows no mounts to a caller without a token', async (t) => {
  const { told, world } = await open(t)
  await told('POST', 'sys/mounts/team/things', { type: 'shelf' })
  await told('POST', 'sys/mounts/secret', { type: 'kv-v2' })
  for (const [path, token, has, hasNot] of [
    ['sys/internal/specs/openapi', undefined, '/team/things/{name}', '/{shelf_mount_path}/{name}'],
    [
      'sys/internal/specs/openapi?generic_mount_paths=true',
      undefined,
      '/{kv_mount_path}/data/{path}',
      '/team/things/{name}',
    ],
    ['sys/internal/specs/openapi', null, '/sys/mounts/{path}/tune', '/team/things/{name}'],
  ] as const) {
    const { body, status } = await world.ask('GET', path, undefined, { token })
    assert.equal(status, 200)
    const result = await new Validator().validate(structuredClone(body))
    assert.deepEqual(result.errors ?? [], [])
    const paths = Object.keys(isObject(body['paths']) ? body['paths'] : {})
    assert.ok(paths.includes(has), paths.join())
    assert.ok(!paths.includes(hasNot))
    const ids = [...JSON.stringify(body).matchAll(/"operationId":"([^"]+)"/g)].map(([, id]) => id)
    assert.equal(new Set(ids).size, ids.length, 'each operation has a name of its own')
  }
})
