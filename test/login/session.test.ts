/** Logins by AppRole against a real core in this process: renewals, new logins, credentials that change, faults. */
import assert from 'node:assert/strict'
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { approle } from '../../src/auth/approle/approle.ts'
import { kv } from '../../src/engines/kv/kv.ts'
import { AgentLogin, type LoginSettings } from '../../src/login/agent-login.ts'
import type { LoginRole } from '../../src/login/credentials.ts'
import { readLogin } from '../../src/login/login-file.ts'
import type { LoginTransport } from '../../src/login/session.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { eventually } from '../helpers/eventually.ts'
import { recordingLogger, type LogLine } from '../helpers/recording-logger.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

class Refused extends Error {
  readonly isFinal: boolean
  readonly shown: string
  constructor(status: number, text: string) {
    super(`${text} (HTTP ${status})`)
    this.isFinal = status >= 400 && status < 500
    this.shown = `HTTP ${status}`
  }
}

interface Rig {
  readonly world: CoreWorld
  readonly login: AgentLogin
  readonly role: LoginRole
  readonly file: string
  readonly asked: string[]
  readonly lines: LogLine[]
  /** Set: no question reaches the core. */
  away: boolean
  roleNamed(name: string, options: object): Promise<string>
  newSecretId(name?: string, options?: object): Promise<string>
  isGood(token: string | undefined): Promise<boolean>
}

async function rigged(t: TestContext, options: object = {}): Promise<Rig> {
  const world = await CoreWorld.open(t, { engines: [kv, approle] })
  const directory = temporaryDirectory(t)
  const asked: string[] = []
  const lines: LogLine[] = []
  assert.equal((await world.ask('POST', 'sys/auth/approle', { type: 'approle' })).status, 204)
  const rig: Rig = {
    world,
    asked,
    lines,
    away: false,
    file: join(directory, 'secrets-login.json'),
    login: new AgentLogin({
      file: join(directory, 'secrets-login.json'),
      logger: recordingLogger(lines),
      send: () => send,
    }),
    role: { mount: 'auth/approle', roleId: '', secretIdFile: join(directory, 'secret-id') },
    async roleNamed(name, more) {
      const made = await world.ask('POST', `auth/approle/role/${name}`, { token_ttl: '1h', ...more })
      assert.equal(made.status, 204, made.text)
      return String((await world.ask('GET', `auth/approle/role/${name}/role-id`)).body.data['role_id'])
    },
    newSecretId: async (name = 'web', more = {}) =>
      String((await world.ask('POST', `auth/approle/role/${name}/secret-id`, more)).body.data['secret_id']),
    isGood: async (token) =>
      token !== undefined && (await world.ask('GET', 'auth/token/lookup-self', undefined, { token })).status === 200,
  }
  const send: LoginTransport = async ({ body, path }, token) => {
    if (rig.away) throw new Error('no server responds')
    asked.push(path)
    const answer = await world.ask('PUT', path, body, { token: token ?? null })
    if (answer.status >= 300) throw new Refused(answer.status, answer.text)
    return answer.body
  }
  const roleId = await rig.roleNamed('web', options)
  t.after(() => rig.login.stop())
  return Object.assign(rig, { role: { ...rig.role, roleId } })
}

const write = (file: string, text: string) => writeFileSync(file, `${text}\n`, { mode: 0o600 })
const loggedIn = (rig: Rig) =>
  eventually(() => rig.login.state?.fault === undefined && readLogin(rig.file)?.token, 'a login')
const logsOf = ({ lines }: Rig) => JSON.stringify(lines)

test('the agent logs in, stores the token in a private file, and revokes it at the end', async (t) => {
  const rig = await rigged(t)
  const secretId = await rig.newSecretId()
  write(rig.role.secretIdFile, secretId)
  rig.login.set({ role: rig.role })
  assert.equal(rig.login.state?.isKnown, false)
  const token = await loggedIn(rig)
  assert.equal(statSync(rig.file).mode & 0o777, 0o600)
  assert.ok(await rig.isGood(token))
  const left = rig.login.state?.secondsLeft ?? 0
  assert.ok(left > 3500 && left <= 3600, String(left))
  await rig.login.stop()
  assert.equal(existsSync(rig.file), false)
  assert.equal(await rig.isGood(token), false)
  assert.ok(!logsOf(rig).includes(secretId) && !logsOf(rig).includes(token))
})

test('a token is renewed, and replaced by a new login if renewal fails', async (t) => {
  const rig = await rigged(t, { token_ttl: '1s', token_max_ttl: '1h' })
  write(rig.role.secretIdFile, await rig.newSecretId())
  rig.login.set({ role: rig.role })
  const first = await loggedIn(rig)
  const count = (path: string) => rig.asked.filter((each) => each === path).length
  await eventually(() => count('auth/token/renew-self') >= 2, 'two renewals')
  assert.equal(count('auth/approle/login'), 1)
  assert.equal(readLogin(rig.file)?.token, first)
  // As an operator who revokes it.
  assert.equal((await rig.world.ask('POST', 'auth/token/revoke', { token: first })).status, 204)
  const second = await eventually(() => {
    const now = readLogin(rig.file)?.token
    return now !== first && now
  }, 'a new login')
  assert.ok(await rig.isGood(second))
})

test('after a new login the token is renewed by its own lifetime', async (t) => {
  const rig = await rigged(t, { token_ttl: '3s', token_max_ttl: '1h' })
  write(rig.role.secretIdFile, await rig.newSecretId())
  rig.login.set({ role: rig.role })
  const first = await loggedIn(rig)
  await rig.roleNamed('web', { token_ttl: '1s', token_max_ttl: '1h' })
  assert.equal((await rig.world.ask('POST', 'auth/token/revoke', { token: first })).status, 204)
  const count = (path: string) => rig.asked.filter((each) => each === path).length
  await eventually(() => count('auth/approle/login') === 2, 'a new login')
  const renewals = count('auth/token/renew-self')
  await eventually(() => count('auth/token/renew-self') >= renewals + 2, 'two renewals')
  assert.equal(count('auth/approle/login'), 2)
})

test('the login is not ready while the server is away and resumes afterwards', async (t) => {
  const rig = await rigged(t, { token_ttl: '1s', token_max_ttl: '1h' })
  write(rig.role.secretIdFile, await rig.newSecretId())
  rig.away = true
  rig.login.set({ role: rig.role })
  await eventually(() => rig.login.state?.fault === 'not logged in: no server responds, see the log')
  rig.away = false
  await loggedIn(rig)
  rig.away = true
  await eventually(() => rig.login.state?.fault?.startsWith('the token is not renewed') ?? false)
  await eventually(() => rig.login.state?.fault?.startsWith('not logged in') ?? false, 'its end')
  assert.equal(rig.login.state?.secondsLeft, 0)
  rig.away = false
  await eventually(() => rig.login.state?.fault === undefined, 'it is back')
  const { failures } = rig.login.state ?? {}
  assert.ok((failures?.login ?? 0) >= 2 && (failures?.renewal ?? 0) >= 1, JSON.stringify(failures))
})

test('a replaced secret ID is used at once, and an unusable one is reported with the fix', async (t) => {
  const rig = await rigged(t)
  const { secretIdFile } = rig.role
  const told = (pattern: RegExp) => eventually(() => pattern.test(logsOf(rig)), String(pattern))
  rig.login.set({ role: rig.role })
  await told(/the secret ID cannot be used: ENOENT/)
  assert.equal(rig.login.state?.fault, 'not logged in: the file of the secret ID cannot be used')
  write(secretIdFile, 'of-nobody')
  await told(/invalid role or secret ID/)
  const secretId = await rig.newSecretId()
  write(secretIdFile, secretId)
  chmodSync(secretIdFile, 0o644)
  await told(/other users can access it: .* belongs to \S+ with mode 0644; run: chmod 600 /)
  if (process.getuid?.() === 0) {
    chmodSync(secretIdFile, 0o600)
    chownSync(secretIdFile, 12_345, 0)
    await told(
      /belongs to 12345 with mode 0600, and this process runs as root; run as root: chown root .* && chmod 600/,
    )
    chownSync(secretIdFile, 0, 0)
  }
  chmodSync(secretIdFile, 0o600)
  await loggedIn(rig)
  assert.ok(!logsOf(rig).includes(secretId))
})

test('the token of a killed agent is renewed without a secret ID, for the same role only', async (t) => {
  const rig = await rigged(t, { secret_id_num_uses: 1 })
  write(rig.role.secretIdFile, await rig.newSecretId())
  rig.login.set({ role: rig.role })
  const token = await loggedIn(rig)
  const left = readFileSync(rig.file)
  const asked: (string | undefined)[] = []
  const again = (settings: LoginSettings) => {
    const login = new AgentLogin({
      file: rig.file,
      logger: recordingLogger(rig.lines),
      send:
        () =>
        async ({ body, path }, own) => {
          asked.push(own)
          const answer = await rig.world.ask('PUT', path, body, { token: own ?? null })
          if (answer.status >= 300) throw new Refused(answer.status, answer.text)
          return answer.body
        },
    })
    t.after(() => login.stop())
    login.set(settings)
    return login
  }
  // The secret ID is used up.
  const second = again({ role: rig.role })
  await eventually(() => second.state?.isKnown && second.state.fault === undefined, 'the second run')
  assert.equal(readLogin(rig.file)?.token, token)
  writeFileSync(rig.file, left)
  asked.length = 0
  const moved = again({ role: rig.role, address: { url: 'https://another.example' } })
  await eventually(() => moved.state?.isKnown, 'it has asked')
  await moved.stop()
  assert.ok(!asked.includes(token), 'another address does not learn the token')
  assert.match(logsOf(rig), /stored login is for another address/)
  assert.ok(await rig.isGood(token))
  writeFileSync(rig.file, left, { mode: 0o600 })
  const other = await rig.roleNamed('other', {})
  write(rig.role.secretIdFile, await rig.newSecretId('other'))
  const third = again({ role: { ...rig.role, roleId: other } })
  await eventually(() => third.state?.isKnown && third.state.fault === undefined, 'the third run')
  assert.notEqual(readLogin(rig.file)?.token, token)
  assert.equal(await rig.isGood(token), false, 'the token of the other role is revoked')
})

test('a wrapped secret ID is unwrapped once, and one that was unwrapped elsewhere is reported', async (t) => {
  const rig = await rigged(t, { token_ttl: '1s', token_max_ttl: '1h' })
  const from = 'auth/approle/role/web/secret-id'
  const wrapped = async (path: string) => {
    const { body } = await rig.world.ask('POST', path, {}, { headers: { 'X-Vault-Wrap-TTL': '60s' } })
    return (body['wrap_info'] as { token: string }).token
  }
  const role = { ...rig.role, wrappingPath: from }
  write(role.secretIdFile, await wrapped(from))
  rig.login.set({ role })
  const revoked = async () => {
    const token = await loggedIn(rig)
    assert.equal((await rig.world.ask('POST', 'auth/token/revoke', { token })).status, 204)
    return token
  }
  const first = await revoked()
  await eventually(() => readLogin(rig.file)?.token !== first, 'another login with the same secret ID')
  assert.equal(rig.asked.filter((each) => each === 'sys/wrapping/unwrap').length, 1)
  const stolen = await wrapped(from)
  write(role.secretIdFile, stolen)
  assert.equal((await rig.world.ask('POST', 'sys/wrapping/unwrap', { token: stolen }, { token: null })).status, 200)
  await revoked()
  await eventually(() =>
    /has expired or was already used: if not by this agent, destroy its secret ID/.test(logsOf(rig)),
  )
  write(role.secretIdFile, await wrapped('sys/wrapping/wrap'))
  await eventually(() => /was not created by auth\/approle\/role\/web\/secret-id/.test(logsOf(rig)))
  assert.equal(rig.login.state?.fault, 'not logged in: the wrapped secret ID cannot be used')
  write(role.secretIdFile, await wrapped(from))
  await eventually(() => rig.login.state?.fault === undefined, 'a good one')
})

test('changed settings start a new login, and the previous session stays until it has succeeded', async (t) => {
  const rig = await rigged(t)
  write(rig.role.secretIdFile, await rig.newSecretId())
  rig.login.set({ role: rig.role })
  const first = await loggedIn(rig)
  rig.login.set({ role: { ...rig.role, roleId: 'a-mistake' } })
  await eventually(() => rig.login.state?.fault === 'not logged in: HTTP 400')
  assert.equal(readLogin(rig.file)?.token, first)
  assert.ok(await rig.isGood(first))
  const roleId = await rig.roleNamed('other', {})
  write(rig.role.secretIdFile, await rig.newSecretId('other'))
  rig.login.set({ role: { ...rig.role, roleId } })
  const second = await eventually(() => {
    const now = readLogin(rig.file)?.token
    return now !== first && now
  })
  await eventually(async () => !(await rig.isGood(first)), 'the first is revoked')
  rig.login.set({ role: { ...rig.role, roleId } })
  assert.equal(readLogin(rig.file)?.token, second, 'settings that are the same change nothing')
  rig.login.set(undefined)
  await eventually(async () => !(await rig.isGood(second)), 'the second is revoked')
  assert.deepEqual([rig.login.state, existsSync(rig.file)], [undefined, false])
})

test('if the file cannot be written, programs get no token rather than an old one', async (t) => {
  const rig = await rigged(t)
  write(rig.role.secretIdFile, await rig.newSecretId())
  // A directory in its place: neither root nor another user can rename a file over it.
  const login = new AgentLogin({
    file: join(rig.file, 'missing-directory', 'file'),
    logger: recordingLogger(rig.lines),
    send:
      () =>
      async ({ body, path }, own) =>
        (await rig.world.ask('PUT', path, body, { token: own ?? null })).body,
  })
  t.after(() => login.stop())
  login.set({ role: rig.role })
  await eventually(() => login.state?.fault === 'logged in, but the token cannot be written to its file, see the log')
  assert.ok((login.state?.failures.file ?? 0) >= 1)
  assert.ok((login.state?.secondsLeft ?? 0) > 0)
})

test('a file that cannot be replaced is removed with its old token, and written once it can be', async (t) => {
  const rig = await rigged(t, { token_ttl: '1s', token_max_ttl: '1h' })
  write(rig.role.secretIdFile, await rig.newSecretId())
  rig.login.set({ role: rig.role })
  const first = await loggedIn(rig)
  // A directory under the temporary name, so that not even root can write the file.
  const inTheWay = `${rig.file}.new`
  mkdirSync(inTheWay)
  assert.equal((await rig.world.ask('POST', 'auth/token/revoke', { token: first })).status, 204)
  await eventually(() => (rig.login.state?.failures.file ?? 0) > 0, 'another login is to be written')
  assert.equal(existsSync(rig.file), false, 'no program gets the token that was revoked')
  assert.match(logsOf(rig), /programs on this host get no token, retrying/)
  rmdirSync(inTheWay)
  const second = await eventually(() => readLogin(rig.file)?.token, 'the file is written')
  assert.notEqual(second, first)
  assert.ok(await rig.isGood(second))
  assert.equal(rig.login.state?.fault, undefined)
})

test('a file that others can read, a link, or a malformed file is refused', async (t) => {
  const file = join(temporaryDirectory(t), 'login.json')
  assert.equal(readLogin(file), undefined)
  writeFileSync(file, '{"token":"planted","role":"r"}', { mode: 0o644 })
  assert.throws(() => readLogin(file), /readable by others: chmod 600/)
  chmodSync(file, 0o620)
  assert.throws(() => readLogin(file), /writable by others: chmod 600/)
  chmodSync(file, 0o600)
  assert.deepEqual(readLogin(file), { token: 'planted', role: 'r' })
  for (const text of ['', 'planted', '{"token":"planted"}', '{"token":"plan\\nted","role":"r"}', '[]', 'null']) {
    writeFileSync(file, text)
    assert.throws(
      () => readLogin(file),
      (error: Error) => /not written by an agent/.test(error.message) && !error.message.includes('planted'),
    )
  }
  rmSync(file)
  symlinkSync('/dev/zero', file)
  assert.throws(() => readLogin(file), /not a regular file/)
})
