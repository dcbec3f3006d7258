/** Mounts and the server's own endpoints on a whole server, where the form of a request and the rest of the process matter. */
import assert from 'node:assert/strict'
import { request } from 'node:http'
import { test } from 'node:test'
import { agentHere } from '../helpers/agent-here.ts'

interface Asked {
  readonly status: number
  readonly text: string
  readonly headers: Readonly<Record<string, unknown>>
}

/** The path goes out as it is. */
function asker(url: string) {
  const { hostname, port } = new URL(url)
  return (method: string, path: string, body?: string | Buffer, more: Record<string, string> = {}): Promise<Asked> =>
    new Promise((resolve, reject) => {
      const headers = { 'X-Vault-Token': 'root', ...more }
      let isAnswered = false
      const sent = request({ hostname, port, method, path: `/v1/${path}`, headers, agent: false }, (response) => {
        let text = ''
        isAnswered = true
        response.setEncoding('utf8').on('data', (part: string) => (text += part))
        response.on('end', () => resolve({ status: response.statusCode ?? 0, text, headers: response.headers }))
      })
      // The server may hang up on a body that is too long before it is sent.
      sent.on('error', (error) => (isAnswered ? undefined : reject(error)))
      sent.end(body)
    })
}

test('invalid mount requests are refused and change nothing', async (t) => {
  const agent = await agentHere(t, ['-dev', '-dev-root-token-id', 'root', '-dev-no-demo', '-http-port', '0'])
  const ask = asker(agent.url)
  const mounts = async () => Object.keys(JSON.parse((await ask('GET', 'sys/mounts')).text).data)
  const before = await mounts()
  assert.deepEqual(before, ['cloud/', 'cubbyhole/', 'identity/', 'secret/', 'sys/'])
  for (const [path, body] of [
    ['sys/mounts/x', '{"type":'],
    ['sys/mounts/x', '[1]'],
    ['sys/mounts/x', `${'['.repeat(300)}${']'.repeat(300)}`],
    ['sys/mounts/x', '{"type":{}}'],
    ['sys/mounts/x', '{"__proto__":{"type":"kv-v2"}}'],
    ['sys/mounts/x', '{"constructor":{"prototype":{"type":"kv-v2"}}}'],
    ['sys/mounts/x', '{"type":"kv-v2","type":"zzz"}'],
    ['sys/mounts/x', '{"type":"kv-v2","config":{"max_lease_ttl":1e400}}'],
    ['sys/mounts/x', '{"type":"kv-v2","config":{"max_lease_ttl":1e300}}'],
    ['sys/mounts/x', '{"type":"kv-v2","config":[]}'],
    ['sys/mounts/x', `{"type":"kv-v2","description":"${'d'.repeat(70_000)}"}`],
    ['sys/mounts/a/../x', '{"type":"kv-v2"}'],
    ['sys/mounts/a%2F..%2Fx', '{"type":"kv-v2"}'],
    ['sys/mounts/a%00x', '{"type":"kv-v2"}'],
    ['sys/mounts/a%0Ax', '{"type":"kv-v2"}'],
    ['sys/mounts/%ff', '{"type":"kv-v2"}'],
    ['sys/mounts/x/', '{"type":"kv-v2"}'],
    [`sys/mounts/${'x'.repeat(600)}`, '{"type":"kv-v2"}'],
  ] as const) {
    const { status, text } = await ask('POST', path, body)
    assert.equal(status, 400, `${path} ${body.slice(0, 80)}: ${text}`)
  }
  const { status, text } = await ask('POST', 'sys/mounts/x', Buffer.alloc(33 << 20, 'a'))
  assert.deepEqual([status, JSON.parse(text)], [413, { errors: ['http: request body too large'] }])
  assert.deepEqual(await mounts(), before)
  assert.equal((await ask('POST', 'sys/mounts//a%2Fb//c', '{"type":"kv-v2"}')).status, 204)
  assert.deepEqual(await mounts(), ['a/b/c/', ...before])
  assert.equal((await ask('DELETE', 'sys/mounts/a/b/c/')).status, 204)
  assert.deepEqual(await mounts(), before)
})

test('the endpoints below sys report the state of the process', async (t) => {
  const agent = await agentHere(t, ['-dev', '-dev-root-token-id', 'root', '-dev-no-demo', '-http-port', '0'])
  const ask = asker(agent.url)
  assert.ok('Gauges' in JSON.parse((await ask('GET', 'sys/metrics')).text))
  const prometheus = await ask('GET', 'sys/metrics?format=prometheus')
  assert.match(prometheus.text, /^# HELP /)
  assert.match(String(prometheus.headers['content-type']), /^text\/plain/)
  assert.equal((await ask('GET', 'sys/metrics', undefined, { 'X-Vault-Token': '' })).status, 403)
  const [node] = JSON.parse((await ask('GET', 'sys/ha-status')).text).data.nodes
  assert.equal(node.api_address, agent.url)
  const { storage } = JSON.parse((await ask('GET', 'sys/config/state/sanitized')).text).data
  assert.equal(storage.type, 'sqlite')
})

function allowed({ headers }: Asked): unknown {
  return headers['access-control-allow-origin']
}

test('sys/config/cors takes effect when it is answered', async (t) => {
  const agent = await agentHere(t, ['-dev', '-dev-root-token-id', 'root', '-dev-no-demo', '-http-port', '0'])
  const ask = asker(agent.url)
  const from = (origin: string) => ask('GET', 'sys/mounts', undefined, { Origin: origin })
  assert.equal(allowed(await from('https://a.example')), undefined)
  assert.equal((await ask('POST', 'sys/config/cors', '{"allowed_origins":"https://a.example"}')).status, 204)
  assert.equal(allowed(await from('https://a.example')), 'https://a.example')
  assert.equal((await from('https://b.example')).status, 403)
  assert.equal((await ask('DELETE', 'sys/config/cors')).status, 204)
  assert.equal(allowed(await from('https://a.example')), undefined)
})
