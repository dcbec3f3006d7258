/** A web page in a browser on the operator's machine that calls an agent or a server on loopback. */
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { networkInterfaces } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { type AgentHere, agentHere } from '../helpers/agent-here.ts'
import { workDirectory } from '../helpers/agent-process.ts'
import { MessageClient } from '../helpers/message-client.ts'
import { type Answer, answersIn, raw } from '../helpers/raw-http.ts'
import { ALLOC, makeAllocation } from '../helpers/allocation.ts'
import { eventually } from '../helpers/eventually.ts'

interface PageRequest {
  readonly method?: string
  readonly path?: string
  readonly lines?: readonly string[]
  readonly body?: string
  readonly address?: string
}

/** Sends a request; `lines` begin with its Host. */
async function send(port: number, request: PageRequest): Promise<Answer> {
  const { method = 'GET', path = '/v1/client/metadata', lines = ['Host: localhost'], body = '' } = request
  const length = body === '' ? [] : [`Content-Length: ${body.length}`]
  const head = [`${method} ${path} HTTP/1.1`, ...lines, 'Connection: close', ...length, '', ''].join('\r\n')
  const { bytes } = await raw({ port, ...(request.address ? { host: request.address } : {}) }, head + body)
  const [answer] = answersIn(bytes, [method])
  assert.ok(answer, `${method} ${path} ${lines.join()}`)
  return answer
}

/** An agent and an uninitialized server in one process, to which callers need no token for hosts. */
async function started(t: TestContext, more = ''): Promise<AgentHere & { readonly directory: string }> {
  const directory = workDirectory(t)
  makeAllocation(join(directory, 'data/alloc'), ALLOC, { ClientStatus: 'complete', DesiredStatus: 'stop' })
  mkdirSync(join(directory, 'data'), { recursive: true })
  const roles = 'client { enabled = true }\nserver { enabled = true }\nacl { enabled = false }\nports { http = 0 }\n'
  const file = join(directory, 'agent.hcl')
  writeFileSync(file, `data_dir = "${directory}/data"\nname = "worker-17"\n${roles}${more}`)
  return { ...(await agentHere(t, ['-config', file])), directory }
}

const NAMES =
  'http_allowed_hosts = ["Secrets.Example.com.", "192.0.2.7", "[2001:DB8::7]"]\nadvertise { http = "w17.example.net:4646" }\n'

test('requests of a web page to an agent on loopback are refused', async (t) => {
  const agent = await started(t, NAMES)

  await t.test('a host name of the attacker that resolves to 127.0.0.1 is refused', async () => {
    const { port } = agent
    for (const host of [
      'evil.example',
      `evil.example:${port}`,
      'localhost.evil.example',
      '127.0.0.1.evil.example',
      'evillocalhost',
      'localhost.localdomain',
      'localhost..',
      '0.0.0.0',
      '10.0.0.1',
      '[fe80::1]',
      '[::2]',
      'evil.example@localhost',
      'localhost@evil.example',
      'localhost/evil',
      'loc%61lhost',
      'localhost:80:80',
      'example.com',
      'evil-secrets.example.com',
      '',
    ]) {
      for (const path of ['/v1/client/metadata', '/v1/sys/health', '/v1/agent/health', '/nothing']) {
        const answer = await send(port, { path, lines: [`Host: ${host}`, 'X-Forwarded-Host: localhost'] })
        assert.equal(answer.status, 403, `${host} ${path}`)
        assert.match(answer.body.toString(), /is not served on this loopback address: .*http_allowed_hosts/)
      }
    }
    const put = { method: 'PUT', path: '/v1/sys/init', body: '{"secret_shares":1,"secret_threshold":1}' }
    assert.equal(
      (await send(port, { ...put, lines: ['Host: evil.example', 'Origin: http://evil.example'] })).status,
      403,
    )
    assert.equal((await send(port, { method: 'OPTIONS', lines: ['Host: evil.example'] })).status, 403)
    const { body } = await send(port, { path: '/v1/sys/init' })
    assert.equal(JSON.parse(body.toString()).initialized, false)
  })

  await t.test('the names of this host are served, with any port and in any spelling', async () => {
    const { port } = agent
    for (const host of [
      'localhost',
      'LOCALHOST',
      'localhost.',
      `localhost:${port}`,
      'localhost:1',
      'app.localhost',
      '127.0.0.1',
      `127.8.9.10:${port}`,
      '127.1',
      '[::1]',
      `[0:0:0:0:0:0:0:1]:${port}`,
      '[::ffff:127.0.0.1]',
      'worker-17',
      'secrets.example.com',
      'SECRETS.EXAMPLE.COM.:443',
      'w17.example.net',
      '192.0.2.7:80',
      '[2001:db8:0::7]:443',
    ]) {
      const answer = await send(port, { lines: [`Host: ${host}`, 'X-Forwarded-Host: evil.example'] })
      assert.equal(answer.status, 200, host)
    }
    const old = await raw({ port }, 'GET /v1/client/metadata HTTP/1.0\r\n\r\n')
    assert.match(old.text, /^HTTP\/1.1 200 /, 'HTTP/1.0 has no Host, and no browser speaks it')
  })

  await t.test('garbage collection by an image or a form is refused', async () => {
    const { directory, port } = agent
    const host = `Host: 127.0.0.1:${port}`
    const browsers = [
      ['Sec-Fetch-Site: cross-site', 'Sec-Fetch-Mode: no-cors', 'Sec-Fetch-Dest: image'],
      ['Sec-Fetch-Site: same-site', 'Sec-Fetch-Mode: no-cors', 'Sec-Fetch-Dest: image'],
      ['Sec-Fetch-Site: cross-site', 'Sec-Fetch-Mode: navigate'],
      ['Origin: http://evil.example'],
      ['Origin: http://localhost:3000'],
      ['Origin: null'],
      ['Origin: null', 'Sec-Fetch-Site: cross-site'],
    ]
    for (const lines of browsers) {
      for (const path of ['/v1/client/gc', `/v1/client/allocation/${ALLOC}/gc`, '/client/gc']) {
        for (const method of ['GET', 'POST', 'PUT']) {
          const answer = await send(port, { method, path, lines: [host, ...lines] })
          assert.equal(answer.status, 403, `${method} ${path} ${lines.join()}`)
          assert.match(answer.body.toString(), /web pages of other origins must not make changes/)
        }
      }
      const posts = [
        ['/v1/client/metadata', '{"Meta":{"owned":"1"}}'],
        ['/v1/sys/init', '{"secret_shares":1,"secret_threshold":1}'],
        ['/v1/agent/reload', ''],
      ] as const
      for (const [path, body] of posts) {
        const answer = await send(port, {
          method: 'POST',
          path,
          body,
          lines: [host, 'Content-Type: text/plain', ...lines],
        })
        assert.equal(answer.status, 403, `${path} ${lines.join()}`)
      }
    }
    assert.ok(existsSync(join(directory, 'data/alloc', ALLOC)))
    const { body } = await send(port, { path: '/v1/sys/init' })
    assert.equal(JSON.parse(body.toString()).initialized, false)
  })

  await t.test('reads by fetch or WebSocket are refused', async () => {
    const { port } = agent
    const host = `Host: 127.0.0.1:${port}`
    const origin = 'Origin: http://evil.example'
    const paths = [
      '/v1/client/metadata',
      '/v1/client/stats',
      `/v1/client/fs/ls/${ALLOC}`,
      `/v1/client/fs/logs/${ALLOC}?task=web`,
    ]
    for (const path of paths) {
      for (const lines of [[origin], [origin, 'X-Nomad-Token: any'], [origin, 'Authorization: Bearer any']]) {
        const answer = await send(port, { path, lines: [host, ...lines] })
        assert.doesNotMatch(answer.head, /access-control-allow-origin/i, `${path} ${lines.join()}`)
      }
      const asked = ['Access-Control-Request-Method: GET', 'Access-Control-Request-Headers: x-nomad-token']
      const preflight = await send(port, { method: 'OPTIONS', path, lines: [host, origin, ...asked] })
      assert.doesNotMatch(preflight.head, /access-control-allow/i)
    }
    const logs = `/v1/client/fs/logs/${ALLOC}?task=web&follow=true`
    const token = `Sec-WebSocket-Protocol: outpost.token.${Buffer.from('any').toString('base64url')}, outpost`
    for (const lines of [
      [host, origin],
      [host, origin, token],
      [host, 'Origin: null'],
      [host, 'Sec-Fetch-Site: cross-site'],
    ]) {
      const client = new MessageClient({ port, path: logs, lines })
      await client.until('it is refused', ({ ended }) => ended)
      assert.match(client.head ?? '', /^HTTP\/1\.1 403 /, lines.join())
    }
    const rebound = new MessageClient({
      port,
      path: logs,
      lines: ['Host: evil.example', 'Origin: http://evil.example'],
    })
    assert.equal((await rebound.close()).code, 4403)
    const own = new MessageClient({ port, path: logs, lines: [host, `Origin: http://127.0.0.1:${port}`] })
    await own.until('the page of this very origin is served', ({ texts }) => texts.length > 0)
    own.socket.destroy()
  })

  await t.test('the operator and pages of the same origin are served', async () => {
    const { directory, port } = agent
    const own = [`Host: 127.0.0.1:${port}`, `Origin: http://127.0.0.1:${port}`]
    const browsers = [
      own,
      [...own, 'Sec-Fetch-Site: same-origin'],
      ['Host: localhost', 'Sec-Fetch-Site: none'],
      ['Host: localhost'],
    ]
    for (const lines of browsers) {
      const body = '{"Meta":{"seen":"1"}}'
      assert.equal((await send(port, { method: 'POST', body, lines })).status, 200, lines.join())
    }
    const behindProxy = [
      `Host: 127.0.0.1:${port}`,
      'Origin: https://secrets.example.com',
      'Sec-Fetch-Site: same-origin',
    ]
    assert.equal((await send(port, { method: 'POST', body: '{"Meta":{"seen":"2"}}', lines: behindProxy })).status, 200)
    for (const path of ['/v1/client/gc', `/v1/client/allocation/${ALLOC}/gc`]) {
      const answer = await send(port, { method: 'HEAD', path })
      assert.equal(answer.status, 405, 'HEAD changes nothing')
      assert.match(answer.headers.get('allow') ?? '', /GET/)
    }
    assert.ok(existsSync(join(directory, 'data/alloc', ALLOC)))
    assert.equal((await send(port, { path: '/v1/client/gc' })).status, 200)
    await eventually(() => !existsSync(join(directory, 'data/alloc', ALLOC)), 'it is collected')
  })

  await t.test('newly configured host names are accepted after a reload', async () => {
    const { directory, port, reload } = agent
    const lines = ['Host: later.example.com']
    assert.equal((await send(port, { lines })).status, 403)
    const file = join(directory, 'agent.hcl')
    writeFileSync(file, readFileSync(file, 'utf8').replace('"192.0.2.7"', '"later.example.com"'))
    reload()
    await eventually(async () => (await send(port, { lines })).status === 200, 'the new name is served')
    assert.equal((await send(port, { lines: ['Host: 192.0.2.7'] })).status, 403)
  })
})

test('a listener on all addresses checks the Host header on loopback only', async (t) => {
  const agent = await started(t, 'bind_addr = "0.0.0.0"\n')
  assert.equal((await send(agent.port, { lines: ['Host: evil.example'] })).status, 403)
  assert.equal((await send(agent.port, { lines: ['Host: localhost'] })).status, 200)
  const addresses = Object.values(networkInterfaces()).flatMap((each) => each ?? [])
  const address = addresses.find(({ family, internal }) => family === 'IPv4' && !internal)?.address
  if (address === undefined) return t.diagnostic('this machine has no address beside loopback')
  assert.equal((await send(agent.port, { lines: ['Host: any.example'], address })).status, 200)
})

test('a name with a port, a pattern or a URL is not accepted as a host name', async (t) => {
  const directory = workDirectory(t)
  const file = join(directory, 'agent.hcl')
  for (const name of ['a.example:80', '*', '*.example.com', 'http://a.example', '', 'a b']) {
    writeFileSync(file, `data_dir = "${directory}/data"\nclient { enabled = true }\nhttp_allowed_hosts = ["${name}"]\n`)
    await assert.rejects(
      agentHere(t, ['-config', file]),
      /agent\.hcl:3:\d+: http_allowed_hosts: expected host names/,
      name,
    )
  }
})
