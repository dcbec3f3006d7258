/** A reader of the log looks in it for tokens and for names of secrets, and one of the audit file for tokens. */
import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { agentHere } from '../helpers/agent-here.ts'
import { workDirectory } from '../helpers/agent-process.ts'
import { ask, raw } from '../helpers/raw-http.ts'
import { eventually } from '../helpers/eventually.ts'

const TOKEN = 'hvs.PLANTEDTOKENabcdefghijkl'
/** Of a form of its owner's choice. */
const ODD_TOKEN = 'PLANTEDTOKEN-0f1e2d3c'
const NAME = 'PLANTEDNAME'

const asHex = (text: string) => Buffer.from(text).toString('hex').replaceAll(/../g, '%$&')

/** Paths with a token in them. */
function tokenPaths(token: string): string[] {
  const forms = ['lookup', 'renew', 'revoke', 'revoke-orphan', 'revoke-prefix', 'lookup-accessor'].map(
    (verb) => `/v1/auth/token/${verb}/${token}`,
  )
  return [
    ...forms,
    ...forms.map((path) => path.replace('/v1', '')),
    `/v1/auth/token/lookup/${asHex(token)}`,
    `/v1/auth/token/lookup/${asHex(token).replaceAll('%', '%25')}`,
    `/v1/auth%2Ftoken%2Flookup%2F${token}`,
    `/v1/auth%252Ftoken%252Flookup%252F${token}`,
    `/v1//auth//token//lookup//${token}`,
    `/v1/auth/token/lookup/${token}/more`,
    `/v1/auth/token/lookup/../${token}`,
    `/v1/sys/wrapping/unwrap/${token}`,
    `/v1/sys/wrapping/lookup/${token}`,
    `/v1/sys/leases/lookup/${token}`,
    `/v1/sys/nothing/${token}`,
    `/v1/${token}`,
    `/${token}`,
    `/v1/nothing/${token}?token=${token}`,
    `/v1/sys/health?token=${token}`,
    `http://${token}@localhost/v1/auth/token/lookup/${token}`,
    `/v1/auth/token/lookup/${token}%`,
    `/v1/auth/token/lookup/${token}%ff`,
  ]
}

const NAMES = [
  `/v1/secret/data/${NAME}/inner`,
  `/v1/secret/metadata/${NAME}/inner`,
  `/v1/secret/delete/${NAME}`,
  `/v1/secret/data/${asHex(NAME)}`,
  `/v1/cubbyhole/${NAME}`,
  `/v1/sys/internal/ui/mounts/secret/${NAME}`,
  `/v1/sys/policies/acl/${NAME}`,
  `/v1/notamount/${NAME}`,
]

async function started(t: TestContext, more: string) {
  const directory = workDirectory(t)
  const file = join(directory, 'more.hcl')
  writeFileSync(file, more)
  const data = join(directory, 'data')
  const args = ['-dev', '-dev-no-demo', '-dev-root-token-id', ODD_TOKEN, '-http-port', '0', '-config', file]
  const agent = await agentHere(t, [...args, '-data-dir', data])
  return { agent, file, data }
}

interface Line {
  readonly '@message': string
  readonly method: string
  readonly path: string
}

const requests = (text: string): Line[] =>
  text
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line) as Line)
    .filter((line) => line['@message'] === 'request')

for (const mode of ['hashed', 'full']) {
  test(`tokens in paths, with log_paths = "${mode}"`, async (t) => {
    const { agent, data } = await started(t, `log_json = true\nlog_level = "debug"\nlog_paths = "${mode}"\n`)
    const as = `X-Vault-Token: ${ODD_TOKEN}`
    const audit = join(data, 'audit', 'audit.log')
    const enabled = await fetch(`${agent.url}/v1/sys/audit/file`, {
      method: 'PUT',
      headers: { 'X-Vault-Token': ODD_TOKEN },
      body: JSON.stringify({ type: 'file', options: { file_path: audit } }),
    })
    assert.equal(enabled.status, 204, await enabled.text())
    let watched = ''
    const monitor = `GET /v1/agent/monitor?plain=true&log_level=trace HTTP/1.1\r\nHost: localhost\r\n\r\n`
    let isOver = false
    const watching = raw({ port: agent.port, until: (text) => ((watched = text), isOver) }, monitor)
    await eventually(() => watched.includes(' 200 '), 'the log is watched')
    const declared = ['node', 'allocation', 'client/fs/ls', 'job'].map((path) => `/v1/${path}/${TOKEN}`)
    const paths = [...tokenPaths(TOKEN), ...tokenPaths(ODD_TOKEN), ...declared]
    const answered: string[] = []
    for (const path of paths) {
      for (const method of ['GET', 'PUT', 'LIST']) {
        const { head } = await ask(agent.port, method, path, as, ...(method === 'PUT' ? ['Content-Length: 0'] : []))
        answered.push(head)
      }
    }
    await eventually(() => requests(agent.stderr()).length >= answered.length, 'all are logged')
    isOver = true
    await ask(agent.port, 'GET', '/v1/sys/health')
    await watching
    assert.ok(watched.includes('hmac:'))
    // Where an endpoint takes the ID of a lease or what it begins with, an audit line shows it, as it does for each lease.
    const audited = readFileSync(audit, 'utf8').replaceAll(/"path":"sys\/leases\/[^"]*"/g, '')
    assert.match(audited, /"path":"auth\/token\/revoke\/hmac-sha256:/)
    const metrics = await ask(agent.port, 'GET', '/v1/metrics?format=prometheus', as)
    for (const [where, text] of [
      ['log', agent.stderr()],
      ['monitor', watched],
      ['audit file', audited],
      ['metrics', metrics.body.toString()],
    ] as const) {
      for (const word of ['PLANTEDTOKEN', asHex(TOKEN), asHex(ODD_TOKEN)]) {
        const line = text.split('\n').find((each) => each.includes(word))
        assert.equal(line, undefined, `the ${where} holds a token`)
      }
    }
  })
}

test('names of secrets are in the log only if the operator enables it', async (t) => {
  const { agent, file } = await started(t, 'log_json = true\n')
  const as = `X-Vault-Token: ${ODD_TOKEN}`
  for (const path of NAMES) await ask(agent.port, 'GET', path, as)
  await eventually(() => requests(agent.stderr()).length >= NAMES.length, 'all are logged')
  assert.ok(!agent.stderr().includes(NAME), 'a name is in the log')
  const [first, second, , encoded] = requests(agent.stderr())
  assert.match(first?.path ?? '', /^\/v1\/secret\/data\/hmac:[\w-]{16}$/)
  assert.equal(second?.path, first?.path.replace('data', 'metadata'), 'equal names look alike')
  assert.match(encoded?.path ?? '', /^\/v1\/secret\/data\/hmac:[\w-]{16}$/)
  assert.notEqual(encoded?.path, first?.path)
  writeFileSync(file, readFileSync(file, 'utf8') + 'log_paths = "full"\n')
  agent.reload()
  await eventually(() => agent.stderr().includes('configuration reloaded'), 'the setting is taken over')
  const before = requests(agent.stderr()).length
  for (const path of NAMES) await ask(agent.port, 'GET', path, as)
  await eventually(() => requests(agent.stderr()).length >= before + NAMES.length, 'all are logged')
  const shown = requests(agent.stderr())
    .slice(before)
    .map(({ path }) => path)
  assert.deepEqual(
    shown.slice(0, 7),
    NAMES.slice(0, 7).map((path) => {
      const plain = path.replace(asHex(NAME), NAME)
      return plain.includes('/policies/') ? plain.toLowerCase() : plain
    }),
  )
  assert.match(shown[7] ?? '', /^\/v1\/hmac:[\w-]{16}$/, 'no endpoint declares it')
})
