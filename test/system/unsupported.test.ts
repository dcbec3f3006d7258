/** Requests for features of Nomad and Vault that outpost does not have, as stock clients send them, to a whole process. */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { agentHere } from '../helpers/agent-here.ts'
import { workDirectory, writeConfig } from '../helpers/agent-process.ts'

const ID = '6f1c0b9e-2f0a-4a51-9d0c-0000000000aa'
const ROOT = join(import.meta.dirname, '../..')

/** Anchors of the headings, as code forges make them. */
const ANCHORS = new Set(
  [...readFileSync(join(ROOT, 'docs/unsupported.md'), 'utf8').matchAll(/^#+ (.+)$/gm)].map(([, title = '']) =>
    title
      .toLowerCase()
      .replaceAll(/[^\w -]/g, '')
      .replaceAll(' ', '-'),
  ),
)

/** The section that a text links to; fails if the document does not have it. */
function sectionIn(text: string, what: string): string {
  const section = /^not supported by outpost: [^,]+(?:, [^,]+)*, see docs\/unsupported\.md#([\w-]+)$/.exec(text)?.[1]
  assert.ok(section !== undefined, `${what}: ${text}`)
  assert.ok(ANCHORS.has(section), `${what}: no section ${section}`)
  return section
}

/** Each request of a stock `nomad` command, and the section of its answer. */
const NOMAD: readonly (readonly [command: string, method: string, path: string, section: string])[] = [
  ['node drain', 'PUT', `node/${ID}/drain`, 'drain-and-eligibility'],
  ['node eligibility', 'PUT', `node/${ID}/eligibility`, 'drain-and-eligibility'],
  ['node pool list', 'GET', 'node/pools', 'job-scheduling'],
  ['job run', 'PUT', 'jobs?region=global', 'job-scheduling'],
  ['job stop', 'DELETE', 'job/web?purge=false', 'job-scheduling'],
  ['job plan', 'PUT', 'job/web/plan', 'job-scheduling'],
  ['job history', 'GET', 'job/web/versions', 'job-scheduling'],
  ['job periodic force', 'PUT', 'job/web/periodic/force', 'job-scheduling'],
  ['job validate', 'PUT', 'validate/job', 'job-scheduling'],
  ['eval list', 'GET', 'evaluations', 'job-scheduling'],
  ['deployment status', 'GET', 'deployment/x', 'job-scheduling'],
  ['system reconcile', 'PUT', 'system/reconcile/summaries', 'job-scheduling'],
  ['alloc stop', 'PUT', `allocation/${ID}/stop`, 'job-scheduling'],
  ['alloc signal', 'PUT', `client/allocation/${ID}/signal`, 'exec-signals-and-restarts'],
  ['alloc restart', 'PUT', `client/allocation/${ID}/restart`, 'exec-signals-and-restarts'],
  ['operator raft list-peers', 'GET', 'operator/raft/configuration', 'raft-and-membership'],
  ['operator autopilot get-config', 'GET', 'operator/autopilot/configuration', 'raft-and-membership'],
  ['operator snapshot save', 'GET', 'operator/snapshot', 'raft-and-membership'],
  ['server join', 'PUT', 'agent/join?address=x', 'raft-and-membership'],
  ['operator debug', 'GET', 'agent/pprof/goroutine?debug=1', 'profiles-and-log-levels'],
  ['var list', 'GET', 'vars', 'volumes-services-and-variables'],
  ['var put', 'PUT', 'var/a/b', 'volumes-services-and-variables'],
  ['volume status', 'GET', 'volumes?type=csi', 'volumes-services-and-variables'],
  ['plugin status', 'GET', 'plugins?type=csi', 'volumes-services-and-variables'],
  ['service list', 'GET', 'services', 'volumes-services-and-variables'],
  ['acl token list', 'GET', 'acl/tokens', 'acl-api'],
  ['namespace apply', 'PUT', 'namespace', 'namespaces'],
  ['quota list', 'GET', 'quotas', 'namespaces'],
]

const VAULT: readonly (readonly [command: string, method: string, path: string, section: string])[] = [
  ['operator raft list-peers', 'GET', 'sys/storage/raft/configuration', 'raft-and-membership'],
  ['operator raft autopilot state', 'GET', 'sys/storage/raft/autopilot/state', 'raft-and-membership'],
  ['operator raft join', 'POST', 'sys/storage/raft/join', 'raft-and-membership'],
  ['namespace list', 'GET', 'sys/namespaces?list=true', 'namespaces'],
  ['namespace create', 'PUT', 'sys/namespaces/team', 'namespaces'],
  ['plugin register', 'PUT', 'sys/plugins/catalog/secret/mine', 'plugins'],
  ['plugin reload', 'PUT', 'sys/plugins/reload/backend', 'plugins'],
  ['monitor', 'GET', 'sys/monitor?log_level=info', 'profiles-and-log-levels'],
  ['debug', 'GET', 'sys/pprof/heap', 'profiles-and-log-levels'],
  ['write sys/replication/performance', 'PUT', 'sys/replication/performance/primary/enable', 'performance-replication'],
  ['operator usage', 'GET', 'sys/internal/counters/activity', 'counters-of-clients'],
  ['write sys/policies/password', 'PUT', 'sys/policies/password/p', 'password-policies'],
  ['write sys/quotas/lease-count', 'PUT', 'sys/quotas/lease-count/q', 'lease-count-quotas'],
  ['read sys/license', 'GET', 'sys/license/status', 'enterprise-features'],
  ['read sys/raw', 'GET', 'sys/raw/core', 'raw-storage'],
  ['read identity/oidc', 'GET', 'identity/oidc/provider?list=true', 'oidc-provider'],
  ['write duo', 'POST', 'identity/mfa/method/duo', 'mfa-methods'],
]

test('a server names the feature and the section of the documentation, in the format of the client', async (t) => {
  const agent = await agentHere(t, ['-dev', '-dev-no-demo', '-http-port', '0', '-dev-root-token-id', 'the-root'])
  const send = async (method: string, path: string, headers: Record<string, string> = {}) => {
    const response = await fetch(`${agent.url}/v1/${path}`, { method, headers })
    const text = await response.text()
    return { status: response.status, type: response.headers.get('content-type'), headers: response.headers, text }
  }
  const token = { 'X-Vault-Token': 'the-root' }

  await t.test("Nomad's endpoints: plain text, without a token too", async () => {
    for (const [command, method, path, section] of NOMAD) {
      const { status, text, type } = await send(method, path)
      assert.deepEqual([status, type], [405, 'text/plain; charset=utf-8'], `${command}: ${text}`)
      assert.equal(sectionIn(text, command), section, command)
    }
    assert.equal((await send('PUT', 'jobs')).headers.get('allow'), 'GET')
    assert.equal((await send('GET', 'evaluations')).headers.get('allow'), '')
  })

  await t.test("Vault's endpoints: errors in JSON, for a caller with permission", async () => {
    for (const [command, method, path, section] of VAULT) {
      const { status, text, type } = await send(method, path, token)
      assert.deepEqual([status, type], [405, 'application/json'], `${command}: ${text}`)
      const body = JSON.parse(text) as { errors: string[]; link: string }
      assert.equal(body.errors.length, 1, command)
      const bare = /^1 error occurred:\n\t\* ([^\n]+)\n\n$/.exec(body.errors[0] ?? '')?.[1] ?? ''
      assert.equal(sectionIn(bare, command), section, command)
      assert.equal(body.link, `docs/unsupported.md#${section}`)
      const refused = await send(method, path)
      assert.equal(refused.status, 403, `${command}: ${refused.text}`)
      assert.doesNotMatch(refused.text, /supported/)
    }
  })

  await t.test('a namespace: still 404, with a member that makes stock clients show the text', async () => {
    const { status, text } = await send('GET', 'secret/data/x', { ...token, 'X-Vault-Namespace': 'team' })
    const body = JSON.parse(text) as { errors: string[]; link: string }
    assert.equal(status, 404)
    assert.equal(body.errors[0], 'namespace not found')
    assert.equal(sectionIn(body.errors[1] ?? '', 'namespace'), 'namespaces')
    assert.equal(body.link, 'docs/unsupported.md#namespaces')
  })

  await t.test('other unknown paths stay 404, and supported ones what they are', async () => {
    for (const path of ['sys/nothing', 'sys/internal/ui/feature-flags', 'nothing/x']) {
      assert.equal((await send('GET', path, token)).status, 404, path)
    }
    for (const path of [`client/allocation/${ID}/checks`, `client/allocation/${ID}/nothing`, 'job/unknown']) {
      assert.equal((await send('GET', path)).status, 404, path)
    }
    for (const path of [
      'nodes',
      'jobs',
      'namespaces',
      'agent/members',
      'sys/plugins/catalog',
      'sys/quotas/rate-limit',
    ]) {
      const { status, text } = await send('GET', path, token)
      assert.ok(status === 200 || text.includes('unsupported operation'), `${path}: ${status} ${text}`)
    }
  })

  await t.test('a mount with the path of an endpoint of Nomad has precedence', async () => {
    const json = { ...token, 'Content-Type': 'application/json' }
    const write = (path: string, body: object) =>
      fetch(`${agent.url}/v1/${path}`, { method: 'POST', headers: json, body: JSON.stringify(body) })
    assert.equal((await write('sys/mounts/service', { type: 'kv' })).status, 204)
    assert.equal((await write('service/web', { key: 'value' })).status, 204)
    const { text } = await send('GET', 'service/web', token)
    assert.equal((JSON.parse(text) as { data: { key: string } }).data.key, 'value')
    assert.equal((await send('GET', 'service/web')).status, 403)
    assert.equal((await send('GET', 'services', token)).status, 405)
    // A sealed server does not know its mounts.
    assert.equal((await write('sys/seal', {})).status, 204)
    assert.equal((await send('GET', 'service/web', token)).status, 503)
    assert.equal((await send('PUT', `node/${ID}/drain`)).status, 405)
  })
})

test('an agent without secrets answers the same, also to a WebSocket', async (t) => {
  const config = writeConfig(workDirectory(t), 'acl { enabled = false }')
  const agent = await agentHere(t, ['-config', config])
  for (const [command, method, path, section] of NOMAD) {
    const response = await fetch(`${agent.url}/v1/${path}`, { method })
    assert.equal(response.status, 405, command)
    assert.equal(sectionIn(await response.text(), command), section, command)
  }
  const { get } = await import('node:http')
  const upgrade = {
    Connection: 'Upgrade',
    Upgrade: 'websocket',
    'Sec-WebSocket-Version': '13',
    'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==',
  }
  const url = `${agent.url}/v1/client/allocation/${ID}/exec?task=web&command=%5B%22sh%22%5D`
  const answer = await new Promise<[number | undefined, string]>((resolve, reject) => {
    const request = get(url, { headers: upgrade }, (response) => {
      let text = ''
      response.setEncoding('utf8').on('data', (piece: string) => (text += piece))
      response.on('end', () => resolve([response.statusCode, text]))
    })
    request.on('error', reject)
    request.on('upgrade', () => reject(new Error('upgraded')))
  })
  assert.equal(answer[0], 405)
  assert.equal(sectionIn(answer[1], 'exec'), 'exec-signals-and-restarts')
})
