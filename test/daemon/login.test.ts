/**
 * The login of an agent at a server over HTTPS: trusted authorities, presented certificate, and errors for the operator.
 */
import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { loadConfig } from '../../src/config/load.ts'
import { agentLogin, loginChecks, loginFamilies } from '../../src/daemon/modules/login.ts'
import { approle } from '../../src/auth/approle/approle.ts'
import { readLogin } from '../../src/login/login-file.ts'
import { makeCertificates } from '../helpers/certificates.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { eventually } from '../helpers/eventually.ts'
import { recordingLogger, type LogLine } from '../helpers/recording-logger.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

/** The core of `world` by HTTPS, for callers with a certificate of the same authority. Resolves with its port. */
async function serve(t: TestContext, world: CoreWorld, directory: string): Promise<number> {
  const pem = (name: string) => readFileSync(join(directory, name))
  const tls = { cert: pem('server.pem'), key: pem('server.key'), ca: pem('ca.pem'), requestCert: true }
  const server = createServer({ ...tls, rejectUnauthorized: true }, (request, response) => {
    let body = ''
    request.setEncoding('utf8').on('data', (text: string) => (body += text))
    request.on('end', () => {
      const path = (request.url ?? '').slice('/v1/'.length)
      const token = request.headers['x-vault-token']
      const options = { token: typeof token === 'string' ? token : null }
      const answered = world.ask(request.method ?? '', path, body, options)
      void answered.then(({ status, text }) => response.writeHead(status).end(text))
    })
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  t.after(() => server.closeAllConnections())
  t.after(() => server.close())
  return (server.address() as AddressInfo).port
}

test('a login over HTTPS trusts only the configured CA, and its error shows the certificate and the setting', async (t) => {
  const directory = temporaryDirectory(t)
  if (!makeCertificates(directory, ['server', 'host'])) return t.skip('needs openssl')
  const world = await CoreWorld.open(t, { engines: [approle] })
  await world.ask('POST', 'sys/auth/approle', { type: 'approle' })
  await world.ask('POST', 'auth/approle/role/web', { token_ttl: '1h', secret_id_bound_cidrs: '10.0.0.0/8' })
  await world.ask('POST', 'auth/approle/role/web/role-id', { role_id: 'web' })
  const { data } = (await world.ask('POST', 'auth/approle/role/web/secret-id', {})).body
  writeFileSync(join(directory, 'secret-id'), String(data['secret_id']), { mode: 0o600 })
  const port = await serve(t, world, directory)
  mkdirSync(join(directory, 'data/client'), { recursive: true })
  const settings = (tls: string) => {
    const block = `role_id = "web"\nsecret_id_file = "${directory}/secret-id"\naddress = "https://127.0.0.1:${port}"\n${tls}`
    const file = join(directory, 'agent.hcl')
    writeFileSync(file, `data_dir = "${directory}/data"\nclient { enabled = true }\nsecrets {\n${block}\n}\n`)
    return loadConfig({ paths: [file] }).config
  }
  const lines: LogLine[] = []
  const told = (pattern: RegExp) =>
    eventually(
      () => pattern.test(JSON.stringify(lines)),
      () => `${pattern}: ${JSON.stringify(lines)}`,
    )
  const config = settings('')
  const login = agentLogin({ config, cluster: undefined, logger: recordingLogger(lines) })
  t.after(() => login.stop())
  assert.deepEqual([loginChecks(login), loginFamilies(login)], [[], []], 'nothing before there is a login')
  const [check] = (login.set(config.secrets), loginChecks(login))
  assert.equal(check?.name, 'secrets-login')
  assert.deepEqual(check.now(), { ok: false, reason: 'starting' })

  await told(/the certificate of https:[^ ]* is not trusted \([A-Z_]+\): set secrets\.ca_file to the PEM file/)
  const ca = `ca_file = "${directory}/ca.pem"`
  login.set(settings(ca).secrets)
  await told(/requires a client certificate/)
  login.set(settings(`${ca}\ncert_file = "${directory}/none.pem"\nkey_file = "${directory}/host.key"`).secrets)
  await told(/ENOENT.*none\.pem/)
  const both = settings(`${ca}\ncert_file = "${directory}/host.pem"\nkey_file = "${directory}/host.key"`).secrets
  login.set(both)
  await told(/invalid role or secret ID \(HTTP 400\)/)
  assert.deepEqual(check.now(), { ok: false, reason: 'not logged in: refused: invalid role or secret ID (HTTP 400)' })
  assert.ok(!JSON.stringify(lines).includes('over NATS'), 'there the server sees the address')

  await world.ask('POST', 'auth/approle/role/web', { secret_id_bound_cidrs: '127.0.0.0/8' })
  // What a replaced file does too: the pause after a refusal ends.
  writeFileSync(join(directory, 'secret-id'), String(data['secret_id']), { mode: 0o600 })
  await eventually(() => check.now().ok, 'logged in')
  assert.match(check.now().reason, /^logged in, token TTL 3\d{3} s$/)
  const kept = readLogin(join(directory, 'data/client/secrets-login.json'))
  assert.deepEqual(kept?.address, {
    url: `https://127.0.0.1:${port}`,
    caFile: `${directory}/ca.pem`,
    certFile: `${directory}/host.pem`,
    keyFile: `${directory}/host.key`,
  })
  await world.core.seal()
  await login.stop()
  await told(/token revocation failed, the token will expire.*the secrets core of the server is sealed/)
})
