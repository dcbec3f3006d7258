/** Hosts from the command line: lists, one host by name or ID prefix, a host that is down, purge. */
import '../helpers/short-timings.ts'
import assert from 'node:assert/strict'
import { test } from 'node:test'
import tty from 'node:tty'
import { agentHere } from '../helpers/agent-here.ts'
import { workDirectory, writeConfig } from '../helpers/agent-process.ts'
import { allocIdOf, startCluster } from '../helpers/cluster.ts'
import { runHere } from '../helpers/command-here.ts'
import { eventually } from '../helpers/eventually.ts'
import { recordingCore } from './recording-core.ts'

test('a server lists, shows and purges its hosts', async (t) => {
  const world = await startCluster(t, { here: ['server', 'client'] })
  const { url } = world.server()
  const ask = (...args: string[]) => runHere(args, { OUTPOST_ADDR: url })
  const [first, second] = [world.host(0).member.nodeId, world.host(1).member.nodeId]

  await t.test('list', async () => {
    const { code, stderr, stdout } = await ask('node', 'list')
    assert.deepEqual([code, stderr], [0, ''])
    assert.match(stdout, /^ID +Name +Status +Not Ready Since +Address +Datacenter +Version\n/)
    assert.match(stdout, new RegExp(`^${first.slice(0, 8)}\\S* +client-0 +ready +- +127\\.0\\.0\\.1 +\\S+ +\\S+$`, 'm'))
    assert.match((await ask('node', 'list', '-verbose')).stdout, new RegExp(`^${second} +client-1 `, 'm'))
    // A server that is no host has no node of its own to show.
    assert.equal((await ask('node', 'status')).stdout, stdout)
    const json = JSON.parse((await ask('node', 'list', '-json')).stdout) as { ID: string; StatusUpdatedAt: number }[]
    assert.deepEqual(json.map(({ ID }) => ID).sort(), [first, second].sort())
    assert.ok(json.every(({ StatusUpdatedAt }) => StatusUpdatedAt > 1e9))
    // Stock clients get no field that they do not know.
    const stubs = (await (await fetch(`${url}/v1/nodes`)).json()) as object[]
    assert.ok(stubs.every((stub) => !('StatusUpdatedAt' in stub)))
  })

  await t.test('metadata of a host by its name, and hosts by their metadata', async () => {
    assert.equal((await ask('node', 'meta', 'apply', '-node-id', 'client-1', 'rack=r7')).code, 0)
    assert.match((await ask('node', 'meta', 'read', '-node-id', second.slice(0, 8))).stdout, /^rack += r7$/m)
    const namesOf = async (...args: string[]) => {
      const { stdout } = await ask('node', 'list', '-json', ...args)
      return (JSON.parse(stdout) as { Name: string }[]).map(({ Name }) => Name)
    }
    await eventually(async () => (await namesOf('-meta', 'rack=r7')).includes('client-1'), 'the server knows it')
    assert.deepEqual(await namesOf('-meta', 'rack=r7'), ['client-1'])
    assert.deepEqual(await namesOf('-meta', 'rack=r7', '-meta', 'zone=a'), [])
    assert.deepEqual(await namesOf('-filter', 'Name == "client-0" or Name == "x"', '-status', 'ready'), ['client-0'])
    assert.deepEqual(await namesOf('-status', 'down'), [])
    const wrong = await ask('node', 'list', '-meta', 'rack')
    assert.deepEqual([wrong.code, wrong.stdout], [2, ''])
    assert.match(wrong.stderr, /expected KEY=VALUE, got "rack"/)
  })

  await t.test('resource usage of all hosts and their tasks, through the server', async () => {
    const top = await ask('top', '-json')
    assert.equal(top.code, 0, top.stderr)
    const rows = JSON.parse(top.stdout) as {
      Name: string
      CPUPercent: number
      MemoryBytes: number
      DiskBytes: number
    }[]
    assert.deepEqual(rows.map(({ Name }) => Name).sort(), ['client-0', 'client-1'])
    assert.ok(
      rows.every(({ CPUPercent, DiskBytes, MemoryBytes }) => CPUPercent >= 0 && MemoryBytes > 0 && DiskBytes > 0),
    )
    assert.match((await ask('top', '-node', 'client-1', 'tasks')).stdout, /^c1a57e00\S* +\S+ +web +client-1 +running /m)
  })

  await t.test('one host', async () => {
    const { stdout } = await ask('node', 'status', 'client-1')
    assert.match(stdout, new RegExp(`^ID +=? ${second}\nName +=? client-1\nStatus +=? ready\n`))
    assert.match(stdout, /^Memory +=? \S+ [KMGT]iB used of/m)
    assert.match(stdout, /^Meta rack +=? r7$/m)
    assert.match(stdout, /^c1a57e00\S* +client-1 +\S+ +default +web +run +running /m)
    const json = JSON.parse((await ask('node', 'status', '-json', first)).stdout) as { ID: string }
    assert.equal(json.ID, first)
    const none = await ask('node', 'status', 'zz')
    assert.deepEqual(none, {
      code: 1,
      signal: null,
      stdout: '',
      stderr: `outpost: no node with ID prefix or name "zz" at ${url}\n`,
    })
  })

  await t.test('a host that is down, and purge', async () => {
    await world.host(1).member.stop()
    await eventually(async () => / down /.test((await ask('node', 'list')).stdout), 'it is down')
    const down = await ask('node', 'list', '-status', 'down')
    assert.match(down.stdout, /^\S+ +client-1 +down +20\S+Z \(\d+s ago\) +127\.0\.0\.1 /m)
    assert.doesNotMatch(down.stdout, /client-0/)
    assert.match(
      (await ask('node', 'status', 'client-1')).stdout,
      /^Status +=? down since 20\S+Z \(\d+s ago\): Node left$/m,
    )
    // What needs the host names it, and since when.
    for (const args of [
      ['node', 'stats', '-node-id', 'client-1'],
      ['logs', allocIdOf(1), 'web'],
      ['fs', 'ls', allocIdOf(1)],
      ['alloc', 'stats', allocIdOf(1)],
    ]) {
      const { code, stderr, stdout } = await ask(...args)
      assert.deepEqual([code, stdout], [1, ''], args.join(' '))
      const time = '20\\d\\d-\\d\\d-\\d\\dT\\S+Z \\(\\d+s ago\\)'
      const text = `^outpost: node client-1 \\(${second}\\) has been down since ${time}: Node left; No path to node \\(HTTP 404\\)\n$`
      assert.match(stderr, new RegExp(text), args.join(' '))
    }
    const purged = await ask('node', 'purge', 'client-1')
    assert.deepEqual(purged, { code: 0, signal: null, stdout: `Purged client-1 (${second})\n`, stderr: '' })
    assert.doesNotMatch((await ask('node', 'list')).stdout, /client-1/)
    assert.doesNotMatch((await ask('alloc', 'list', '-verbose')).stdout, new RegExp(allocIdOf(1)))
    const again = await ask('node', 'purge', second)
    assert.deepEqual([again.code, again.stdout], [1, ''])
    assert.match(again.stderr, /^outpost: node not found \(HTTP 404\)\n$/)
  })
})

test('an agent without servers lists itself', async (t) => {
  const directory = workDirectory(t)
  const config = writeConfig(directory, 'acl { enabled = false }\nname = "lone"')
  const agent = await agentHere(t, ['-config', config])
  const ask = (...args: string[]) => runHere(args, { OUTPOST_ADDR: agent.url })
  assert.match((await ask('node', 'list')).stdout, /^\S{8} +lone +ready +- /m)
  assert.match((await ask('node', 'status')).stdout, /^Roles +=? agent$/m)
  assert.match((await ask('node', 'status', 'lone')).stdout, /^Status +=? ready$/m)
})

test('on a terminal purge names the host and changes nothing without a yes', async (t) => {
  const id = 'c1a57e00-0000-4000-8000-0000000000aa'
  const recorded = await recordingCore(t)
  recorded.answers = {
    [`GET node/${id}`]: [200, { ID: id, Name: 'w2', Status: 'down', StatusUpdatedAt: 1_700_000_000 }],
  }
  t.mock.method(tty, 'isatty', (descriptor: number) => descriptor !== 1)
  const purge = (typed: string, ...more: string[]) =>
    runHere(['node', 'purge', ...more, id], { OUTPOST_ADDR: recorded.url }, typed)
  const refused = await purge('y\n')
  assert.deepEqual([refused.code, refused.stdout], [1, ''])
  assert.match(refused.stderr, /^This will remove a node, its key and its allocations from the server at http:\S+\.$/m)
  assert.match(refused.stderr, new RegExp(`^Node: w2 \\(${id}\\), down since 2023-11-14T22:13:20Z `, 'm'))
  assert.match(refused.stderr, /outpost: not confirmed, nothing was changed\n$/)
  const linesOf = () => recorded.asked.map(({ line }) => line)
  assert.deepEqual(linesOf(), [`GET node/${id}`])
  assert.equal((await purge('yes\n')).stdout, `Purged w2 (${id})\n`)
  assert.equal((await purge('', '-yes')).code, 0)
  assert.deepEqual(
    linesOf().slice(1),
    [1, 2].flatMap(() => [`GET node/${id}`, `PUT node/${id}/purge`]),
  )
})
