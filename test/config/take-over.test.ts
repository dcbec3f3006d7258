import assert from 'node:assert/strict'
import { test } from 'node:test'
import { loadConfig } from '../../src/config/load.ts'
import { takeOver } from '../../src/config/reload-diff.ts'
import { readTlsFiles } from '../../src/config/tls-files.ts'

const dev = loadConfig({ paths: [], dev: true, flags: { dataDir: '/tmp/outpost' } }).config

test('what can change while running is taken over, the rest waits and is named', () => {
  const loaded = {
    ...dev,
    logLevel: 'debug',
    ports: { ...dev.ports, http: 1 },
    limits: { ...dev.limits, httpMaxFollowers: 7, httpMaxHeaderBytes: 1024 },
    logFile: '/var/log/outpost.log',
    logRotate: { ...dev.logRotate, maxFiles: 3 },
    client: { ...dev.client, gcIntervalMs: 1, meta: { rack: 'r1' } },
  } as const
  const { config, taken, waiting } = takeOver(dev, loaded)
  assert.deepEqual([config.logLevel, config.limits.httpMaxFollowers], ['debug', 7])
  assert.deepEqual(
    [config.ports, config.limits.httpMaxHeaderBytes, config.logFile],
    [dev.ports, 16_384, loaded.logFile],
  )
  assert.deepEqual([...taken].sort(), ['limits.http_max_followers', 'log_file', 'log_level', 'log_rotate_max_files'])
  const restart = ['client.gc_interval', 'client.meta', 'limits.http_max_header_bytes', 'ports.http']
  assert.deepEqual([...waiting].sort(), restart)
  assert.deepEqual(takeOver(config, dev).config.logFile, undefined, 'and back to standard error')
  assert.deepEqual(takeOver(dev, { ...dev, logLevel: 'warn' }).waiting, [])
})

test('the keys of servers are taken over, the addresses of NATS wait', () => {
  const [one, other] = ['UBTKRORWXFSSLTVAAU63E5OYNJTNQXOUJNQ6QWBCWWZFQLXFUELQMTBM', 'UOTHER']
  const running = { ...dev, nats: { servers: ['nats://a:1'], serverKeys: [one] } }
  const loaded = { ...dev, nats: { servers: ['nats://b:1'], serverKeys: [one, other], coreKeys: [other] } }
  const { config, taken, waiting } = takeOver(running, loaded)
  assert.deepEqual(config.nats, { servers: ['nats://a:1'], serverKeys: [one, other], coreKeys: [other] })
  assert.deepEqual(taken, ['nats.server_keys', 'nats.core_keys'])
  assert.deepEqual(waiting, ['nats.servers'])
  assert.deepEqual(takeOver(config, { ...dev, nats: { servers: ['nats://a:1'] } }).config.nats, {
    servers: ['nats://a:1'],
  })
})

test('the login of the agent is taken over, also where it begins or ends', () => {
  const secrets = { role: { mount: 'auth/approle', roleId: 'r', secretIdFile: '/s' } }
  const { config, taken, waiting } = takeOver(dev, { ...dev, secrets })
  assert.deepEqual([config.secrets, taken, waiting], [secrets, ['secrets'], []])
  const other = { role: { ...secrets.role, roleId: 'q' }, address: { url: 'https://s1:4646' } }
  assert.deepEqual(takeOver(config, { ...dev, secrets: other }).taken, ['secrets.role.role_id', 'secrets.address'])
  assert.equal(takeOver(config, dev).config.secrets, undefined)
})

test('a TLS file that cannot be read is told by its setting', () => {
  const tls = { http: true, certFile: '/nowhere/cert.pem', keyFile: '/nowhere/key.pem', verifyHttpsClient: false }
  assert.throws(() => readTlsFiles({ ...tls, minVersion: 'TLSv1.2' }), /^Error: tls\.cert_file cannot be read: ENOENT/)
  assert.equal(readTlsFiles({ ...tls, http: false, minVersion: 'TLSv1.2' }), undefined)
})
