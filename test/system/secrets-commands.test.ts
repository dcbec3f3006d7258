/** The commands for secrets against the real program: a server with key shares, from its first start on. */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { OUTPOST, processesMentioning, ROOT, start } from '../cli/outpost-process.ts'
import { agentHere } from '../helpers/agent-here.ts'
import { workDirectory } from '../helpers/agent-process.ts'
import { newPgpKey } from '../helpers/pgp-keys.ts'
import { commandsAt, freshServer as fresh, jsonOf as json, writeServer } from '../helpers/secrets-server.ts'
import { eventually } from '../helpers/eventually.ts'

const HAS_PYTHON = spawnSync('python3', ['-c', 'import pty']).status === 0

test('from the first start to an unsealed server each command prints the next step', async (t) => {
  const directory = workDirectory(t)
  const agent = await agentHere(t, ['-config', writeServer(directory)])
  const run = commandsAt(agent, directory)
  const before = await run('status')
  assert.deepEqual([before.code, before.stderr], [2, 'not initialized, next: outpost operator init\n'])
  assert.equal((await run('operator init -status')).code, 2)
  const early = await run('read cubbyhole/x')
  assert.deepEqual([early.code, early.stderr.includes('outpost operator init')], [1, true])

  const init = await run('operator init -key-shares=3 -key-threshold=2')
  const keys = [...init.stdout.matchAll(/^Unseal Key \d: (\S+)$/gm)].map(([, key]) => key ?? '')
  const token = /^Initial Root Token: (\S+)$/m.exec(init.stdout)?.[1] ?? ''
  assert.deepEqual([keys.length, token !== '', init.stderr], [3, true, ''])
  assert.equal((await run('operator init -status')).code, 0)
  assert.equal((await run('operator init')).code, 1)

  assert.deepEqual((await run('status')).code, 2)
  const sealed = await run('read cubbyhole/x', '', token)
  assert.deepEqual([sealed.code, sealed.stderr], [1, 'outpost: the server is sealed, next: outpost operator unseal\n'])
  const nothing = await run('operator unseal')
  assert.deepEqual([nothing.code, /missing key share: use @FILE to read a file, or - /.test(nothing.stderr)], [2, true])
  assert.equal((await run('operator unseal -')).code, 1, 'nothing came')
  assert.equal((await run('operator unseal -', 'nonsense')).code, 1)
  const first = await run('operator unseal -', `${keys[0]}\n`)
  assert.deepEqual([first.code, first.stderr], [0, 'still sealed: 1 more key share required\n'])
  assert.match(first.stdout, /^Unseal Progress +1\/2$/m)
  assert.match((await run('operator unseal -reset')).stdout, /^Unseal Progress +0\/2$/m)
  assert.match((await run('operator unseal -', keys.join('\n'))).stdout, /^Sealed +false$/m)
  const open = await run('status -format=json')
  assert.deepEqual([open.code, (JSON.parse(open.stdout) as { sealed: boolean }).sealed], [0, false])

  assert.equal((await run('operator seal')).code, 1, 'without a token')
  assert.equal((await run('operator seal', '', token)).code, 0)
  assert.equal((await run('operator status')).code, 2)
  await agent.stop()
  const logs = agent.stdout() + agent.stderr()
  for (const secret of [...keys, token]) assert.ok(!logs.includes(secret), 'nothing of it is in the log')
})

type Server = Awaited<ReturnType<typeof fresh>>

/** In this order: the last one changes the keys. */
test('commands on an unsealed server succeed', async (t) => {
  const server = await fresh(t)
  await server.run('operator unseal -', server.keys.join('\n'))
  await t.test('a policy and a token for it grant exactly its permissions', () => grants(server))
  const { run, token } = server
  assert.equal((await run('secrets enable -version=2 -path=secret kv', '', token)).code, 0)
  await t.test('a secret is written, read and changed through its versions', () => versions(server))
  await t.test('numbers keep their notation in commands that read and write', () => keepsNumbers(server))
  await t.test('a snapshot is saved and restored, and a malformed one changes nothing', () => snapshots(t, server))
  await t.test('key shares, the encryption key and the root token are replaced', () => changesKeys(server))
})

async function grants({ run, token }: Server): Promise<void> {
  const policy = 'path "team/data/app/*" {\n  capabilities = ["create", "read"]\n}\n'
  assert.equal((await run('policy write app -', policy, token)).code, 0)
  assert.equal((await run('policy read app', '', token)).stdout, policy)
  assert.equal((await run('policy list', '', token)).stdout, 'app\ndefault\nroot\n')
  const broken = await run('policy write app -', 'path "x" {', token)
  assert.deepEqual([broken.code, /\d:\d+: /.test(broken.stderr)], [1, true])

  assert.equal((await run('secrets enable -path=team -version=2 kv', '', token)).code, 0)
  assert.match((await run('secrets list', '', token)).stdout, /^team\/ +kv +kv_/m)
  const child = (await run('token create -policy=app -ttl=1h -field=token', '', token)).stdout
  assert.match(child, /^\S+$/)
  assert.equal((await run('token capabilities - team/data/app/db', child, token)).stdout, 'create, read\n')
  assert.equal((await run('login -', child)).code, 0)
  // From here on without a variable: the token that is kept.
  assert.equal((await run('write team/data/app/db -', '{"data":{"password":"hunter2"}}')).code, 0)
  const read = await json(run, 'read team/data/app/db')
  assert.deepEqual((read['data'] as { data: unknown }).data, { password: 'hunter2' })
  const denied = await run('read team/data/other')
  assert.deepEqual([denied.code, denied.stdout], [1, ''])
  assert.match(denied.stderr, /^outpost: permission denied \(HTTP 403\), /)
  assert.equal((await run('token lookup -field=ttl')).code, 0)
  assert.match((await run('token renew -increment=30m')).stdout, /^token_duration +30m$/m)
  assert.equal((await run('token revoke -self')).code, 0)
  assert.equal((await run('token lookup')).code, 1)
  assert.equal((await run('secrets move team crew', '', token)).code, 0)
  assert.equal((await run('secrets disable crew', '', token)).code, 0)
  assert.equal((await run('policy delete app', '', token)).code, 0)
  assert.equal((await run('policy read app', '', token)).code, 1)
}

async function versions({ run, token }: Server): Promise<void> {
  const kv = (line: string, input = '') => run(`kv ${line}`, input, token)
  assert.match((await kv('put secret/app/db user=app password=-', 'hunter2')).stdout, /^version +1$/m)
  assert.match((await kv('put -cas=0 secret/app/db a=b')).stderr, /did not match the current version \(HTTP 400\)/)
  assert.match((await kv('put -cas=1 secret/app/db -', '{"n":{"deep":[7]}}')).stdout, /^version +2$/m)
  assert.equal((await kv('get -field=n secret/app/db')).stdout, '{"deep":[7]}')
  assert.equal((await kv('get -field=password -version=1 -mount=secret app/db')).stdout, 'hunter2')
  assert.match((await kv('patch -remove-data=n secret/app/db user=new')).stdout, /^version +3$/m)
  assert.deepEqual((await kv('list secret')).stdout.split('\n'), ['Keys', '----', 'app/', ''])
  assert.equal((await kv('delete secret/app/db')).code, 0)
  const deleted = await kv('get secret/app/db')
  assert.deepEqual([deleted.code, /^deletion_time +2\d{3}-/m.test(deleted.stdout)], [0, true])
  assert.equal((await kv('get -field=user secret/app/db')).code, 1)
  assert.equal((await kv('undelete -versions=3 secret/app/db')).code, 0)
  assert.equal((await kv('get -field=user secret/app/db')).stdout, 'new')
  assert.match((await kv('rollback -version=1 secret/app/db')).stdout, /^version +4$/m)
  assert.equal((await kv('get -field=password secret/app/db')).stdout, 'hunter2')
  assert.equal((await kv('destroy -versions=1 secret/app/db')).code, 0)
  assert.equal((await kv('rollback -version=1 secret/app/db')).code, 1)
  assert.equal((await kv('metadata put -max-versions=9 -custom-metadata=owner=me secret/app/db')).code, 0)
  assert.equal((await kv('metadata patch -custom-metadata=team=a -remove-custom-metadata=owner secret/app/db')).code, 0)
  const metadata = await json(run, 'kv metadata get secret/app/db', token)
  const { current_version, custom_metadata, max_versions } = metadata['data'] as Record<string, unknown>
  assert.deepEqual([current_version, custom_metadata, max_versions], [4, { team: 'a' }, 9])
  assert.match(
    (await kv('metadata get secret/app/db')).stdout,
    /^=+ Version 1 =+$[^]*^destroyed +true$[^]*^=+ Version 4 =+$/m,
  )
  assert.equal((await kv('metadata delete secret/app/db')).code, 0)
  assert.equal((await kv('get secret/app/db')).code, 1)
}

async function keepsNumbers({ run, token }: Server): Promise<void> {
  const kv = (line: string, input = '') => run(`kv ${line}`, input, token)
  const odd = '{"id":12345678901234567890,"in":{"x":1.0},"list":[1.10,-0,1e2]}'
  assert.equal((await kv('put secret/a -', `{"n":${odd}}`)).code, 0)
  for (const line of ['patch secret/a a=b', 'patch -method=rw secret/a b=c', 'put secret/a c=d']) {
    assert.equal((await kv(line)).code, 0, line)
  }
  for (const version of [1, 2, 3]) {
    assert.equal((await kv(`get -field=n -version=${version} secret/a`)).stdout, odd)
  }
  assert.match((await kv('rollback -version=3 secret/a')).stdout, /^version +5$/m)
  assert.equal((await kv('get -field=n secret/a')).stdout, odd)
}

async function changesKeys({ keys, run, token }: Server): Promise<void> {
  assert.match((await run('operator rotate', '', token)).stdout, /^Key Term +2$/m)
  assert.match((await run('operator key-status', '', token)).stdout, /^Key Term +2$/m)

  assert.match(
    (await run('operator rekey -nonce=x -', 'y', token)).stderr,
    /start one with "outpost operator rekey -init"/,
  )
  const rekey = await json(run, 'operator rekey -init -verify -key-shares=2 -key-threshold=2', token)
  assert.equal((await run('operator rekey -', keys.join('\n'), token)).code, 2, 'the nonce is missing')
  const done = await json(run, `operator rekey -nonce=${String(rekey['nonce'])} -`, token, keys.join('\n'))
  const others = done['keys_base64'] as string[]
  assert.equal(others.length, 2)
  const nonce = String(done['verification_nonce'])
  assert.match(
    (await run(`operator rekey -verify -nonce=${nonce} -`, others[0], token)).stdout,
    /^Rekey Progress +1\/2$/m,
  )
  assert.match((await run(`operator rekey -verify -nonce=${nonce} -`, others[1], token)).stdout, /^Success! /)
  assert.equal((await run('operator seal', '', token)).code, 0)
  assert.match((await run('operator unseal -', others.join('\n'))).stdout, /^Sealed +false$/m)

  const otp = (await run('operator generate-root -generate-otp', '', token)).stdout.trim()
  const begun = await json(run, 'operator generate-root -init -otp=-', token, otp)
  const given = await json(run, `operator generate-root -nonce=${String(begun['nonce'])} -`, token, others.join('\n'))
  assert.deepEqual([given['complete'], given['otp']], [true, ''])
  const encoded = String(given['encoded_token'])
  const decoded = await run('operator generate-root -decode=- -otp=-', `${encoded}\n${otp}\n`)
  const root = decoded.stdout.trim()
  assert.match((await run('token lookup', '', root)).stdout, /^policies +\[root\]$/m)
  assert.equal((await run(`operator generate-root -decode=${encoded} -otp=-`, `${otp}x`)).code, 2)
}

test('shares and the token are encrypted to PGP keys', async (t) => {
  const directory = workDirectory(t)
  const [holder, owner] = await Promise.all([newPgpKey('holder'), newPgpKey('owner')])
  const files = { holder: join(directory, 'holder'), owner: join(directory, 'owner.gpg') }
  writeFileSync(files.holder, holder.publicKey)
  writeFileSync(files.owner, Buffer.from(owner.publicKey, 'base64'))
  const agent = await agentHere(t, ['-config', writeServer(directory)])
  const run = commandsAt(agent, directory)
  const args = `-key-shares=1 -key-threshold=1 -pgp-keys=${files.holder} -root-token-pgp-key=${files.owner}`
  const made = await json(run, `operator init ${args}`)
  const message = Buffer.from(String((made['unseal_keys_b64'] as string[])[0]), 'base64')
  assert.match((await run('operator unseal -', await holder.decrypt(message))).stdout, /^Sealed +false$/m)
  const token = await owner.decrypt(Buffer.from(String(made['root_token']), 'base64'))
  assert.equal((await run('token lookup', '', token)).code, 0)
})

async function snapshots(t: TestContext, { directory, keys, run, token }: Server): Promise<void> {
  await run('write cubbyhole/a x=before', '', token)
  const file = join(directory, 'a.snap')
  const saved = await run(`operator snapshot save ${file}`, '', token)
  assert.deepEqual([saved.code, saved.stdout, /^saved \S+ \w*B to /.test(saved.stderr)], [0, '', true])
  assert.equal(statSync(file).mode & 0o777, 0o600)
  await run('write cubbyhole/a x=after', '', token)
  const whole = readFileSync(file)
  writeFileSync(join(directory, 'cut.snap'), whole.subarray(0, whole.length - 100))
  for (const [line, message] of [
    [`operator snapshot restore ${directory}/cut.snap`, /HTTP 400/],
    [`operator snapshot restore ${directory}/none.snap`, /cannot read/],
    [`operator snapshot restore ${directory}`, /it is a directory/],
    [`operator snapshot save ${directory}/no/where`, /cannot write/],
  ] as const) {
    const ran = await run(line, '', token)
    assert.deepEqual([ran.code, ran.stdout], [1, ''])
    assert.match(ran.stderr, message)
  }
  assert.match((await run(`operator snapshot save ${file}2`)).stderr, /HTTP 403/)
  assert.ok(!existsSync(`${file}2`), 'nothing is left of what was refused')
  assert.match((await run(`operator snapshot restore ${file}`)).stderr, /HTTP 403/)
  assert.equal((await run('read -field=x cubbyhole/a', '', token)).stdout, 'after')
  assert.equal((await run(`operator snapshot restore ${file}`, '', token)).code, 0)
  assert.equal((await run('read -field=x cubbyhole/a', '', token)).stdout, 'before')

  // Another server accepts it only with force, and has the shares of the first one then.
  const other = await fresh(t)
  await other.run('operator unseal -', other.keys.join('\n'))
  const foreign = await other.run(`operator snapshot restore ${file}`, '', other.token)
  assert.deepEqual([foreign.code, /force/.test(foreign.stderr)], [1, true])
  assert.equal((await other.run(`operator snapshot restore -force ${file}`, '', other.token)).code, 0)
  assert.equal((await other.run('status')).code, 2)
  assert.match((await other.run('operator unseal -', keys.join('\n'))).stdout, /^Sealed +false$/m)
  assert.equal((await other.run('read -field=x cubbyhole/a', '', token)).stdout, 'before')
}

test('a key share from standard input is in no process list', async (t) => {
  const { agent, directory, keys } = await fresh(t)
  const env = { ...process.env, OUTPOST_ADDR: agent.url, HOME: directory }
  const child: ChildProcess = spawn(OUTPOST, ['operator', 'unseal', '-'], { env, stdio: ['pipe', 'pipe', 'pipe'] })
  const key = keys[0] ?? ''
  child.stdin?.write(key)
  await eventually(() => processesMentioning('operator\0unseal').length > 0, 'it runs')
  assert.deepEqual(processesMentioning(key), [])
  child.stdin?.end()
  assert.deepEqual(await once(child, 'exit'), [0, null])
})

if (HAS_PYTHON) {
  test('on a terminal a share is typed without echo, and a snapshot shows its progress', async (t) => {
    const { agent, directory, keys, run, token } = await fresh(t, '-key-shares=1 -key-threshold=1')
    const key = keys[0] ?? ''
    const program = join(ROOT, 'test/helpers/terminal.py')
    const onTerminal = async (typed: string, awaited: string, command: string) => {
      const env = {
        ...process.env,
        OUTPOST_ADDR: agent.url,
        OUTPOST_TOKEN: token,
        HOME: directory,
        TYPED: typed,
        TERM: 'xterm',
      }
      return (await start('python3', [program, '80', awaited, OUTPOST, ...command.split(' ')], { env }).finished).stdout
    }
    const given = await onTerminal('\u0003', 'hidden): ', 'operator unseal')
    assert.match(given, /interrupted[^]*exit code 130\n$/)
    const typed = await onTerminal(`nonsense\u0015${key}x\u007f\r`, 'hidden): ', 'operator unseal')
    assert.match(typed, /Unseal Key \(will be hidden\): [^]*Sealed +false[^]*exit code 0\n$/)
    assert.ok(!typed.includes(key.slice(0, 8)) && !typed.includes('nonsense'))
    assert.equal((await run('status')).code, 0)
    const refused = await onTerminal('', '', 'operator snapshot save -')
    assert.match(refused, /cannot write a snapshot to a terminal[^]*exit code 2\n$/)
    const saved = await onTerminal('', '', `operator snapshot save ${directory}/t.snap`)
    assert.match(saved, /\[#* *\] [^]*saved [^]*exit code 0\n$/)
  })
}
