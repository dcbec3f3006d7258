import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import type { RequestListener } from 'node:http'
import { createServer } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { createServer as createTcpServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { CommandError } from '../../../src/cli/framework/define-command.ts'
import { type AgentTarget, agentTarget as targetOf } from '../../../src/cli/client/agent-target.ts'
import { requestJson, requestText } from '../../../src/cli/client/http-client.ts'
import { makeCertificates } from '../../helpers/certificates.ts'
import { makeCertificate } from '../../helpers/machine.ts'

const agentTarget = (env: NodeJS.ProcessEnv): AgentTarget => targetOf(env, 'hosts')

async function serve(t: TestContext, listener: RequestListener): Promise<string> {
  const server = createServer(listener)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => server.close())
  return `127.0.0.1:${(server.address() as AddressInfo).port}`
}

const failsWith = (message: RegExp) => (error: unknown) => {
  assert.ok(error instanceof CommandError, String(error))
  assert.match(error.message, message)
  assert.ok(!error.message.includes('\n'), 'one line')
  return true
}

test('sends method, query, body and token, and reads JSON', async (t) => {
  const address = await serve(t, (request, response) => {
    let body = ''
    request.on('data', (chunk: Buffer) => (body += chunk.toString()))
    request.on('end', () =>
      response.end(JSON.stringify({ at: request.url, method: request.method, body, headers: request.headers })),
    )
  })
  const target = agentTarget({ OUTPOST_ADDR: `http://${address}/prefix/`, OUTPOST_TOKEN: 'the-token' })
  const query = { a: 'x y&z', none: undefined, n: 1 }
  const answer = (await requestJson(target, { method: 'POST', path: '/v1/x', query, body: { k: 1 } })) as Record<
    string,
    unknown
  >
  assert.deepEqual([answer['at'], answer['method'], answer['body']], ['/prefix/v1/x?a=x+y%26z&n=1', 'POST', '{"k":1}'])
  const headers = answer['headers'] as Record<string, string>
  assert.deepEqual([headers['x-nomad-token'], headers['x-vault-token']], ['the-token', 'the-token'])
})

test('the text of an error response is printed, in each format', async (t) => {
  const address = await serve(t, (request, response) => {
    response.statusCode = request.url === '/denied' ? 403 : 404
    const errors = request.url === '/denied' ? ['1 error occurred:\n\t* permission denied\n\n'] : ['first', 'second']
    response.end(request.url === '/plain' ? 'Unknown allocation "x"\n' : JSON.stringify({ errors }))
  })
  const target = agentTarget({ OUTPOST_ADDR: address })
  await assert.rejects(requestText(target, { path: '/plain' }), failsWith(/^Unknown allocation "x" \(HTTP 404\)$/))
  await assert.rejects(requestText(target, { path: '/json' }), failsWith(/^first; second \(HTTP 404\)$/))
  await assert.rejects(
    requestText(target, { path: '/denied' }),
    failsWith(/^permission denied \(HTTP 403\), no token was sent, set OUTPOST_TOKEN$/),
  )
})

test('an error names its own cause: another token, a list within an error, a token for another address', async (t) => {
  const said = { status: 403, errors: ['bad token'] }
  const address = await serve(t, (_request, response) => {
    response.statusCode = said.status
    response.end(JSON.stringify({ errors: said.errors }))
  })
  const env = { OUTPOST_ADDR: `http://${address}`, OUTPOST_TOKEN: 'own' }
  const ask = (more: NodeJS.ProcessEnv = {}, option?: string) =>
    requestText(targetOf({ ...env, ...more }, 'secrets', option), { path: '/v1/auth/token/lookup' })
  await assert.rejects(ask(), failsWith(/^bad token \(HTTP 403\): the token in the request is unknown or expired$/))
  said.errors = ['permission denied']
  const elsewhere = { OUTPOST_ADDR: undefined, VAULT_ADDR: `http://${address}`, VAULT_TOKEN: '', OUTPOST_TOKEN: 'own' }
  await assert.rejects(
    ask(elsewhere),
    failsWith(/no token was sent, set VAULT_TOKEN \(OUTPOST_TOKEN not sent: set for another address\)$/),
  )
  Object.assign(said, {
    status: 400,
    errors: ['error(s) validating role: "2 errors occurred:\\n\\t* one \\"x\\"\\n\\t* two\\n\\n"'],
  })
  await assert.rejects(ask(), failsWith(/^error\(s\) validating role: one "x"; two \(HTTP 400\)$/))
})

test('a connection that breaks after a response does not suggest another protocol', async (t) => {
  let requests = 0
  const address = await serve(t, (request, response) => {
    if (requests++ > 0) request.socket.resetAndDestroy()
    else response.end('{}')
  })
  const target = agentTarget({ OUTPOST_ADDR: `http://${address}` })
  await requestText(target, { path: '/first' })
  await assert.rejects(
    requestText(target, { path: '/second' }),
    failsWith(/closed the connection \((?:ECONNRESET|EPIPE)\)$/),
  )
})

test('connection errors have the next step', async (t) => {
  const closed = createTcpServer()
  await new Promise<void>((resolve) => closed.listen(0, '127.0.0.1', resolve))
  const { port } = closed.address() as AddressInfo
  await new Promise((resolve) => closed.close(resolve))
  await assert.rejects(
    requestText(agentTarget({ NOMAD_ADDR: `http://127.0.0.1:${port}` }), { path: '/' }),
    failsWith(new RegExp(`^no agent at http://127.0.0.1:${port}: start one with "outpost agent", or set NOMAD_ADDR`)),
  )
  const plain = await serve(t, (_, response) => void response.end('not json'))
  await assert.rejects(
    requestText(agentTarget({ OUTPOST_ADDR: `https://${plain}` }), { path: '/' }),
    failsWith(/does not use TLS: set OUTPOST_ADDR to http:\/\//),
  )
  await assert.rejects(
    requestJson(agentTarget({ OUTPOST_ADDR: plain }), { path: '/' }),
    failsWith(/did not return JSON/),
  )
  const broken = await serve(t, (request) => void request.socket.destroy())
  await assert.rejects(
    requestText(agentTarget({ OUTPOST_ADDR: broken }), { path: '/' }),
    failsWith(/closed the connection \(ECONNRESET\); if the server uses TLS, set OUTPOST_ADDR to https:/),
  )
  const endless = await serve(t, (_, response) => {
    const more = () => {
      while (response.writable && response.write(Buffer.alloc(1 << 20, 'é')));
    }
    response.on('drain', more)
    more()
  })
  await assert.rejects(
    requestText(agentTarget({ OUTPOST_ADDR: endless }), { path: '/' }),
    failsWith(/the response of .* exceeds 64 MiB, check that it is an outpost agent/),
  )
  const cut = await serve(t, (_, response) => {
    response.writeHead(200, { 'Content-Length': 100 })
    response.write('half')
    setTimeout(() => response.destroy(), 20)
  })
  await assert.rejects(
    requestText(agentTarget({ OUTPOST_ADDR: cut }), { path: '/' }),
    failsWith(/closed the connection/),
  )
})

/** A certificate for 127.0.0.1 that is its own authority, and its key; undefined when openssl is not there. */
function ownCertificate(t: TestContext): { cert: string; key: string } | undefined {
  const directory = mkdtempSync(join(tmpdir(), 'outpost-cli-tls-'))
  t.after(() => rmSync(directory, { recursive: true }))
  if (spawnSync('openssl', ['version']).status !== 0) return undefined
  makeCertificate(directory)
  return { cert: join(directory, 'tls.crt'), key: join(directory, 'tls.key') }
}

test('an error about a certificate of a private CA names the variable for that CA', async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'outpost-cli-tls-'))
  t.after(() => rmSync(directory, { recursive: true }))
  if (!makeCertificates(directory, ['host'])) return t.skip('needs openssl')
  const [cert, key] = ['host.pem', 'host.key'].map((name) => readFileSync(join(directory, name)))
  const server = createTlsServer({ cert, key }, (_, response) => response.end('"hello"'))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => server.close())
  const OUTPOST_ADDR = `https://127.0.0.1:${(server.address() as AddressInfo).port}`
  const ask = (env: NodeJS.ProcessEnv) => requestJson(agentTarget({ OUTPOST_ADDR, ...env }), { path: '/' })
  await assert.rejects(ask({}), failsWith(/is not trusted \(UNABLE_TO_VERIFY_LEAF_SIGNATURE\): set OUTPOST_CACERT/))
  assert.equal(await ask({ OUTPOST_CACERT: join(directory, 'ca.pem') }), 'hello')
})

test('https uses the CA and client certificate of the environment, and errors name the variables', async (t) => {
  const files = ownCertificate(t)
  if (!files) return t.skip('needs openssl')
  const own = { cert: readFileSync(files.cert), key: readFileSync(files.key) }
  const server = createTlsServer({ ...own, ca: own.cert, requestCert: true }, (_, response) => response.end('"hello"'))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => server.close())
  const OUTPOST_ADDR = `https://127.0.0.1:${(server.address() as AddressInfo).port}`
  const ask = (env: NodeJS.ProcessEnv) => requestJson(agentTarget({ OUTPOST_ADDR, ...env }), { path: '/' })
  const trusting = { NOMAD_CACERT: files.cert }
  await assert.rejects(ask({}), failsWith(/is not trusted \(.*\): set OUTPOST_CACERT/))
  await assert.rejects(ask(trusting), failsWith(/requires a client certificate .*: set OUTPOST_CLIENT_CERT/))
  assert.equal(await ask({ ...trusting, NOMAD_CLIENT_CERT: files.cert, NOMAD_CLIENT_KEY: files.key }), 'hello')

  const faulty: [NodeJS.ProcessEnv, RegExp][] = [
    [{ OUTPOST_CLIENT_CERT: files.cert }, /^OUTPOST_CLIENT_CERT and OUTPOST_CLIENT_KEY must be set together/],
    [
      { VAULT_CLIENT_CERT: `${files.cert}.gone`, VAULT_CLIENT_KEY: files.key },
      /^cannot read .*gone of VAULT_CLIENT_CERT: ENOENT/,
    ],
    [{ OUTPOST_CLIENT_CERT: files.key, OUTPOST_CLIENT_KEY: files.key }, /invalid PEM file in one of/],
    [
      { OUTPOST_CACERT: files.cert, OUTPOST_CLIENT_CERT: files.key },
      /CLIENT_CERT and OUTPOST_CLIENT_KEY must be set together/,
    ],
  ]
  for (const [env, message] of faulty) assert.throws(() => agentTarget({ OUTPOST_ADDR, ...env }), failsWith(message))
  assert.deepEqual(agentTarget({ OUTPOST_ADDR: 'http://x', OUTPOST_CLIENT_CERT: '/nowhere' }).tls, {}, 'not with http')
})
