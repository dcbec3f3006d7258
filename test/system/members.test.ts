/** `outpost operator members`: servers that meet over NATS, one of which stops. */
import '../helpers/short-timings.ts'
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { agentHere } from '../helpers/agent-here.ts'
import { workDirectory, writeConfig } from '../helpers/agent-process.ts'
import { startCluster } from '../helpers/cluster.ts'
import { runHere } from '../helpers/command-here.ts'
import { eventually } from '../helpers/eventually.ts'

interface Member {
  readonly Name: string
  readonly Version: string
  readonly Address: string
  readonly HasCore: boolean
  readonly CoreState: string
  readonly ClusterID: string
  readonly Status: string
  readonly IsSelf: boolean
}

async function members(url: string) {
  const ran = await runHere(['operator', 'members', '-json'], { OUTPOST_ADDR: url })
  return { ...ran, list: ran.stdout === '' ? [] : (JSON.parse(ran.stdout) as Member[]) }
}

async function firstState(url: string): Promise<string | undefined> {
  return (await members(url)).list[0]?.CoreState
}

test('each server lists all servers, an agent those of any server', async (t) => {
  const world = await startCluster(t, { servers: 2, hosts: 1, oneCore: true, here: ['server', 'client'] })
  const [first, second] = [world.server(0), world.server(1)]
  for (const [url, self] of [
    [first.url, 'server-0'],
    [second.url, 'server-1'],
  ] as const) {
    const { code, list, stderr } = await eventually(async () => {
      const answer = await members(url)
      return answer.list.length === 2 && answer
    })
    assert.deepEqual([code, stderr], [0, ''])
    assert.deepEqual(
      list.map(({ CoreState, HasCore, IsSelf, Name, Status }) => [Name, Status, HasCore, CoreState, IsSelf]),
      [
        ['server-0', 'alive', true, 'uninitialized', self === 'server-0'],
        ['server-1', 'alive', false, '', self === 'server-1'],
      ],
    )
    assert.deepEqual(
      list.map(({ Address }) => Address),
      [first, second].map(({ port }) => `127.0.0.1:${port}`),
    )
    assert.ok(list.every(({ Version }) => /^\d+\.\d+\.\d+/.test(Version)))
  }
  assert.equal((await members(world.host().member.url)).list.length, 2)

  await t.test('the state of the core is current', async () => {
    const init = ['operator', 'init', '-key-shares=1', '-key-threshold=1', '-json']
    const keys = JSON.parse((await runHere(init, { OUTPOST_ADDR: first.url })).stdout) as { unseal_keys_b64: string[] }
    await eventually(async () => (await firstState(second.url)) === 'sealed')
    assert.equal(
      (await runHere(['operator', 'unseal', '-'], { OUTPOST_ADDR: first.url }, keys.unseal_keys_b64[0])).code,
      0,
    )
    await eventually(async () => (await firstState(second.url)) === 'active')
    const table = (await runHere(['operator', 'members'], { OUTPOST_ADDR: second.url })).stdout
    assert.match(table, /^ +Name +Address +Version +Status +Core +Cluster ID\n/)
    assert.match(table, /^ +server-0 +127\.0\.0\.1:\d+ +\S+ +alive +active +[0-9a-f-]{36}$/m)
    assert.match(table, /^\* +server-1 +127\.0\.0\.1:\d+ +\S+ +alive +none +-$/m)
  })

  await t.test('a server that has stopped is silent, and the exit code says so', async () => {
    await first.stop()
    const { code, list, stderr } = await eventually(async () => {
      const answer = await members(second.url)

      return answer.code === 1 && answer
    })
    assert.equal(code, 1)
    assert.deepEqual(
      list.map(({ Name, Status }) => [Name, Status]),
      [
        ['server-0', 'silent'],
        ['server-1', 'alive'],
      ],
    )
    assert.equal(stderr, '1 of 2 servers does not respond\n')
    assert.match(
      (await runHere(['operator', 'members'], { OUTPOST_ADDR: second.url })).stdout,
      /server-0 .* silent, announced \d+s ago/,
    )
    await first.start()
    await eventually(async () => (await members(second.url)).code === 0, 'the run before is not listed any more')
    assert.equal((await members(second.url)).list.length, 2)
  })

  await t.test('a server without a connection to NATS does not report the others as silent', async () => {
    await world.nats.kill()
    const { code, stderr } = await eventually(async () => {
      const answer = await members(second.url)
      return answer.list[0]?.Status === 'unknown' && answer
    })
    assert.equal(code, 1)
    assert.equal(
      stderr,
      'the server that created the list is not connected to NATS: the state of the others is unknown\n',
    )
  })
})

test('a server without NATS lists itself, an agent alone has no servers', async (t) => {
  const dev = await agentHere(t, ['-dev', '-dev-no-demo', '-http-port', '0'])
  const ran = await runHere(['operator', 'members'], { OUTPOST_ADDR: dev.url })
  assert.equal(ran.code, 0)
  assert.match(ran.stdout, /^\* +\S+ +127\.0\.0\.1:\d+ +\S+ +alive +active +[0-9a-f-]{36}$/m)
  const config = writeConfig(workDirectory(t), 'acl { enabled = false }')
  const alone = await agentHere(t, ['-config', config])
  const refused = await runHere(['operator', 'members'], { OUTPOST_ADDR: alone.url })
  assert.deepEqual([refused.code, refused.stdout], [1, ''])
})
