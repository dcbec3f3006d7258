/** How the files of the web interface are served: caching, compression, security headers, and when they are not. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { brotliDecompressSync } from 'node:zlib'
import { startAgent, workDirectory, writeConfig } from '../helpers/agent-process.ts'
import { type Answer, ask } from '../helpers/raw-http.ts'

const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; " +
  "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

const PRELOADS = /\s*<link rel="modulepreload" href="[^"]+" \/>/g

function withoutPreloads({ body }: Answer): string {
  return body.toString().replace(PRELOADS, '')
}

function scriptOf(page: Answer): string {
  return /src="([^"]+)"/.exec(page.body.toString())?.[1] ?? ''
}

test('the page is validated on each load, and its files are cached by their content', async (t) => {
  const agent = await startAgent(t, ['-config', writeConfig(workDirectory(t), '')])
  const page = await ask(agent.port, 'GET', '/ui/')
  assert.deepEqual(
    [page.status, page.headers.get('content-type'), page.headers.get('cache-control')],
    [200, 'text/html; charset=utf-8', 'no-cache'],
  )
  assert.equal(page.headers.get('content-security-policy'), POLICY)
  assert.deepEqual([page.headers.get('x-frame-options'), page.headers.get('referrer-policy')], ['DENY', 'no-referrer'])
  assert.doesNotMatch(page.body.toString(), /<script(?![^>]* src=)|<style|https?:\/\/(?!www\.w3\.org)/)
  const same = await ask(agent.port, 'GET', '/ui/', `If-None-Match: ${String(page.headers.get('etag'))}`)
  assert.deepEqual([same.status, same.body.length], [304, 0])

  const script = await ask(agent.port, 'GET', scriptOf(page))
  assert.deepEqual([script.status, script.headers.get('content-type')], [200, 'text/javascript; charset=utf-8'])
  assert.equal(script.headers.get('cache-control'), 'public, max-age=31536000, immutable')
  const compressed = await ask(agent.port, 'GET', scriptOf(page), 'Accept-Encoding: gzip, br')
  assert.deepEqual(
    [compressed.headers.get('content-encoding'), compressed.headers.get('vary')],
    ['br', 'Accept-Encoding'],
  )
  assert.deepEqual(brotliDecompressSync(compressed.body), script.body)
  const refused = await ask(agent.port, 'GET', scriptOf(page), 'Accept-Encoding: br;q=0, gzip')
  assert.equal(refused.headers.get('content-encoding'), undefined)
})

test('each path of a view is the page, and an unknown file is not', async (t) => {
  const agent = await startAgent(t, ['-config', writeConfig(workDirectory(t), '')])
  const page = await ask(agent.port, 'GET', '/ui/')
  for (const path of [
    '/ui/hosts',
    '/ui/files/a/alloc%2Flogs/web.stdout.0',
    '/ui/logs?x=1',
    '/ui/../ui/hosts',
    '/ui/pages/hosts.html',
    '/ui/__proto__',
  ]) {
    const view = await ask(agent.port, 'GET', path)
    assert.deepEqual([path, view.status, withoutPreloads(view)], [path, 200, withoutPreloads(page)])
  }
  for (const path of [
    '/ui/assets/none.js',
    '/ui/assets/',
    '/ui/assets/..%2F..%2F..%2Fetc%2Fpasswd',
    '/ui/assets/../../package.json',
  ]) {
    const { body, status } = await ask(agent.port, 'GET', path)
    assert.ok(status === 404 || body.equals(page.body), `${path}: ${status}`)
  }
  for (const path of ['/', '/ui']) {
    const { headers, status } = await ask(agent.port, 'GET', path)
    assert.deepEqual([status, headers.get('location')], [307, '/ui/'])
  }
  assert.equal((await ask(agent.port, 'POST', '/ui/', 'Content-Length: 0')).status, 405)
  const head = await ask(agent.port, 'HEAD', '/ui/')
  assert.deepEqual(
    [head.status, head.body.length, head.headers.get('content-length')],
    [200, 0, String(page.body.length)],
  )
})

test('the page of a view requests the scripts of that view at once', async (t) => {
  const agent = await startAgent(t, ['-config', writeConfig(workDirectory(t), '')])
  const preloaded = async (path: string) => (await ask(agent.port, 'GET', path)).body.toString().match(PRELOADS)?.join()
  const cases = [
    ['/ui/', 'log-list-view'],
    ['/ui/logs', 'log-list-view'],
    ['/ui/logs/a/b', 'log-view'],
    ['/ui/hosts', 'host-list-view'],
    ['/ui/hosts/a?tab=files', 'host-view'],
    ['/ui/secrets/secret/a/b', 'secret-view'],
    ['/ui/unknown', 'log-list-view'],
  ] as const
  const views = /\/(log-list-view|log-view|host-list-view|host-view|secret-view)-/g
  for (const [path, view] of cases) {
    const found = [...((await preloaded(path)) ?? '').matchAll(views)].map(([, name]) => name)
    assert.deepEqual([path, found], [path, [view]])
  }
})

test('each answer of the interface has its security headers, and is what its type says', async (t) => {
  const agent = await startAgent(t, ['-config', writeConfig(workDirectory(t), '')])
  const page = await ask(agent.port, 'GET', '/ui/')
  const tag = `If-None-Match: ${String(page.headers.get('etag'))}`
  const requests = [
    ['GET', '/ui/', tag, 304],
    ['GET', scriptOf(page), 'Accept: */*', 200],
    ['HEAD', '/ui/hosts', 'Accept: */*', 200],
    ['GET', '/ui/assets/<script>.js', 'Accept: */*', 404],
    ['GET', '/ui/assets/..%2f..%2fpackage.json', 'Accept: */*', 404],
  ] as const
  for (const [method, path, header, status] of requests) {
    const answer = await ask(agent.port, method, path, header)
    const names = ['content-security-policy', 'x-frame-options', 'x-content-type-options', 'referrer-policy']
    assert.deepEqual(
      [path, answer.status, ...names.map((name) => answer.headers.get(name))],
      [path, status, POLICY, 'DENY', 'nosniff', 'no-referrer'],
    )
    if (status === 404) assert.equal(answer.headers.get('content-type'), 'text/plain; charset=utf-8')
  }
})

test('the interface is off where it is disabled, and by default where tokens would be sent in clear text', async (t) => {
  const cases = [
    ['ui { enabled = false }', 404],
    ['bind_addr = "0.0.0.0"', 404],
    ['bind_addr = "0.0.0.0"\nui { enabled = true }', 200],
    ['', 200],
  ] as const
  for (const [setting, expected] of cases) {
    const agent = await startAgent(t, ['-config', writeConfig(workDirectory(t), setting)])
    const { status } = await ask(agent.port, 'GET', '/ui/')
    assert.equal(status, expected, setting)
    assert.equal((await ask(agent.port, 'GET', '/')).status, expected === 200 ? 307 : 404, setting)
  }
})

test('a page of another host name is refused, so DNS rebinding does not reach the interface', async (t) => {
  const agent = await startAgent(t, ['-config', writeConfig(workDirectory(t), '')])
  const { status } = await ask(agent.port, 'GET', '/ui/', 'Host: attacker.example')
  assert.notEqual(status, 200)
})

test('every caller can read its own permissions', async (t) => {
  const sha256 = '288965a1f2c883c71bff8a4b3a1b76cc77d11e65f70910d5feff411a4e5fe1b3' // of "management"
  const policy = 'node { policy = "read" } namespace "default" { capabilities = ["read-logs"] }'
  const acl = `acl {\n enabled = true\n token "ops" {\n sha256 = "${sha256}"\n policy = <<EOT\n${policy}\nEOT\n }\n}`
  const agent = await startAgent(t, ['-config', writeConfig(workDirectory(t), acl)])
  const read = async (header: string, query = '') => {
    const { body, status } = await ask(agent.port, 'GET', `/v1/agent/permissions${query}`, header)
    return status === 200 ? (JSON.parse(body.toString()) as unknown) : status
  }
  const nothing = { Agent: [], Node: [], Namespace: 'default', Capabilities: [] }
  assert.deepEqual(await read('Accept: */*'), nothing)
  assert.equal(await read('X-Nomad-Token: wrong'), 403)
  const expected = { ...nothing, Node: ['read'], Capabilities: ['read-logs'] }
  assert.deepEqual(await read('X-Nomad-Token: management'), expected)
  assert.deepEqual(await read('X-Nomad-Token: management', '?namespace=other'), {
    ...nothing,
    Node: ['read'],
    Namespace: 'other',
  })
})
