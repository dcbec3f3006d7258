/** `outpost exec` with credentials of the cloud engine, and what becomes of their leases. */
import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { type Engine, path, Rejection } from '../../src/engines/framework/engine.ts'
import { kv } from '../../src/engines/kv/kv.ts'
import { listenTo } from '../helpers/core-listener.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { eventually } from '../helpers/eventually.ts'
import { addKv, tokenWith, writeSecret } from '../helpers/kv-world.ts'
import { OUTPOST, start, temporaryDirectory } from './outpost-process.ts'

async function opened(t: TestContext, engines: readonly Engine[]) {
  const world = await CoreWorld.open(t, { engines })
  const url = `http://127.0.0.1:${await listenTo(t, world)}`
  const directory = temporaryDirectory(t)
  /** The words of `options` are split at spaces. */
  const begin = (options: string, command: readonly string[], { token = world.rootToken, env = {} } = {}) => {
    const all = { PATH: process.env['PATH'], HOME: directory, OUTPOST_ADDR: url, OUTPOST_TOKEN: token, ...env }
    return start(OUTPOST, ['exec', ...options.split(' '), '--', ...command], { env: all })
  }
  const exec = (...given: Parameters<typeof begin>) => begin(...given).finished
  return { world, begin, directory, exec }
}

/** A third of it, in which a renewal is repeated, is far above what a request takes on a busy machine. */
const LEASE_SECONDS = 9

const read = (token: string | null) => () => ({
  data: { access_key: 'AKIAEXAMPLE', secret_key: 'sEcret/+key', session_token: token, security_token: token },
  lease: { ttlSeconds: 600, maxTtlSeconds: 3600, renewable: true, internal: { token: token ?? 'none' } },
})

/** Issues credentials like the cloud engine, without AWS: a session, or a user without a session token. */
function awsShape(): { readonly engine: Engine; readonly revoked: string[] } {
  const revoked: string[] = []
  const paths = [
    path({ pattern: 'creds/session', summary: 'A session', fields: {}, read: read('tok/en==') }),
    path({ pattern: 'creds/user', summary: 'A user', fields: {}, read: read(null) }),
  ]
  const engine: Engine = {
    type: 'aws-shape',
    description: 'credentials in the shape of AWS',
    paths,
    revoke({ internal }) {
      revoked.push(String(internal['token']))
      return undefined
    },
  }
  return { engine, revoked }
}

test('-format=aws sets the variables of AWS, and the lease is revoked when the command has ended', async (t) => {
  const { engine, revoked } = awsShape()
  const { exec, world } = await opened(t, [engine])
  assert.equal((await world.ask('POST', 'sys/mounts/cloud', { type: 'aws-shape' })).status, 204)
  const show = 'echo "$AWS_ACCESS_KEY_ID $AWS_SECRET_ACCESS_KEY [$AWS_SESSION_TOKEN]"'
  const session = await exec('-secret=cloud/creds/session -format=aws', ['sh', '-c', `${show}; exit 3`])
  assert.deepEqual([session.code, session.stdout], [3, 'AKIAEXAMPLE sEcret/+key [tok/en==]\n'])
  assert.deepEqual(revoked, ['tok/en=='])
  const env = { AWS_SESSION_TOKEN: 'of other keys' }
  const user = await exec('-secret=cloud/creds/user -format=aws -keep-lease', ['sh', '-c', show], { env })
  assert.equal(user.stdout, 'AKIAEXAMPLE sEcret/+key []\n', 'a session token of other keys is removed')
  assert.deepEqual(revoked, ['tok/en=='], 'kept')
  const wrong = await exec('-secret=cloud/creds/user -format=aws -env A=access_key', ['true'])
  assert.deepEqual([wrong.code, wrong.stderr.includes('require -format=env')], [2, true])
  const policy = 'path "cloud/creds/user" { capabilities = ["read"] }'
  await world.ask('PUT', 'sys/policies/acl/reader', { policy })
  const made = await world.ask('POST', 'auth/token/create', { policies: ['reader'], no_default_policy: true })
  const token = String(made.body.auth['client_token'])
  const refused = await exec('-secret=cloud/creds/user -format=aws', ['true'], { token })
  assert.equal(refused.code, 0)
  assert.match(refused.stderr, /cannot revoke lease cloud\/creds\/user\/\w+, it will expire after its TTL: /)
})

test('a path of a versioned mount without data/ is refused with the right path', async (t) => {
  const { exec, world } = await opened(t, [kv])
  await addKv(world)
  await writeSecret(world, 'app', { password: 'x' })
  const root = await exec('-secret=secret/app', ['true'])
  assert.equal(root.code, 1)
  assert.match(root.stderr, /secret\/ is versioned: use -secret=secret\/data\/app\n$/)
  const token = await tokenWith(world, 'path "secret/data/app" { capabilities = ["read"] }')
  const limited = await exec('-secret=secret/app', ['true'], { token })
  assert.match(limited.stderr, /use -secret=secret\/data\/app\n$/)
})

test('a lease is renewed, or its secret read again if renewal fails or the maximum TTL is near', async (t) => {
  const seen = { reads: 0, renewals: 0, refuses: false }
  const revoked: unknown[] = []
  /** How many renewals each reading has come after. */
  const renewalsBefore: number[] = []
  const lent = (maxTtlSeconds: number) => () => {
    seen.refuses = false
    renewalsBefore.push(seen.renewals)
    const number = ++seen.reads
    return { data: { number }, lease: { ttlSeconds: 1, maxTtlSeconds, renewable: true, internal: { number } } }
  }
  const engine: Engine = {
    type: 'lender',
    description: 'issues a lease for a second',
    paths: [
      path({ pattern: 'thing', summary: 'Something with a lease', fields: {}, read: lent(3600) }),
      path({ pattern: 'short', summary: 'Something that no renewal makes last longer', fields: {}, read: lent(1) }),
    ],
    renew() {
      seen.renewals++
      if (seen.reads > 100 && seen.renewals === 1) world.nowMs += 900
      if (seen.refuses) throw new Rejection(400, 'not any more')
    },
    revoke({ internal }) {
      revoked.push(internal['number'])
      return undefined
    },
  }
  const { begin, directory, world } = await opened(t, [engine])
  assert.equal((await world.ask('POST', 'sys/mounts/lender', { type: 'lender' })).status, 204)
  const file = join(directory, 'out')
  const run = (secret: string) =>
    begin(`-secret=${secret} -allow-env=number`, ['sh', '-c', `echo "$NUMBER" >> ${file}; sleep 1000 & wait`])
  const out = () => (existsSync(file) ? readFileSync(file, 'utf8') : '')
  const running = run('lender/thing')
  await eventually(() => seen.renewals >= 2, 'two renewals')
  assert.equal(seen.reads, 1)
  seen.refuses = true
  await eventually(() => out().startsWith('1\n2\n'), 'another one')
  running.child.kill('SIGTERM')
  await running.finished
  assert.deepEqual(new Set(revoked), new Set([1, 2]), 'also the lease that was replaced, which may be in use')

  Object.assign(seen, { reads: 100, renewals: 0 })
  renewalsBefore.length = 0
  const short = run('lender/short')
  await eventually(() => out().endsWith('101\n102\n'), 'its renewal gave too little time')
  assert.deepEqual(renewalsBefore.slice(0, 2), [0, 1])
  short.child.kill('SIGTERM')
  const { stderr } = await short.finished
  assert.equal(stderr, '', 'that is no fault')
})

test('a renewal that fails is repeated until the lease expires', async (t) => {
  const seen = { reads: 0, renewals: 0 }
  const lend = () => {
    const lease = { ttlSeconds: LEASE_SECONDS, maxTtlSeconds: 3600, renewable: true, internal: {} }
    return { data: { number: ++seen.reads }, lease }
  }
  const engine: Engine = {
    type: 'lender',
    description: 'gives out something that can be renewed',
    paths: [path({ pattern: 'thing', summary: 'Something with a lease', fields: {}, read: lend })],
    renew() {
      if (++seen.renewals === 1) throw new Error('the cloud is away')
    },
    revoke: () => undefined,
  }
  const { begin, world } = await opened(t, [engine])
  assert.equal((await world.ask('POST', 'sys/mounts/lender', { type: 'lender' })).status, 204)
  const running = begin('-secret=lender/thing -allow-env=number', ['sh', '-c', 'sleep 1000 & wait'])
  await eventually(() => seen.renewals === 2, 'another attempt')
  assert.equal(seen.reads, 1, 'the secret was not read again')
  running.child.kill('SIGTERM')
  assert.match((await running.finished).stderr, /the lease of lender\/thing: .*; retrying/)
})
