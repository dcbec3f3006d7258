/**
 * An agent that logs in by itself, over a real NATS server and through servers with and without the core, and a program that
 * `outpost exec` gives a secret with the agent's token: over a rotation, a server that is killed, an agent that is killed and
 * one that is stopped.
 */
import assert from 'node:assert/strict'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { readLogin } from '../../src/login/login-file.ts'
import { OUTPOST, type Running, start } from '../cli/outpost-process.ts'
import { asUser, noOtherUsers, workDirectory } from '../helpers/agent-process.ts'
import { type ClusterWorld, startCluster } from '../helpers/cluster.ts'
import { api, type Core, openCore } from '../helpers/cluster-core.ts'
import { eventually } from '../helpers/eventually.ts'

const OPEN = 'acl { enabled = false }'
const STRANGER = 12_345

interface Scene {
  readonly world: ClusterWorld
  readonly core: Core
  readonly directory: string
  readonly secretIdFile: string
  /** Of the agent. */
  readonly loginFile: string
}

interface Ready {
  readonly checks: readonly { name: string; state: string; reason: string }[]
}

async function checkOf(world: ClusterWorld): Promise<string> {
  const answer = await fetch(`${world.host().member.url}/v1/agent/ready`).catch(() => undefined)
  const { checks } = ((await answer?.json()) ?? { checks: [] }) as Ready
  const check = checks.find(({ name }) => name === 'secrets-login')
  return check ? `${check.state}: ${check.reason}` : 'none'
}

const becomes = (world: ClusterWorld, pattern: RegExp) => {
  let seen = ''
  const isSo = async () => pattern.test((seen = await checkOf(world)))
  return eventually(isSo, () => `${String(pattern)}, it is ${JSON.stringify(seen)}`)
}

const ask = ({ core, world }: Pick<Scene, 'core' | 'world'>, method: string, path: string, body: object) =>
  api(world, method, path, body, core.rootToken)

const put = (scene: Scene, password: string) => ask(scene, 'POST', 'secret/data/app', { data: { password } })

async function newSecretId(scene: Pick<Scene, 'core' | 'world'>): Promise<string> {
  const { data } = (await ask(scene, 'POST', 'auth/approle/role/web/secret-id', {})) as { data?: { secret_id: string } }
  return data?.secret_id ?? ''
}

async function staged(t: TestContext): Promise<Scene> {
  const directory = workDirectory(t)
  const secretIdFile = join(directory, 'secret-id')
  const block = `secrets {\n role_id = "role-of-web"\n secret_id_file = "${secretIdFile}"\n}`
  const world = await startCluster(t, { servers: 2, oneCore: true, hosts: 1, hostAcl: `${OPEN}\n${block}` })
  const loginFile = join(world.host().member.dataDir, 'client/secrets-login.json')
  await becomes(world, /failing: not logged in: the file of the secret ID cannot be used/)
  writeFileSync(secretIdFile, 'not-yet\n', { mode: 0o600 })
  await becomes(world, /failing: not logged in: the server is sealed/)
  const core = await openCore(world)
  await becomes(world, /failing: not logged in: refused: /)
  const scene = { world, core, directory, secretIdFile, loginFile }
  const rules = ['data', 'watch'].map((name) => `path "secret/${name}/app" { capabilities = ["read"] }`)
  await ask(scene, 'PUT', 'sys/policies/acl/web', { policy: rules.join('\n') })
  await ask(scene, 'POST', 'sys/mounts/secret', { type: 'kv', options: { version: '2' } })
  await ask(scene, 'POST', 'sys/auth/approle', { type: 'approle' })
  await ask(scene, 'POST', 'auth/approle/role/web', { token_policies: 'web', token_ttl: '1h' })
  await ask(scene, 'POST', 'auth/approle/role/web/role-id', { role_id: 'role-of-web' })
  return scene
}

/** A program that writes each value that it sees, by the token that `outpost exec` finds. */
function begin({ directory, world }: Scene): Running {
  const secrets = join(directory, 'secrets')
  const look = `read_it() { cat ${secrets}/password >> ${directory}/out; echo >> ${directory}/out; }`
  const script = `${look}; trap read_it HUP; read_it; while :; do sleep 1 & wait $!; done`
  const options = ['-secret=secret/data/app', '-format=file', `-dir=${secrets}`, '-poll=200ms']
  return start(OUTPOST, ['exec', ...options, '--', 'sh', '-c', script], { env: envOf(directory, world) })
}

function envOf(directory: string, world: ClusterWorld) {
  const { dataDir } = world.host().member
  return { PATH: process.env['PATH'], HOME: directory, OUTPOST_ADDR: world.server().url, OUTPOST_DATA_DIR: dataDir }
}

test('an agent logs in over NATS, and programs on its host use its token', async (t) => {
  const scene = await staged(t)
  const { core, directory, loginFile, secretIdFile, world } = scene
  const { member } = world.host()
  const out = join(directory, 'out')
  const seen = () => (existsSync(out) ? readFileSync(out, 'utf8').trim().split('\n') : [])
  const sees = (...values: string[]) =>
    eventually(
      () => seen().join() === values.join(),
      () => `${values.join()}: ${seen().join()}`,
    )
  const secretId = await newSecretId(scene)

  await t.test('a new secret ID makes the login ready', async () => {
    writeFileSync(secretIdFile, `${secretId}\n`)
    await becomes(world, /^ok: logged in, token TTL 3\d\d\d s$/)
    const text = await (await fetch(`${member.url}/v1/metrics?format=prometheus`)).text()
    const ttl = Number(/^outpost_secrets_login_ttl_seconds\S* ([\d.]+)$/m.exec(text)?.[1])
    assert.ok(ttl > 3000 && ttl <= 3600, String(ttl))
    assert.ok(/^outpost_secrets_login_failures_total\{[^}]*step="login"\S* [1-9]/m.test(text))
  })

  const token = readLogin(loginFile)?.token ?? ''
  await put(scene, 'first')
  const running = begin(scene)

  await t.test('the program sees a rotated secret, also after a server was killed', async () => {
    await sees('first')
    await put(scene, 'second')
    await sees('first', 'second')
    await world.server().kill()
    await world.server().start()
    assert.deepEqual(seen(), ['first', 'second'], 'the last value stays while the core is sealed')
    await api(world, 'PUT', 'sys/unseal', { key: core.key }, '')
    await put(scene, 'third')
    await sees('first', 'second', 'third')
  })

  await t.test('a killed agent continues with its token', async () => {
    await member.kill()
    assert.equal(readLogin(loginFile)?.token, token, 'the file is left')
    await put(scene, 'fourth')
    await sees('first', 'second', 'third', 'fourth')
    await member.start()
    await becomes(world, /^ok: logged in/)
    assert.equal(readLogin(loginFile)?.token, token)
    await eventually(() => member.stderr.includes('renewed the token of the previous run'), 'the log says so')
  })

  await t.test('a stopped agent revokes its token, and the program uses the next one', async () => {
    await member.stop()
    assert.equal(existsSync(loginFile), false)
    const own = { 'X-Vault-Token': token }
    assert.equal((await fetch(`${world.server().url}/v1/auth/token/lookup-self`, { headers: own })).status, 403)
    await member.start()
    await becomes(world, /^ok: logged in/)
    assert.notEqual(readLogin(loginFile)?.token, token)
    await put(scene, 'fifth')
    await sees('first', 'second', 'third', 'fourth', 'fifth')
  })

  await t.test(
    'another user of the host can read neither the token nor the secret',
    { skip: noOtherUsers() ?? false },
    async () => {
      const [program = '', ...args] = asUser(STRANGER)
      const options = ['exec', '-secret=secret/data/app', '-start-timeout=5s', '--', 'sh', '-c', 'echo "$PASSWORD"']
      const env = envOf(directory, world)
      const refused = await start(program, [...args, OUTPOST, ...options], { env }).finished
      assert.equal(refused.code, 1)
      assert.match(
        refused.stderr,
        /^outpost: no token: set OUTPOST_TOKEN or log in \(the token of the agent .* is readable by root and the agent's user only\)$/m,
      )
      assert.equal(refused.stdout, '')
      assert.equal((await start(program, [...args, 'cat', loginFile], { env }).finished).stdout, '')
    },
  )

  await t.test('a role with bound addresses is refused over NATS, and the log names the setting', async () => {
    await ask(scene, 'POST', 'auth/approle/role/web', { secret_id_bound_cidrs: '127.0.0.0/8' })
    await member.stop()
    await member.start()
    await becomes(world, /^failing: not logged in: refused: invalid role or secret ID \(HTTP 400\)$/)
    await eventually(() => member.stderr.includes('with bound addresses, set secrets.address'), 'the hint')
  })

  await t.test('with an address the agent logs in over HTTP and sends its token to no other address', async () => {
    member.reconfigure((text) => text.replace('secret_id_file', `address = "${world.server().url}"\n secret_id_file`))
    await eventually(() => readLogin(loginFile)?.address?.url === world.server().url, 'logged in over HTTP')
    await becomes(world, /^ok: logged in/)
    const env = envOf(directory, world)
    const options = ['-secret=secret/data/app', '--', 'sh', '-c', 'echo "$PASSWORD"']
    const elsewhere = await start(OUTPOST, ['exec', '-address=http://127.0.0.1:9', ...options], { env }).finished
    assert.match(
      elsewhere.stderr,
      /no token for http:\/\/127\.0\.0\.1:9: the token of the agent of this host is for http:/,
    )
    const { OUTPOST_ADDR: _, ...bare } = env
    const found = await start(OUTPOST, ['exec', ...options], { env: bare }).finished
    assert.deepEqual([found.code, found.stdout, found.stderr], [0, 'fifth\n', ''])
  })

  running.child.kill('SIGTERM')
  const { stderr } = await running.finished
  for (const text of [stderr, member.stderr, world.server(0).stderr, world.server(1).stderr]) {
    for (const secret of [secretId, token, readLogin(loginFile)?.token ?? '?', 'first', 'fifth']) {
      assert.ok(!text.includes(secret))
    }
  }
})
