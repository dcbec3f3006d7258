/** Jobs from the command line: lists, one job, the logs of all its allocations, and the server that answers. */
import '../helpers/short-timings.ts'
import assert from 'node:assert/strict'
import { appendFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { makeAllocation } from '../helpers/allocation.ts'
import { allocIdOf, startCluster } from '../helpers/cluster.ts'
import { beginHere, runHere } from '../helpers/command-here.ts'
import { eventually } from '../helpers/eventually.ts'
import { fakeAgent, frame } from './fake-agent.ts'

const lines = (text: string) => text.trimEnd().split('\n').sort()

test('jobs of all hosts and their logs', async (t) => {
  const world = await startCluster(t, { here: ['server', 'client'] })
  const { url } = world.server()
  const ask = (...args: string[]) => runHere(args, { OUTPOST_ADDR: url })
  const [first, second] = [allocIdOf(0), allocIdOf(1)]
  const allocDir = (at: number) => join(world.host(at).member.dataDir, 'alloc')
  for (const at of [0, 1]) {
    makeAllocation(allocDir(at), allocIdOf(at), { JobID: 'shop', Name: `shop.web[${at}]`, TaskGroup: 'web' })
    writeFileSync(join(world.host(at).logs, 'web.stdout.0'), `one ${at}\ntwo ${at}\n`)
  }
  writeFileSync(join(world.host(1).logs, 'web.stderr.0'), 'oops 1\n')
  const other = 'd1a57e00-0000-4000-8000-000000000000'
  makeAllocation(allocDir(0), other, { JobID: 'shop', Namespace: 'test', ClientStatus: 'failed' })
  makeAllocation(allocDir(0), 'd2a57e00-0000-4000-8000-000000000000', { JobID: 'shelf' })
  await eventually(async () => {
    const { stdout } = await ask('job', 'list', '-json')
    const known = (JSON.parse(stdout) as { ID: string; Namespace: string }[]).map(
      ({ ID, Namespace }) => `${Namespace}.${ID}`,
    )
    return known.join() === 'default.shelf,default.shop,test.shop'
  }, 'the server knows the jobs')

  await t.test('list and status', async () => {
    const { stdout } = await ask('job', 'list')
    assert.match(stdout, /^ID +Namespace +Status +Running +Starting +Failed +Complete +Lost +Unknown +Created\n/)
    assert.match(stdout, /^shop +default +running +2 +0 +0 +0 +0 +0 +/m)
    assert.match(stdout, /^shop +test +dead +0 +0 +1 +0 +0 +0 +/m)
    assert.doesNotMatch((await ask('job', 'list', '-status', 'dead')).stdout, /default/)
    assert.equal((await ask('job', 'list', '-namespace', 'none')).stdout, 'No jobs\n')
    const status = await ask('job', 'status', '-namespace', 'default', 'shop')
    assert.match(status.stdout, /^ID +=? shop\nNamespace +=? default\nStatus +=? running\n/)
    assert.match(status.stdout, /^web +2 +0 +0 +0 +0 +0$/m)
    assert.match(status.stdout, new RegExp(`^${first} +client-0 +shop .*\n`, 'm'))
    assert.match(status.stdout, new RegExp(`^${second} +client-1 +shop .*\n`, 'm'))
    assert.match((await ask('job', 'status', 'she')).stdout, /^ID +=? shelf$/m)
    const json = await ask('job', 'status', '-json', '-namespace', 'test', 'shop')
    assert.equal((JSON.parse(json.stdout) as { Namespace: string }).Namespace, 'test')
  })

  await t.test('an ambiguous job and an unknown job are errors', async () => {
    for (const [given, hint] of [
      ['shop', '"shop" matches 2 jobs: use -namespace'],
      ['sh', '"sh" matches 3 jobs: use a longer prefix'],
    ] as const) {
      const several = await ask('job', 'logs', given)
      assert.deepEqual([several.code, several.stdout], [1, ''])
      assert.match(several.stderr, /^ID +Namespace +Status\n[^]*^shop +test +dead\n/m)
      assert.match(several.stderr, new RegExp(`outpost: ${hint}\n$`))
    }
    const none = await ask('job', 'status', 'nope')
    assert.deepEqual([none.code, none.stdout], [1, ''])
    assert.equal(none.stderr, `outpost: no job with ID or ID prefix "nope" at ${url}\n`)
  })

  const logs = (...args: string[]) => ask('job', 'logs', '-namespace', 'default', ...args)

  await t.test('logs', async () => {
    const { code, stderr, stdout } = await logs('shop')
    assert.deepEqual([code, stderr], [0, `${second} web | oops 1\n`])
    assert.deepEqual(
      lines(stdout),
      [0, 1].flatMap((at) => ['one', 'two'].map((word) => `${allocIdOf(at)} web | ${word} ${at}`)),
    )
    const ends = ['-tail', '1', 'shop', '-stdout']
    assert.deepEqual(lines((await logs(...ends)).stdout), [`${first} web | two 0`, `${second} web | two 1`])
    assert.equal((await logs('-grep', 'o.*1', '-type', 'stdout', '-json', 'shop')).stdout.split('\n').length, 3)
    const json = JSON.parse((await logs('-grep', 'one 1', '-json', 'shop')).stdout) as Record<string, string>
    assert.deepEqual([json['AllocID'], json['Task'], json['Type'], json['Line']], [second, 'web', 'stdout', 'one 1'])
    const since = await logs('-since', '2999-01-01T00:00:00Z', 'shop')
    assert.deepEqual([since.code, since.stdout], [0, ''])
    const wrong = await logs('shop', 'web')
    assert.equal(wrong.code, 2)
    assert.match(wrong.stderr, /unexpected argument "web"/)
    const absent = await logs('-task', 'nope', 'shop')
    assert.deepEqual([absent.code, absent.stdout], [1, ''])
    assert.match(absent.stderr, /no allocation of this job has a matching log \(HTTP 404\)/)
  })

  await t.test('followed logs', async () => {
    const args = ['job', 'logs', '-namespace', 'default', '-f', '-no-resume', '-stdout', 'shop']
    const follow = beginHere(args, { OUTPOST_ADDR: url })
    await eventually(() => lines(follow.stdout()).length === 4, 'what is there')
    appendFileSync(join(world.host(1).logs, 'web.stdout.0'), 'three 1\n')
    await eventually(() => follow.stdout().endsWith(`${second} web | three 1\n`), 'what is written')
    // The end of the connection ends it with -no-resume; without, see system/job-logs-resume.test.ts.
    await world.server().stop()
    const { code, stderr } = await follow.finished
    assert.equal(code, 1)
    assert.match(stderr, /^outpost: connection to http:\S+ lost \(.*\)\n$/m)
  })
})

test('a log that cannot be read is reported, and the lines of the others stay whole', async (t) => {
  const [id, joined] = [allocIdOf(0), allocIdOf(2)]
  const File = 'alloc/logs/web.stdout.0'
  const agent = await fakeAgent(t, ({ path, query }, response) => {
    if (path === '/v1/jobs') return response.end('[{"ID":"a/b","Namespace":"default"}]')
    if (path === '/v1/job/a%2Fb/allocations') return response.writeHead(403).end('Permission denied')
    assert.deepEqual([path, query.get('namespace'), query.has('cursor')], ['/v1/job/a%2Fb/logs', 'default', false])
    response.write(frame('ha', { File, AllocID: id }))
    response.write(frame('x\n', { File, AllocID: joined }))
    response.write(frame('lf\n', { File, AllocID: id }))
    return response.end(`{"FileEvent":"log failed","Error":"404 No path to node","AllocID":"${allocIdOf(1)}"}`)
  })
  const { code, stderr, stdout } = await runHere(['job', 'logs', 'a/b'], { OUTPOST_ADDR: agent.url })
  assert.deepEqual([code, stdout], [1, `${joined} web | x\n${id} web | half\n`])
  assert.equal(stderr, `outpost: allocation ${allocIdOf(1)}: log failed: 404 No path to node\n`)
})

test('a server without cursors for the logs of a job: a break is an error, and nothing is repeated', async (t) => {
  const id = allocIdOf(0)
  const agent = await fakeAgent(t, ({ path }, response) => {
    if (path === '/v1/jobs') return response.end('[{"ID":"shop","Namespace":"default"}]')
    if (path.endsWith('/allocations')) return response.end('[]')
    return response.write(frame('one\n', { File: 'alloc/logs/web.stdout.0', AllocID: id }), () => response.destroy())
  })
  const { code, stderr, stdout } = await runHere(['job', 'logs', '-f', 'shop'], { OUTPOST_ADDR: agent.url })
  assert.deepEqual([code, stdout], [1, `${id} web | one\n`])
  assert.match(
    stderr,
    /lost \(.*\): the server has no cursors for the logs of a job, run the command again with -since\n$/,
  )
  assert.equal(agent.asked.filter(({ path }) => path.endsWith('/logs')).length, 1)
})

test('server members prints the queried server', async (t) => {
  const world = await startCluster(t, { here: ['server', 'client'], hosts: 1 })
  const { port, url } = world.server()
  // An agent asks the server.
  for (const address of [url, world.host().member.url]) {
    const { code, stdout } = await runHere(['server', 'members'], { OUTPOST_ADDR: address })
    assert.equal(code, 0)
    assert.match(stdout, /^Name +Address +Port +Status +Version +Datacenter +Region\n/)
    assert.match(stdout, new RegExp(`^server-0\\.global +127\\.0\\.0\\.1 +${port} +alive +\\S+ +dc1 +global$`, 'm'))
  }
})
