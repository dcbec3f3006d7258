/** A command succeeds only where the server confirms what it did, and what is given only once is not lost. */
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { approle } from '../../src/auth/approle/approle.ts'
import { kv } from '../../src/engines/kv/kv.ts'
import { runHere } from '../helpers/command-here.ts'
import { listenTo } from '../helpers/core-listener.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { addKv, expectStatus, writeSecret } from '../helpers/kv-world.ts'
import { quickUserpass } from '../helpers/quick-userpass.ts'
import { temporaryDirectory } from './outpost-process.ts'
import { recordingCore, runAt } from './recording-core.ts'

test('changes below a path without data/ fail with exit code 2 and show the warning of the server', async (t) => {
  const { run, world } = await opened(t)
  await writeSecret(world, 'app', { key: 'v' })
  for (const line of [
    'write secret/app key=w',
    'write -wrap-ttl=5m secret/app key=w',
    'patch secret/app key=w',
    'delete secret/app',
  ]) {
    const { code, stderr, stdout } = await run(line.split(' '))
    assert.match(stderr, /^outpost: nothing was changed at secret\/app: Invalid path for a versioned/, line)
    assert.deepEqual([code, stdout], [2, ''], line)
  }
  assert.equal((await run(['write', 'secret/data/none', '-force'])).code, 1)
  const missing = await run(['read', 'secret/app'])
  assert.deepEqual([missing.code, missing.stdout], [1, ''])
  assert.match(missing.stderr, /^warning: Invalid path .*\noutpost: no value found at secret\/app\n$/)
})

/** With arguments that are right, so that the answer alone decides. */
const CHANGES = [
  'write x k=v',
  'patch x k=v',
  'delete x',
  'kv put secret/app k=v',
  'kv put one/app k=v',
  'kv patch secret/app k=v',
  'kv delete secret/app',
  'kv delete -versions=1 secret/app',
  'kv undelete -versions=1 secret/app',
  'kv destroy -versions=1 secret/app',
  'kv rollback -version=1 secret/app',
  'kv copy secret/app secret/other',
  'kv move secret/app secret/other',
  'kv enable-versioning one',
  'kv metadata put -max-versions=1 secret/app',
  'kv metadata patch -max-versions=1 secret/app',
  'kv metadata delete secret/app',
  'secrets enable kv',
  'secrets disable kv',
  'secrets tune -description=d kv',
  'secrets move a b',
  'auth enable userpass',
  'auth disable userpass',
  'auth tune -description=d userpass',
  'auth move a b',
  'policy delete p',
  'entity write e policies=p',
  'entity delete e',
  'group write g policies=p',
  'group delete g',
  'lease renew a/b',
  'lease revoke a/b',
  'lease revoke -prefix a/b',
  'lease revoke -prefix -force a/b',
  'token create',
  'token renew',
  'token renew t',
  'token revoke t',
  'token revoke -self',
  'token revoke -accessor a',
  'unwrap t',
  'audit enable file file_path=/x',
  'audit disable file',
  'operator seal',
  'operator rotate',
  'operator generate-root -cancel -nonce=n',
  'operator rekey -cancel -nonce=n',
  'operator rekey -backup-delete',
  'operator dr enable',
  'operator dr token s',
  'operator dr demote',
  `operator dr promote @${import.meta.filename}`,
  'mfa totp write m issuer=i',
  'mfa totp delete m',
  'mfa totp generate m',
  'mfa totp confirm m 123456',
  'mfa totp admin-generate m 4469f90e-cf8a-c25d-0490-0d9cc11587ed',
  'mfa totp admin-destroy m 4469f90e-cf8a-c25d-0490-0d9cc11587ed',
  'mfa totp unlock m 4469f90e-cf8a-c25d-0490-0d9cc11587ed',
  'mfa totp replace m 4469f90e-cf8a-c25d-0490-0d9cc11587ed',
  'cloud creds -mfa-code=123456 r',
]

const mount = (path: string, version: string) => ({ data: { path, type: 'kv', options: { version } } })

test('no command that changes something takes a 404 for success', async (t) => {
  const core = await recordingCore(t)
  const mounts = {
    'GET sys/internal/ui/mounts/secret/app': [200, mount('secret/', '2')],
    'GET sys/internal/ui/mounts/secret/other': [200, mount('secret/', '2')],
    'GET sys/internal/ui/mounts/one/app': [200, mount('one/', '1')],
  } as const
  for (const body of [{ errors: [] }, { warnings: ['Invalid path'] }, { data: { a: 1 } }]) {
    core.otherwise = [404, body]
    core.answers = mounts
    for (const line of CHANGES) {
      const { code, err, out } = await runAt(core, line.split(' '))
      assert.notEqual(code, 0, line)
      assert.doesNotMatch(out, /Success/, line)
      assert.match(err, /^outpost: /m, line)
      assert.doesNotMatch(err, /unknown command|unknown option|see "outpost/, `${line}: ${err}`)
    }
  }
})

test('credentials come from files and standard input, without the newline at their end', async (t) => {
  const { file, run, world } = await opened(t, [approle])
  const token = async () => {
    const made = await world.ask('POST', 'auth/token/create', { policies: ['default'] })
    return String(made.body.auth['client_token'])
  }
  const [first, second] = [await token(), await token()]
  assert.equal((await run(['token', 'lookup', '-field=id', `@${file('t', `${first}\n`)}`])).stdout, first)
  assert.equal((await run(['token', 'renew', '-field=token', `@${file('t', `${first}\r\n`)}`])).stdout, first)
  assert.equal((await run(['token', 'revoke', `@${file('t', `${first}\n`)}`])).code, 0)
  assert.equal((await world.ask('POST', 'auth/token/lookup', { token: first })).status, 403)
  assert.equal((await run(['login', '-token-only', `@${file('t', `${second}\n`)}`])).stdout, second)
  assert.equal((await run(['login', '-token-only', `token=@${file('t', second)}`])).stdout, second)
  assert.equal((await run(['login', '-token-only', '-'], `${second}\n`)).stdout, second)

  const wrapped = await world.ask('GET', 'auth/token/lookup-self', undefined, { headers: { 'X-Vault-Wrap-TTL': '5m' } })
  const wrapping = (wrapped.body as unknown as { wrap_info: { token: string } }).wrap_info.token
  assert.equal((await run(['unwrap', '-field=ttl', `@${file('w', `${wrapping}\n`)}`])).stdout, '0')

  await expectStatus(world, 204, 'POST', 'sys/auth/userpass', { type: 'userpass' })
  await expectStatus(world, 204, 'POST', 'auth/userpass/users/alice', { password: ' with spaces ' })
  const login = ['login', '-token-only', '-method=userpass', 'username=alice']
  assert.equal((await run([...login, `password=@${file('p', ' with spaces \n')}`])).code, 0)
  assert.equal((await run([...login, 'password=-'], ' with spaces \r\n')).code, 0)

  await expectStatus(world, 204, 'POST', 'sys/auth/approle', { type: 'approle' })
  await expectStatus(world, 204, 'POST', 'auth/approle/role/r', {})
  const roleId = (await world.ask('GET', 'auth/approle/role/r/role-id')).body.data?.['role_id']
  const secretId = (await world.ask('POST', 'auth/approle/role/r/secret-id')).body.data?.['secret_id']
  const byRole = ['login', '-token-only', '-method=approle', `role_id=@${file('r', `${String(roleId)}\n`)}`]
  assert.equal((await run([...byRole, `secret_id=@${file('s', `${String(secretId)}\n`)}`])).code, 0)
})

test('a file that cannot be read, and an empty one, are named before anything is asked', async (t) => {
  const core = await recordingCore(t)
  const empty = join(temporaryDirectory(t), 'empty')
  writeFileSync(empty, '\n')
  for (const [command, code] of [
    ['token revoke', 2],
    ['token lookup', 2],
    ['token renew', 2],
    ['login', 2],
    ['unwrap', 2],
    ['login -method=userpass username=a password=', 2],
  ] as const) {
    const at = (file: string) => runAt(core, `${command}${command.endsWith('=') ? '' : ' '}@${file}`.split(' '))
    const missing = await at('/nowhere/t')
    assert.deepEqual([missing.code, missing.out], [code, ''], command)
    assert.match(missing.err, /^outpost: cannot read \/nowhere\/t: ENOENT/, command)
    assert.match((await at('')).err, /missing file name after @/)
    const nothing = await at(empty)
    assert.deepEqual([nothing.code, nothing.err.includes(`${empty} is empty`)], [1, true], nothing.err)
  }
  const twice = await runAt(core, ['login', '-method=approle', 'role_id=-', 'secret_id=-'])
  assert.match(twice.err, /standard input can be read only once/)
  await runAt(core, ['token', 'lookup', '\\@literal'])
  assert.deepEqual(
    core.asked.map(({ body }) => body),
    [{ token: '@literal' }],
  )
})

test('a field that a token or a wrapped response cannot have is refused before the request', async (t) => {
  const core = await recordingCore(t)
  for (const line of [
    'read -wrap-ttl=5m -field=token x',
    'write -wrap-ttl=5m -field=secret_id -f x',
    'token create -wrap-ttl=5m -field=token',
    'token create -field=client_tokn',
    'login -field=tokn t',
    'kv get -wrap-ttl=5m -field=k secret/app',
  ]) {
    const { code, err } = await runAt(core, line.split(' '))
    assert.match(err, /option -field: a response with .* has no field ".*", its fields are .*token/, line)
    assert.equal(code, 2, line)
  }
  assert.deepEqual(core.asked, [])
})

test('a missing field does not lose a response that cannot be requested again', async (t) => {
  const core = await recordingCore(t)
  const secret = { data: { secret_id: 'only-once', ttl: 5 } }
  core.answers = {
    'PUT x': [200, secret],
    'PUT sys/wrapping/unwrap': [200, secret],
    'GET cloud/creds/r': [200, { lease_id: 'cloud/creds/r/1', data: { secret_key: 'only-once' } }],
    'GET plain': [200, { data: { a: 'many-times', b: 1 } }],
  }
  for (const [line, names] of [
    ['write -f -field=secret x', 'secret_id, ttl'],
    ['unwrap -field=secret w', 'secret_id, ttl'],
    ['read -field=secret cloud/creds/r', 'lease_id, lease_duration, lease_renewable, secret_key'],
  ] as const) {
    const { code, err, out } = await runAt(core, line.split(' '))
    assert.deepEqual([code, out], [1, ''], line)
    assert.match(err, /": "only-once"/, line)
    assert.ok(
      err.includes(`the response has no field "secret", its fields are ${names}; the response was printed above`),
      err,
    )
  }
  const { err } = await runAt(core, ['read', '-field=secret', 'plain'])
  assert.equal(err, 'outpost: the response has no field "secret", its fields are a, b\n')
  assert.match((await runAt(core, ['write', '-f', '-field=k', 'y'])).err, /succeeded, but the response is empty/)
})

async function opened(t: Parameters<typeof listenTo>[0], engines: readonly (typeof approle)[] = []) {
  const world = await CoreWorld.open(t, { engines: [kv, quickUserpass, ...engines] })
  await addKv(world)
  const directory = temporaryDirectory(t)
  const url = `http://127.0.0.1:${await listenTo(t, world)}`
  const env = { HOME: directory, OUTPOST_ADDR: url, OUTPOST_TOKEN: world.rootToken }
  return {
    world,
    run: (args: readonly string[], input?: string) => runHere(args, env, input),
    file: (name: string, text: string) => {
      writeFileSync(join(directory, name), text)
      return join(directory, name)
    },
  }
}
