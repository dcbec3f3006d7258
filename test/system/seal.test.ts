/** A server that opens its secrets by itself, as a service does: with a key in a file or a credential, or without yet. */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { commandsAt } from '../helpers/secrets-server.ts'
import { type AgentHere, agentHere } from '../helpers/agent-here.ts'
import { startAgent, workDirectory } from '../helpers/agent-process.ts'
import { eventually } from '../helpers/eventually.ts'

interface Answer {
  readonly status: number
  readonly body: Readonly<Record<string, unknown>>
}

interface Asked {
  readonly url: string
}

async function ask({ url }: Asked, method: string, path: string, body?: unknown, token = ''): Promise<Answer> {
  const response = await fetch(`${url}/v1/${path}`, {
    method,
    headers: { 'X-Vault-Token': token },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  })
  const text = await response.text()
  return { status: response.status, body: JSON.parse(text === '' ? '{}' : text) }
}

/** The instructions to the operator of a sealed server in each output. */
async function hints(agent: AgentHere, home: string): Promise<Readonly<Record<string, string>>> {
  const run = commandsAt(agent, home)
  const [status, read] = [await run('status'), await run('read cubbyhole/x')]
  const unseal = await run('operator unseal -', 'MDEyMzQ1Njc4OWFiY2RlZg==')
  assert.deepEqual([status.code, read.code, unseal.code], [2, 1, 1])
  const readiness = JSON.stringify((await ask(agent, 'GET', 'agent/ready')).body)
  // The log is written some milliseconds later: all of it is there when the last request is.
  await ask(agent, 'HEAD', 'openapi.json')
  await eventually(() => agent.stderr().includes('"method":"HEAD"'), 'all are logged')
  return {
    status: status.stdout + status.stderr,
    read: read.stderr,
    unseal: unseal.stderr,
    readiness,
    log: agent.stderr(),
  }
}

/** The ways that know of it say `right`, and none says `wrong`. */
function assertHints(said: Readonly<Record<string, string>>, right: RegExp, wrong: RegExp): void {
  for (const name of ['status', 'readiness']) assert.match(said[name] ?? '', right, name)
  for (const [name, text] of Object.entries(said)) assert.doesNotMatch(text, wrong, name)
}

function writeServer(directory: string, seal: string): string {
  const file = join(directory, 'server.hcl')
  mkdirSync(join(directory, 'data'), { recursive: true })
  writeFileSync(
    file,
    `data_dir = "${directory}/data"\nports {\n http = 0\n cluster = 0\n}\nserver {\n enabled = true\n ${seal}\n}\n`,
  )
  return file
}

const staticSeal = (source: string, more = '') =>
  `seal "static" {\n current_key_id = "k1"\n current_key = "${source}"\n ${more}\n }`

async function initialised(agent: Asked) {
  const { body, status } = await ask(agent, 'PUT', 'sys/init', { recovery_shares: 1, recovery_threshold: 1 })
  assert.equal(status, 200, JSON.stringify(body))
  assert.deepEqual([body['keys'], Array.isArray(body['recovery_keys'])], [[], true])
  return { token: String(body['root_token']), recovery: String((body['recovery_keys_base64'] as string[])[0]) }
}

test('a server with a systemd credential is unsealed when it reports ready, after any kind of stop', async (t) => {
  const directory = workDirectory(t)
  mkdirSync(join(directory, 'credentials'))
  writeFileSync(join(directory, 'credentials', 'unseal'), randomBytes(32), { mode: 0o400 })
  const env = { CREDENTIALS_DIRECTORY: join(directory, 'credentials') }
  const file = writeServer(directory, staticSeal('credential://unseal'))
  const agent = await startAgent(t, ['-config', file], { env })
  const { token } = await initialised(agent)
  assert.equal((await ask(agent, 'POST', 'cubbyhole/kept', { x: 'y' }, token)).status, 204)
  agent.child.kill('SIGKILL')
  await agent.ended
  let next = await agentHere(t, ['-config', file], { env })
  assert.deepEqual((await ask(next, 'GET', 'cubbyhole/kept', undefined, token)).body['data'], { x: 'y' })
  const { body: status } = await ask(next, 'GET', 'sys/seal-status')
  assert.deepEqual([status['type'], status['sealed'], status['recovery_seal'], status['t']], ['static', false, true, 1])

  // Sealed on purpose it stays sealed until the next start.
  assert.equal((await ask(next, 'PUT', 'sys/seal', undefined, token)).status, 204)
  assert.equal((await ask(next, 'GET', 'sys/health')).status, 503)
  const said = await hints(next, directory)
  assertHints(
    said,
    /sealed, next: restart the server: it was sealed by an operator/,
    /operator unseal|is wrong|Progress/,
  )
  assert.match(said['unseal'] ?? '', /not with key shares: restart the server/)
  await next.stop()
  next = await agentHere(t, ['-config', file], { env })
  assert.equal((await ask(next, 'GET', 'sys/health')).status, 200)
})

test('a key file that is created later is used; until then other requests are served and the log names it', async (t) => {
  const directory = workDirectory(t)
  const key = join(directory, 'unseal.key')
  const bytes = randomBytes(32)
  writeFileSync(key, bytes, { mode: 0o600 })
  const file = writeServer(directory, staticSeal(`file://${key}`))
  const agent = await agentHere(t, ['-config', file])
  const { recovery, token } = await initialised(agent)
  await agent.stop()
  writeFileSync(key, randomBytes(32))
  const next = await agentHere(t, ['-config', file])
  const why = /encrypted with the static key \\"k1\\"; \\"k1\\" cannot decrypt it/
  await eventually(() => why.test(next.stderr()), 'the log says why')
  assert.equal((await ask(next, 'GET', 'sys/health')).status, 503)
  const refused = await ask(next, 'PUT', 'sys/unseal', { key: recovery })
  assert.deepEqual([refused.status, /unseals with its static key/.test(String(refused.body['errors']))], [400, true])
  const said = await hints(next, directory)
  assertHints(said, /provide the static key of the server .*LoadCredential=/, /operator unseal|Unseal Progress/)
  assert.match(said['unseal'] ?? '', /not with key shares: provide the static key/)
  assert.match(said['read'] ?? '', /sealed, next: the server unseals itself with its static key/)
  writeFileSync(key, bytes)
  await eventually(async () => (await ask(next, 'GET', 'sys/health')).status === 200, 'it has opened')
  assert.equal((await ask(next, 'GET', 'auth/token/lookup-self', undefined, token)).status, 200)
  await next.stop()
  assert.ok(!next.stderr().includes(bytes.toString('hex')) && !next.stderr().includes(recovery))
})

function devArgs(directory: string): string[] {
  return ['-dev', '-http-port', '0', '-cluster-port', '0', '-data-dir', join(directory, 'data')]
}

test('-dev unseals the secrets that it created, and reports it if they are of another server', async (t) => {
  const [own, others] = [workDirectory(t), workDirectory(t)]
  for (const start of [startAgent, agentHere]) {
    const agent = await start(t, [...devArgs(own), '-dev-root-token-id', 'root-of-dev'])
    assert.equal((await ask(agent, 'GET', 'auth/token/lookup-self', undefined, 'root-of-dev')).status, 200)
    const { body } = await ask(agent, 'GET', 'sys/seal-status')
    assert.deepEqual([body['type'], body['t'], body['n'], body['sealed']], ['shamir', 1, 1, false])
    if (!('child' in agent)) continue
    agent.child.kill('SIGKILL')
    await agent.ended
  }
  const server = await agentHere(t, ['-config', writeServer(others, 'seal "shamir" {}')])
  await ask(server, 'PUT', 'sys/init', { secret_shares: 2, secret_threshold: 2 })
  await server.stop()
  await assert.rejects(
    agentHere(t, devArgs(others)),
    /were not created with -dev: start without -dev, or with another -data-dir/,
  )
})

test('the seal migrates from shares to a static key and back, over restarts', async (t) => {
  const directory = workDirectory(t)
  const source = randomBytes(32).toString('hex')
  const shamir = writeServer(directory, 'seal "shamir" {}')
  let agent = await agentHere(t, ['-config', shamir])
  const { body: made } = await ask(agent, 'PUT', 'sys/init', { secret_shares: 1, secret_threshold: 1 })
  const [key, token] = [(made['keys'] as string[])[0], String(made['root_token'])]
  const works = async () => (await ask(agent, 'GET', 'auth/token/lookup-self', undefined, token)).status
  const restart = async (seal: string, env: Readonly<Record<string, string>> = {}) => {
    await agent.stop()
    agent = await agentHere(t, ['-config', writeServer(directory, seal)], { env })
  }
  await restart(staticSeal('env://UNSEAL_KEY'), { UNSEAL_KEY: source })
  assert.equal((await ask(agent, 'GET', 'sys/seal-status')).body['migration'], true)
  assert.match(String((await ask(agent, 'PUT', 'sys/unseal', { key })).body['errors']), /seal migration is pending/)
  const pending = await hints(agent, directory)
  assertHints(pending, /next: outpost operator unseal -migrate, with the key shares/, /static key of its machine/)
  assert.equal((await ask(agent, 'PUT', 'sys/unseal', { key, migrate: true })).body['sealed'], false)
  const isLogged = (seal: string) =>
    agent.stderr().includes(`"seal migrated","seal":"${seal}","accessor":"","remote":"127.0.0.1"`)
  await eventually(() => isLogged('static'), 'the migration is in the log')
  assert.equal(await works(), 200)
  await restart(staticSeal('env://UNSEAL_KEY'), { UNSEAL_KEY: source })
  assert.equal(await works(), 200)
  await restart(staticSeal('env://UNSEAL_KEY', 'disabled = "true"'), { UNSEAL_KEY: source })
  assert.equal(await works(), 503)
  const back = await hints(agent, directory)
  assertHints(back, /outpost operator unseal -migrate, with the recovery shares/, /static key of its machine/)
  assert.equal((await ask(agent, 'PUT', 'sys/unseal', { key, migrate: true })).body['type'], 'shamir')
  await eventually(() => isLogged('shamir'), 'the migration back is in the log')
  assert.equal(await works(), 200)
  await restart('seal "shamir" {}')
  const shares = await hints(agent, directory)
  assertHints(shares, /sealed, next: outpost operator unseal\b/, /static|credential/i)
  assert.equal((await ask(agent, 'PUT', 'sys/unseal', { key })).body['sealed'], false)
  assert.equal(await works(), 200)
  assert.ok(!readFileSync(shamir, 'utf8').includes(source))
})
