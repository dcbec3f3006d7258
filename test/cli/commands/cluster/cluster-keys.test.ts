/** `outpost cluster keys`: what it writes, who can read it, and that running it again changes only what was asked. */
import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { chmodSync, existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { fromSeed } from '@nats-io/nkeys'
import { runCommand } from '../../../../src/cli/command.ts'
import { loadConfig } from '../../../../src/config/load.ts'
import { natsServerProgram } from '../../../helpers/nats-server.ts'
import { OUTPOST, temporaryDirectory } from '../../outpost-process.ts'

const ID = '6f1c0b9e-2f0a-4a51-9d0c-0000000000a1'

async function keys(...args: readonly string[]) {
  let out = ''
  let err = ''
  const io = { out: (text: string) => void (out += text), err: (text: string) => void (err += text), env: {} }
  const code = await runCommand(['cluster', 'keys', ...args], io)
  return { code, out, err }
}

const modeOf = (path: string) => (statSync(path).mode & 0o777).toString(8)

/** Every file below, with its content. */
function contents(directory: string): Record<string, string> {
  const files = readdirSync(directory, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile())
  return Object.fromEntries(
    files.map(({ parentPath, name }) => [join(parentPath, name), readFileSync(join(parentPath, name), 'utf8')]),
  )
}

/** Of a member, from the seed in its file. */
function publicKeyOf(directory: string, name: string): string {
  const seed = readFileSync(join(directory, name, 'cluster.nk'), 'utf8').trim()
  return fromSeed(new TextEncoder().encode(seed)).getPublicKey()
}

test('secret keys are readable by their owner only, other files have public keys', async (t) => {
  const directory = join(temporaryDirectory(t), 'keys')
  // For any umask.
  const line = ['cluster', 'keys', '-out', directory, '-server', 's1', '-agent', `w1=${ID}`, '-agent', 'w2']
  const said = execFileSync('sh', ['-c', 'umask 0; exec "$@"', 'sh', OUTPOST, ...line], { encoding: 'utf8' })
  assert.match(said, /^created {4}s1: server$/m)
  assert.match(said, new RegExp(`^created {4}w1: agent ${ID}$`, 'm'))
  const texts = contents(directory)
  for (const name of ['s1', 'w1', 'w2']) {
    const seed = texts[join(directory, name, 'cluster.nk')]?.trim() ?? ''
    assert.match(seed, /^SU[A-Z2-7]{56}$/)
    assert.equal(modeOf(join(directory, name, 'cluster.nk')), '600')
    const publicKey = fromSeed(new TextEncoder().encode(seed)).getPublicKey()
    assert.ok(texts[join(directory, 'users.conf')]?.includes(publicKey))
    const holders = Object.values({ ...texts, said }).filter((text) => text.includes(seed))
    assert.equal(holders.length, 1, 'the seed is in its own file and nowhere else')
  }
  assert.equal(modeOf(directory), '700')
  writeFileSync(join(directory, 'nats.conf'), 'authorization { include "users.conf" }')
  const checked = spawnSync(natsServerProgram(), ['-t', '-c', join(directory, 'nats.conf')], { encoding: 'utf8' })
  assert.equal(checked.status, 0, checked.stderr)
})

test('the generated configuration can be loaded', async (t) => {
  const directory = temporaryDirectory(t)
  const nats = ['-nats', 'tls://a.example.com:4222', '-nats', 'tls://b.example.com:4222']
  assert.equal((await keys('-out', directory, '-region', 'eu', '-server', 's1', '-agent', 'w1', ...nats)).code, 0)
  writeFileSync(join(directory, 'base.hcl'), 'data_dir = "/d"\nclient { enabled = true }\n')
  const load = (name: string) =>
    loadConfig({ paths: [join(directory, 'base.hcl'), join(directory, name, 'cluster.hcl')] }).config
  const [server, agent] = [load('s1'), load('w1')]
  assert.deepEqual([server.name, server.server.enabled, server.client.enabled], ['s1', true, false])
  assert.deepEqual([agent.name, agent.server.enabled, agent.client.enabled], ['w1', false, true])
  assert.deepEqual(agent.nats, {
    servers: ['tls://a.example.com:4222', 'tls://b.example.com:4222'],
    nkeyFile: '/etc/outpost/cluster.nk',
    caFile: '/etc/outpost/nats-ca.crt',
    serverKeys: [publicKeyOf(directory, 's1')],
    coreKeys: [publicKeyOf(directory, 's1')],
  })
  assert.equal(agent.region, 'eu')
  const users = readFileSync(join(directory, 'users.conf'), 'utf8')
  assert.ok(users.includes(`outpost.eu.roster.${agent.client.nodeId}.*`) && !users.includes('global'))
})

test('every member learns which keys are servers, and which of them have the secrets core', async (t) => {
  const directory = temporaryDirectory(t)
  await keys('-out', directory, '-server', 's1', '-agent', 'w1')
  const file = join(directory, 'w1/cluster.hcl')
  // An operator's own change stays.
  writeFileSync(file, readFileSync(file, 'utf8').replace('tls://nats.example.com', 'tls://nats.mine'))
  const { out } = await keys('-out', directory, '-edge', 'e1')
  assert.match(out, /created {4}e1: server without secrets\n/)
  assert.match(out, /changed {4}\S+w1\/cluster.hcl: copy it/)
  const [s1, e1] = [publicKeyOf(directory, 's1'), publicKeyOf(directory, 'e1')]
  assert.ok(out.includes(`server_keys = ["${s1}", "${e1}"]\n  core_keys   = ["${s1}"]`))
  writeFileSync(join(directory, 'base.hcl'), 'data_dir = "/d"\n')
  for (const name of ['s1', 'e1', 'w1']) {
    const { config } = loadConfig({ paths: [join(directory, 'base.hcl'), join(directory, name, 'cluster.hcl')] })
    assert.deepEqual([config.nats?.serverKeys, config.nats?.coreKeys], [[s1, e1], [s1]])
    assert.equal(config.server.secrets, name !== 'e1')
  }
  assert.match(readFileSync(file, 'utf8'), /tls:\/\/nats\.mine/)
  assert.equal((await keys('-out', directory, '-edge', 's1')).code, 2)
  await keys('-out', directory, '-remove', 's1')
  assert.ok(!readFileSync(file, 'utf8').includes(s1))
})

test('the first server has the secrets core, and further ones forward to it', async (t) => {
  const directory = temporaryDirectory(t)
  writeFileSync(join(directory, 'base.hcl'), 'data_dir = "/d"\n')
  const hasCore = (name: string) =>
    loadConfig({ paths: [join(directory, 'base.hcl'), join(directory, name, 'cluster.hcl')] }).config.server.secrets
  const cores = (...names: readonly string[]) => names.map(hasCore)
  const nats = ['-nats', 'nats://127.0.0.1:4222']
  const { out } = await keys('-out', directory, ...nats, '-server', 's1', '-server', 's2', '-agent', 'w1')
  assert.match(out, /^created {4}s1: server\ncreated {4}s2: server without secrets\n/)
  assert.deepEqual(cores('s1', 's2'), [true, false])
  // Later, again, and as one process with an agent.
  await keys('-out', directory, '-server', 's3', '-server', 's2', '-server', 'w1')
  assert.deepEqual(cores('s1', 's2', 's3', 'w1'), [true, false, false, false])
  const users = readFileSync(join(directory, 'users.conf'), 'utf8')
  const allowed = users.split('\n').filter((line) => line.includes('subscribe:') && line.includes('.core.'))
  assert.equal(allowed.length, 1, 'NATS lets one server hear calls for the core')

  const { out: second } = await keys('-out', directory, '-core', 's4')
  assert.match(second, /^created {4}s4: server\n/)
  assert.match(second, /^several servers have a secrets core \(s1, s4\): /m)
  assert.deepEqual(cores('s1', 's2', 's4'), [true, false, true])
  assert.equal((await keys('-out', directory, '-core', 's5', '-edge', 's5')).code, 2)
  const { out: together } = await keys('-out', join(directory, 'pair'), '-server', 'p1', '-server', 'p2', '-core', 'p3')
  assert.match(together, /p1: server\n/)
  assert.match(together, /p2: server without secrets\n/)
  assert.match(together, /several servers have a secrets core \(p3, p1\)|\(p1, p3\)/)
  // Moved: no server has it, so the next given one gets it.
  await keys('-out', directory, '-remove', 's1', '-remove', 's4')
  const { out: moved } = await keys('-out', directory, '-server', 's2')
  assert.match(moved, /^created {4}s2: server\n/)
  assert.ok(!moved.includes('several servers have'))
  assert.deepEqual(cores('s2', 's3'), [true, false])
  await keys('-out', directory, '-remove', 's2', '-server', 's3')
  assert.deepEqual(cores('s3', 'w1'), [true, false])
})

test('a second run keeps existing members, adds new ones and removes others', async (t) => {
  const directory = temporaryDirectory(t)
  await keys('-out', directory, '-server', 's1', '-agent', 'w1')
  const before = contents(directory)
  const { out } = await keys('-out', directory, '-server', 's1', '-agent', 'w1')
  assert.match(out, /^unchanged {2}s1: server\nunchanged {2}w1: agent/)
  assert.deepEqual(contents(directory), before)
  // On its host, and no longer here.
  rmSync(join(directory, 'w1'), { recursive: true })
  await keys('-out', directory, '-agent', 'w2')
  const after = contents(directory)
  assert.ok(
    after[join(directory, 'users.conf')]?.startsWith(before[join(directory, 'users.conf')]?.slice(0, -2) ?? '?'),
  )
  await keys('-out', directory, '-remove', 's1')
  assert.ok(!readFileSync(join(directory, 'users.conf'), 'utf8').includes('server.*.reply.*.*'))
  assert.ok(!existsSync(join(directory, 's1/cluster.nk')))
  // Both roles in one process: one key.
  const { out: grown } = await keys('-out', directory, '-server', 'w2')
  assert.match(grown, /^created {4}w2: server, agent /)
  const users = readFileSync(join(directory, 'users.conf'), 'utf8')
  assert.equal(users.split('nkey:').length, 3)
  assert.ok(users.includes('server.*.reply.*.*'))
})

test('the NATS addresses of a member are kept when members are added, changed or renewed', async (t) => {
  const directory = temporaryDirectory(t)
  const addressOf = (name: string) =>
    /servers *= *(.*)/.exec(readFileSync(join(directory, name, 'cluster.hcl'), 'utf8'))?.[1]
  const { out } = await keys('-out', directory, '-agent', 'w1')
  assert.match(out, /w1\/cluster\.hcl has no NATS addresses: use -nats/)
  await keys('-out', directory, '-nats', 'tls://one:4222', '-server', 's1', '-agent', 'w2')
  await keys('-out', directory, '-agent', 'w3')
  assert.equal(addressOf('w3'), '["tls://one:4222"]', 'a member that is added without one gets the last one')
  // Another role writes the file again; its manually corrected address stays.
  const file = join(directory, 's1/cluster.hcl')
  writeFileSync(file, readFileSync(file, 'utf8').replace('tls://one:4222', 'tls://two:4222'))
  await keys('-out', directory, '-nats', 'tls://three:4222', '-agent', 's1')
  assert.equal(addressOf('s1'), '["tls://two:4222"]')
  // A key is renewed: removed, then added with its node ID.
  const id = /node_id = "(.*)"/.exec(readFileSync(join(directory, 'w2/cluster.hcl'), 'utf8'))?.[1]
  const before = publicKeyOf(directory, 'w2')
  await keys('-out', directory, '-remove', 'w2')
  await keys('-out', directory, '-agent', `w2=${id}`)
  assert.equal(addressOf('w2'), '["tls://one:4222"]')
  assert.notEqual(publicKeyOf(directory, 'w2'), before)
  assert.ok(!readFileSync(join(directory, 'users.conf'), 'utf8').includes(before))
})

test('an existing key is used, and a file without a key is not overwritten', async (t) => {
  const directory = temporaryDirectory(t)
  await keys('-out', directory, '-agent', 'w1')
  const [seed, users] = [join(directory, 'w1/cluster.nk'), join(directory, 'users.conf')]
  const before = /nkey: (\S+),/.exec(readFileSync(users, 'utf8'))?.[1] ?? '?'
  rmSync(join(directory, 'members.json'))
  await keys('-out', directory, '-agent', 'w1')
  assert.ok(readFileSync(users, 'utf8').includes(before))
  rmSync(join(directory, 'members.json'))
  writeFileSync(seed, 'something of somebody')
  const { code, err } = await keys('-out', directory, '-agent', 'w1')
  assert.equal(code, 1)
  assert.match(err, /cluster.nk does not contain the seed of an nkey: remove it/)
  assert.equal(readFileSync(seed, 'utf8'), 'something of somebody')
})

test('contradictory options are refused, and nothing is changed', async (t) => {
  const directory = temporaryDirectory(t)
  await keys('-out', directory, '-agent', `w1=${ID}`)
  const before = contents(directory)
  const wrong: readonly (readonly [readonly string[], number, RegExp])[] = [
    [['-agent', `w2=${ID}`], 2, /node ID .* belongs to w1/],
    [['-agent', 'w1=6f1c0b9e-2f0a-4a51-9d0c-0000000000a2'], 2, /w1 has the node ID .*: remove it first \(-remove w1\)/],
    [['-agent', 'w2=17'], 2, /expected a UUID as node ID, got "17"/],
    [['-agent', '../w2'], 2, /invalid name/],
    [['-server', '.hidden'], 2, /invalid name/],
    [['-server', 'users.conf'], 2, /the suffixes .* are reserved/],
    [['-remove', 'w9'], 2, /unknown member w9/],
    [['-remove', 'w1', '-agent', 'w1'], 2, /is both added and removed/],
    [['-nats', 'nats://user:password@host:1', '-agent', 'w2'], 2, /expected nats:/],
    [['-region', 'eu', '-agent', 'w2'], 1, /contains the keys of region global/],
  ]
  for (const [args, code, text] of wrong) {
    const answer = await keys('-out', directory, ...args)
    assert.equal(answer.code, code, args.join(' '))
    assert.match(answer.err, text)
    assert.ok(!answer.err.includes('password'))
  }
  assert.equal((await keys('-agent', 'w1')).code, 2)
  assert.equal((await keys('-out', join(directory, 'other'), '-region', 'a.b', '-agent', 'w1')).code, 2)
  assert.deepEqual(contents(directory), before)
  writeFileSync(join(directory, 'members.json'), '{"version":2}')
  assert.match((await keys('-out', directory, '-agent', 'w1')).err, /members.json is malformed: restore it/)
  if (process.getuid?.() === 0) return
  chmodSync(directory, 0o500)
  assert.equal((await keys('-out', directory, '-agent', 'w3')).code, 1)
})
