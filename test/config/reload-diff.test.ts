import assert from 'node:assert/strict'
import { test } from 'node:test'
import { loadConfig } from '../../src/config/load.ts'
import { diffReload } from '../../src/config/reload-diff.ts'
import { readTlsFiles } from '../../src/config/tls-files.ts'

const dev = loadConfig({ paths: [], dev: true, flags: { dataDir: '/tmp/outpost' } }).config

test('a reload applies what it can and names the settings that need a restart', () => {
  const loaded = {
    ...dev,
    logLevel: 'debug',
    ports: { ...dev.ports, http: 1 },
    limits: { ...dev.limits, httpMaxFollowers: 7, httpMaxHeaderBytes: 1024 },
    logFile: '/var/log/outpost.log',
    logRotate: { ...dev.logRotate, maxFiles: 3 },
    client: { ...dev.client, gcIntervalMs: 1, meta: { rack: 'r1' } },
  } as const
  const { config, applied, needsRestart } = diffReload(dev, loaded)
  assert.deepEqual([config.logLevel, config.limits.httpMaxFollowers], ['debug', 7])
  assert.deepEqual(
    [config.ports, config.limits.httpMaxHeaderBytes, config.logFile],
    [dev.ports, 16_384, loaded.logFile],
  )
  assert.deepEqual([...applied].sort(), ['limits.http_max_followers', 'log_file', 'log_level', 'log_rotate_max_files'])
  const restart = ['client.gc_interval', 'client.meta', 'limits.http_max_header_bytes', 'ports.http']
  assert.deepEqual([...needsRestart].sort(), restart)
  assert.deepEqual(diffReload(config, dev).config.logFile, undefined, 'and back to standard error')
  assert.deepEqual(diffReload(dev, { ...dev, logLevel: 'warn' }).needsRestart, [])
})

test('a reload applies the keys of servers, and the addresses of NATS need a restart', () => {
  const [one, other] = ['UBTKRORWXFSSLTVAAU63E5OYNJTNQXOUJNQ6QWBCWWZFQLXFUELQMTBM', 'UOTHER']
  const running = { ...dev, nats: { servers: ['nats://a:1'], serverKeys: [one] } }
  const loaded = { ...dev, nats: { servers: ['nats://b:1'], serverKeys: [one, other], coreKeys: [other] } }
  const { config, applied, needsRestart } = diffReload(running, loaded)
  assert.deepEqual(config.nats, { servers: ['nats://a:1'], serverKeys: [one, other], coreKeys: [other] })
  assert.deepEqual(applied, ['nats.server_keys', 'nats.core_keys'])
  assert.deepEqual(needsRestart, ['nats.servers'])
  assert.deepEqual(diffReload(config, { ...dev, nats: { servers: ['nats://a:1'] } }).config.nats, {
    servers: ['nats://a:1'],
  })
})

test('a reload applies a new, changed and removed login of the agent', () => {
  const secrets = { role: { mount: 'auth/approle', roleId: 'r', secretIdFile: '/s' } }
  const { config, applied, needsRestart } = diffReload(dev, { ...dev, secrets })
  assert.deepEqual([config.secrets, applied, needsRestart], [secrets, ['secrets'], []])
  const other = { role: { ...secrets.role, roleId: 'q' }, address: { url: 'https://s1:4646' } }
  assert.deepEqual(diffReload(config, { ...dev, secrets: other }).applied, ['secrets.role.role_id', 'secrets.address'])
  assert.equal(diffReload(config, dev).config.secrets, undefined)
})

test('the error of an unreadable TLS file names its setting', () => {
  const tls = { http: true, certFile: '/nowhere/cert.pem', keyFile: '/nowhere/key.pem', verifyHttpsClient: false }
  assert.throws(() => readTlsFiles({ ...tls, minVersion: 'TLSv1.2' }), /^Error: tls\.cert_file cannot be read: ENOENT/)
  assert.equal(readTlsFiles({ ...tls, http: false, minVersion: 'TLSv1.2' }), undefined)
})
