/** Allocations of other hosts from the command line: what an address answers, and what the local disk answers. */
import '../../helpers/short-timings.ts'
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { allocSource } from '../../../src/cli/commands/alloc.ts'
import { makeAllocation } from '../../helpers/allocation.ts'
import { agentHere } from '../../helpers/agent-here.ts'
import { workDirectory, writeConfig } from '../../helpers/agent-process.ts'
import { runHere } from '../../helpers/command-here.ts'
import { allocIdOf, startCluster } from '../../helpers/cluster.ts'
import { eventually } from '../../helpers/eventually.ts'

const LOCAL = 'c1a57e00-1111-4000-8000-00000000000f'
const TEXT = 'a line of the log\n'

/** The data directory of another agent, on the disk of the user who runs a command. */
function localDirectory(t: TestContext): string {
  const directory = workDirectory(t)
  makeAllocation(join(directory, 'alloc'), LOCAL, { JobID: 'local', Name: 'local.web[0]' })
  return directory
}

/** Where a command without options looks. */
function source(env: NodeJS.ProcessEnv) {
  const values = { 'data-dir': undefined, address: undefined }
  return allocSource(values, { out: () => undefined, err: () => undefined, env })
}

test('a server answers for the allocations of all hosts, and the local disk does not', async (t) => {
  const world = await startCluster(t, { here: ['server', 'client'] })
  const { url } = world.server()
  const dataDir = localDirectory(t)
  const env = { OUTPOST_ADDR: url, OUTPOST_DATA_DIR: dataDir }
  const ask = (...args: string[]) => runHere(args, env)
  const [first, second] = [allocIdOf(0), allocIdOf(1)]

  await t.test('list', async () => {
    const { code, stderr, stdout } = await ask('alloc', 'list')
    assert.deepEqual([code, stderr], [0, ''])
    const lines = stdout.trimEnd().split('\n')
    assert.match(lines[0] ?? '', /^ID +Node +Job +Namespace +Tasks +Desired +Status +Created$/)
    assert.equal(lines.length, 3)
    // Their first digits are the same: as many are shown as tell them apart.
    for (const [id, name] of [
      [first, 'client-0'],
      [second, 'client-1'],
    ]) {
      assert.match(stdout, new RegExp(`^${id} +${name} +\\S+ +default +web +run +running +`, 'm'))
    }
    const json = JSON.parse((await ask('alloc', 'list', '-json')).stdout) as { ID: string; NodeName: string }[]
    assert.deepEqual(
      json.map(({ ID, NodeName }) => [ID, NodeName]),
      [
        [first, 'client-0'],
        [second, 'client-1'],
      ],
    )
    const other = await runHere(['alloc', 'list', '-json', '-address', url], { OUTPOST_DATA_DIR: dataDir })
    assert.deepEqual(JSON.parse(other.stdout), json)
  })

  await t.test('filters', async () => {
    const idsOf = async (...args: string[]) => {
      const { stdout } = await ask('alloc', 'list', '-json', ...args)
      return (JSON.parse(stdout) as { ID: string }[]).map(({ ID }) => ID)
    }
    assert.deepEqual(await idsOf('-node', 'client-1'), [second])
    assert.deepEqual(await idsOf('-node', world.host(0).member.nodeId.slice(0, 9)), [first])
    assert.deepEqual(await idsOf('-status', 'running'), [first, second])
    assert.deepEqual(await idsOf('-status', 'failed', '-node', 'client-1'), [])
    assert.deepEqual(await idsOf('-namespace', 'other'), [])
    assert.deepEqual(await idsOf('-job', 'nope"'), [])
    const none = await ask('alloc', 'list', '-node', 'client-7')
    assert.equal(none.code, 1)
    assert.equal(none.stderr, `outpost: no node with ID prefix or name "client-7" at ${url}\n`)
  })

  await t.test('prefixes', async () => {
    const several = await ask('alloc', 'status', 'c1a57e00')
    assert.deepEqual([several.code, several.stdout], [1, ''])
    const list = `^ID +Job +Node +Status\n${first} +\\S* +client-0 +running\n${second} +\\S* +client-1 +running\n`
    assert.match(several.stderr, new RegExp(`${list}outpost: "c1a57e00" matches 2 allocations: use a longer prefix\n$`))
    for (const [given, message] of [
      ['ab', `no allocation with ID prefix "ab" at ${url}`],
      ['not-one', `no allocation with ID prefix "not-one" at ${url}`],
      ['c1a57e00-1', `no allocation with ID prefix "c1a57e00-1" at ${url}`],
      ['c1a5-7e00', `no allocation with ID prefix "c1a5-7e00" at ${url}`],
      ['c', 'the ID prefix "c" is too short (minimum 2 characters)'],
      [LOCAL, 'alloc not found (HTTP 404)'],
    ] as const) {
      const none = await ask('alloc', 'status', given)
      assert.deepEqual(none, { code: 1, signal: null, stdout: '', stderr: `outpost: ${message}\n` }, given)
    }
    // Also with an odd number of digits, without hyphens, and in capitals.
    for (const given of [second, second.slice(0, 35) + '1', second.replaceAll('-', ''), second.toUpperCase()]) {
      assert.match((await ask('alloc', 'status', given)).stdout, new RegExp(`^ID +Node|^ID +=? ${second}$`, 'm'), given)
    }
  })

  await t.test('one of another host: status, stats, logs and files', async () => {
    const status = await ask('alloc', 'status', second)
    assert.match(status.stdout, /^Node Name +=? client-1\nNode Status += ready\n/m)
    assert.match(status.stdout, /^web +running +no +2026-11-21T10:00:00Z +-$/m)
    assert.equal((JSON.parse((await ask('alloc', 'status', '-json', second)).stdout) as { ID: string }).ID, second)
    // Only this one begins like that.
    rmSync(world.host(0).directory, { recursive: true })
    const prefix = second.slice(0, 7)
    await eventually(async () => (await ask('alloc', 'status', prefix)).code === 0, 'the other one is gone')
    assert.deepEqual(await ask('logs', prefix, 'web'), { code: 0, signal: null, stdout: TEXT, stderr: '' })
    assert.match((await ask('fs', 'ls', prefix)).stdout, /^d\S+ .* web\/?$/m)
    assert.match((await ask('fs', 'cat', prefix, 'alloc/logs/web.stdout.0')).stdout, /^a line of the log$/m)
    assert.match((await ask('fs', 'stat', prefix, 'alloc/logs/web.stdout.0')).stdout, /^Size +=? 18/m)
    assert.match((await ask('fs', 'tail', prefix, 'alloc/logs/web.stdout.0')).stdout, /^a line of the log$/m)
    assert.equal((await ask('alloc', 'stats', prefix)).code, 0)
  })

  await t.test('an explicit directory is read, regardless of the address', async () => {
    const { stdout } = await ask('alloc', 'list', '-data-dir', dataDir)
    assert.match(stdout, new RegExp(`^${LOCAL} `, 'm'))
    const both = await ask('alloc', 'list', '-data-dir', dataDir, '-address', url)
    assert.equal(both.code, 2)
    assert.match(both.stderr, /-data-dir and -address are mutually exclusive/)
  })

  await t.test('a host that is down is named, with the time', async () => {
    await world.host(1).member.stop()
    const text = await eventually(async () => {
      const { stdout } = await ask('alloc', 'status', second)
      return /Node Status += down since/.test(stdout) && stdout
    }, 'the node is down')
    assert.match(text, /^Node Status += down since 20\S+Z \(\d+s ago\): Node left$/m)
    const unknown = /unknown \(node down since 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ\)/
    assert.match(text.match(/^Client Status +=? (.+)$/m)?.[1] ?? '', unknown)
    assert.match((await ask('alloc', 'list', '-node', 'client-1')).stdout, unknown)
    assert.equal((await ask('alloc', 'list', '-node', 'client-1', '-status', 'running')).stdout, 'No allocations\n')
    const list = JSON.parse((await ask('alloc', 'list', '-json', '-node', 'client-1')).stdout) as {
      ClientStatus: string
    }[]
    assert.deepEqual(
      list.map(({ ClientStatus }) => ClientStatus),
      ['unknown'],
    )
  })
})

test('without an address the local disk answers, and the agent of this host where it has none', async (t) => {
  const dataDir = localDirectory(t)
  const local = { OUTPOST_DATA_DIR: dataDir }
  const list = await runHere(['alloc', 'list'], local)
  assert.match(list.stdout, new RegExp(`^${LOCAL} +local\\.web\\[0\\] `, 'm'))
  assert.match((await runHere(['alloc', 'status', 'c1a57'], local)).stdout, new RegExp(`^ID +=? ${LOCAL}$`, 'm'))
  const ofJob = async (job: string) =>
    JSON.parse((await runHere(['alloc', 'list', '-json', '-job', job], local)).stdout)
  assert.equal(((await ofJob('local')) as unknown[]).length, 1)
  assert.deepEqual(await ofJob('other'), [])
  assert.equal(source(local).root, join(dataDir, 'alloc'))
  const empty = { OUTPOST_DATA_DIR: join(dataDir, 'none') }
  assert.deepEqual([source(empty).root, source(empty).target.url.host], [undefined, '127.0.0.1:4646'])
  assert.equal(source({ ...local, VAULT_ADDR: 'http://h:1' }).root, undefined)
  const onNode = await runHere(['alloc', 'list', '-node', 'w1'], local)
  assert.deepEqual([onNode.code, onNode.stdout], [1, ''])
  assert.match(onNode.stderr, /-node requires an agent or server: set -address/)
})

test('an agent without servers answers for its own allocations', async (t) => {
  const directory = workDirectory(t)
  const dataDir = localDirectory(t)
  makeAllocation(join(directory, 'data/alloc'), allocIdOf(0), { JobID: 'api', Name: 'api.web[0]' })
  const config = writeConfig(directory, 'acl { enabled = false }\nname = "lone"')
  const agent = await agentHere(t, ['-config', config])
  const ask = (...args: string[]) => runHere(args, { NOMAD_ADDR: agent.url, OUTPOST_DATA_DIR: dataDir })
  assert.match((await ask('alloc', 'list')).stdout, /^c1a57e00 +lone +api +default +web +run +running +/m)
  assert.match((await ask('alloc', 'status', 'c1a')).stdout, new RegExp(`^ID +=? ${allocIdOf(0)}$`, 'm'))
  assert.equal((await ask('logs', 'c1a57', 'web')).stdout, TEXT)
  const absent = await ask('logs', LOCAL.slice(0, 12))
  assert.deepEqual([absent.code, absent.stdout], [1, ''])
  assert.equal(absent.stderr, `outpost: no allocation with ID prefix "${LOCAL.slice(0, 12)}" at ${agent.url}\n`)
  // What changes is seen, as at a server.
  makeAllocation(join(directory, 'data/alloc'), allocIdOf(1), { JobID: 'db' })
  await eventually(async () => / lone +db /.test((await ask('alloc', 'list')).stdout), 'the new one is listed')
  const manifest = join(directory, 'data/alloc', allocIdOf(1), 'alloc.json')
  writeFileSync(manifest, JSON.stringify({ ID: allocIdOf(1), ClientStatus: 'failed', Tasks: {} }))
  await eventually(async () => /failed/.test((await ask('alloc', 'list', '-status', 'failed')).stdout), 'it failed')
  for (const path of ['nodes', 'jobs', `allocation/${allocIdOf(0)}`]) {
    assert.equal((await fetch(`${agent.url}/v1/${path}`)).status, 200, path)
  }
  // It is no server.
  for (const path of ['status/leader', 'agent/members']) {
    assert.equal((await fetch(`${agent.url}/v1/${path}`)).status, 404, path)
  }
})

test('a missing token is an error, and no empty list', async (t) => {
  const directory = workDirectory(t)
  makeAllocation(join(directory, 'data/alloc'), allocIdOf(0), { Namespace: 'test' })
  const token = 'a-token-that-may-read-one-namespace'
  const sha256 = createHash('sha256').update(token).digest('hex')
  const rights = `policy = <<EOT\nnamespace "test" { capabilities = ["list-jobs", "read-job", "read-logs"] }\nEOT`
  const acl = `acl {\n enabled = true\n token "reader" {\n sha256 = "${sha256}"\n ${rights}\n }\n}`
  const agent = await agentHere(t, ['-config', writeConfig(directory, acl)])
  for (const args of [
    ['alloc', 'list'],
    ['alloc', 'status', 'c1'],
    ['job', 'list'],
    ['logs', 'c1'],
  ]) {
    const refused = await runHere(args, { OUTPOST_ADDR: agent.url, HOME: directory })
    const stderr = 'outpost: Permission denied (HTTP 403), no token was sent, set OUTPOST_TOKEN\n'
    assert.deepEqual(refused, { code: 1, signal: null, stdout: '', stderr }, args.join(' '))
  }
  const ask = (...args: string[]) => runHere(args, { OUTPOST_ADDR: agent.url, OUTPOST_TOKEN: token })
  assert.match((await ask('alloc', 'list')).stdout, /^c1a57e00 .* test +web +/m)
  assert.equal((await ask('logs', 'c1', 'web')).stdout, TEXT)
  // What the token may not see does not exist.
  assert.equal((await ask('alloc', 'list', '-status', 'failed')).stdout, 'No allocations\n')
})
