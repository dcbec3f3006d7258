/** Allocations, jobs, search, status, collection and events of a server, over HTTP. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { allocationOf, each, type FleetServer, idOf, nodeOf, startFleetServer } from '../../helpers/fleet-server.ts'
import { identity } from '../../host/allocations/host-fixture.ts'
import { eventually } from '../../helpers/eventually.ts'

const NODE = idOf('aa000000')
const OTHER = idOf('bb000000')
const [ONE, TWO, THREE] = [idOf('01000000'), idOf('02000000'), idOf('03000000')]

/** Two jobs in `default`, one of the same name in `secret`, on two nodes. */
function fill(server: FleetServer): void {
  server.say(nodeOf(NODE, { name: 'n1' }), [
    allocationOf(ONE),
    allocationOf(TWO, { jobId: 'batch/1', clientStatus: 'complete', tasks: [] }),
  ])
  server.say(nodeOf(OTHER, { name: 'n2' }), [allocationOf(THREE, { namespace: 'secret' })])
}

test('the list of allocations is selected by namespace, prefix and filter, and has all fields that stock clients dereference', async (t) => {
  const server = await startFleetServer(t)
  fill(server)
  const listed = async (query: string) => each((await server.get(`allocations?${query}`)).value)
  assert.deepEqual(await listed(''), [ONE, TWO])
  assert.deepEqual(await listed('namespace=*'), [ONE, TWO, THREE])
  assert.deepEqual(await listed('namespace=secret'), [THREE])
  assert.deepEqual(await listed('prefix=02'), [TWO])
  assert.deepEqual(await listed(`filter=${encodeURIComponent('NodeName == n1 and ClientStatus != running')}`), [TWO])
  const [stub] = (await server.get('allocations')).value as Record<string, Record<string, never>>[]
  assert.equal(stub?.['NodeName'], 'n1')
  assert.equal(stub?.['TaskStates']?.['server']?.['State'], 'running')
  const [bare] = (await server.get('allocations?task_states=false&resources=true')).value as Record<string, unknown>[]
  assert.equal(bare?.['TaskStates'], null)
  assert.ok(bare?.['AllocatedResources'])
  assert.equal((await server.get('allocations?prefix=0')).status, 400)
})

test('the end of a task has its exit code, if its host reports one', async (t) => {
  const server = await startFleetServer(t)
  const dead = { state: 'dead', failed: true, startedAtMs: 1000, finishedAtMs: 2000 } as const
  const tasks = [
    { ...dead, name: 'new', exitCode: 3 },
    { ...dead, name: 'old' },
  ]
  server.say(nodeOf(NODE, { name: 'n1' }), [allocationOf(ONE, { clientStatus: 'failed', tasks })])
  type Stub = { readonly TaskStates: Record<string, { readonly Events: readonly Record<string, unknown>[] }> }
  const [stub] = (await server.get('allocations')).value as Stub[]
  const endOf = (task: string) => stub?.TaskStates[task]?.Events.at(-1)
  const common = { Message: '', Time: 2e9, Type: 'Terminated' }
  assert.deepEqual(endOf('new'), {
    ...common,
    Details: { exit_code: '3' },
    DisplayMessage: 'Task failed, exit code 3',
  })
  assert.deepEqual(endOf('old'), { ...common, Details: {}, DisplayMessage: 'Task failed' })
})

test('allocations of a node that is down are unknown in every answer, and a blocking query and the event stream report it', async (t) => {
  const server = await startFleetServer(t)
  fill(server)
  const index = (await server.get('allocations')).headers.get('X-Nomad-Index') ?? ''
  const blocked = server.get(`allocations?index=${index}&wait=60s`)
  const stream = await fetch(`${server.url}/v1/event/stream?topic=Allocation`)
  const reader = stream.body?.pipeThrough(new TextDecoderStream()).getReader()
  assert.ok(reader)
  // The first heartbeat: it is subscribed.
  let events = (await reader.read()).value ?? ''
  server.leave(NODE)
  type Stub = Record<'ClientDescription' | 'ClientStatus' | 'ID', string>
  const statuses = (value: unknown) => (value as Stub[]).map(({ ClientStatus, ID }) => `${ID} ${ClientStatus}`)
  assert.deepEqual(statuses((await blocked).value), [`${ONE} unknown`, `${TWO} complete`])
  while (!events.includes('"ClientStatus":"unknown"')) {
    const { done, value } = await reader.read()
    assert.ok(!done)
    events += value
  }
  await reader.cancel()
  const one = (await server.get(`allocation/${ONE}`)).value as Stub & { Job: { Status: string } }
  assert.deepEqual(
    [one.ClientStatus, one.ClientDescription, one.Job.Status],
    ['unknown', 'alloc is unknown since its node is down', 'running'],
  )
  const filter = (text: string) => server.get(`allocations?filter=${encodeURIComponent(text)}`)
  assert.deepEqual(each((await filter('ClientStatus == running')).value), [])
  assert.deepEqual(each((await filter('ClientStatus == unknown')).value), [ONE])
  assert.deepEqual(statuses((await server.get(`node/${NODE}/allocations`)).value), [
    `${ONE} unknown`,
    `${TWO} complete`,
  ])
  const summary = (await server.get('job/web/summary')).value as { Summary: Record<string, Record<string, number>> }
  assert.deepEqual([summary.Summary['api']?.['Running'], summary.Summary['api']?.['Unknown']], [0, 1])
  const jobs = (await server.get('jobs')).value as { ID: string; Status: string }[]
  assert.equal(jobs.find(({ ID }) => ID === 'web')?.Status, 'running')
  fill(server)
  assert.deepEqual(statuses((await server.get('allocations')).value), [`${ONE} running`, `${TWO} complete`])
})

test('an allocation is returned with its job, its tasks and all fields that stock clients dereference', async (t) => {
  const server = await startFleetServer(t)
  fill(server)
  const { value } = await server.get(`allocation/${ONE}?namespace=default`)
  const allocation = value as {
    TaskGroup: string
    NodeID: string
    Job: { Version: number; TaskGroups: { Name: string; Tasks: { Name: string }[] }[] }
    Resources: Record<string, number>
    TaskResources: Record<string, Record<string, number>>
    Metrics: object
  }
  const group = allocation.Job.TaskGroups.find(({ Name }) => Name === allocation.TaskGroup)
  assert.deepEqual(
    group?.Tasks.map(({ Name }) => Name),
    ['server'],
  )
  assert.deepEqual([allocation.Job.Version, allocation.NodeID], [0, NODE])
  for (const name of ['CPU', 'MemoryMB', 'DiskMB']) assert.equal(typeof allocation.Resources[name], 'number')
  assert.equal(typeof allocation.TaskResources['server']?.['CPU'], 'number')
  assert.ok(allocation.Metrics)
  const missing = await server.get(`allocation/${idOf('09000000')}`)
  assert.deepEqual([missing.status, missing.text], [404, 'alloc not found'])
  assert.equal((await server.get('allocation/01')).status, 400)
})

test('a record that the caller may not read is refused by name and omitted from lists', async (t) => {
  const server = await startFleetServer(t)
  fill(server)
  server.actAs(identity('default:read-job', 'default:list-jobs'))
  assert.deepEqual(each((await server.get('allocations?namespace=*')).value), [ONE, TWO])
  assert.deepEqual(each((await server.get('jobs?namespace=*')).value, 'Namespace'), ['default', 'default'])
  assert.deepEqual(each((await server.get('namespaces')).value, 'Name'), ['default'])
  const denied = ['allocations?namespace=secret', `allocation/${THREE}`, 'jobs?namespace=secret']
  for (const path of [...denied, 'job/web?namespace=secret', 'agent/members', 'event/stream?topic=Node']) {
    const { status, text } = await server.get(path)
    assert.deepEqual([status, text], [403, 'Permission denied'], path)
  }
  server.actAs(identity())
  assert.equal((await server.get('allocations')).status, 403)
  assert.equal((await server.get('allocations?namespace=*')).text, '[]')
  assert.equal((await server.get('event/stream')).status, 403)
  assert.equal((await server.get('system/gc', { method: 'PUT' })).status, 403)
})

test('jobs are derived from allocations, and their counts follow each change', async (t) => {
  const server = await startFleetServer(t)
  fill(server)
  const { value } = await server.get('jobs')
  assert.deepEqual(each(value), ['batch/1', 'web'])
  assert.deepEqual(each(value, 'Status'), ['dead', 'running'])
  assert.deepEqual(each((await server.get('jobs?prefix=w&per_page=20')).value), ['web'])
  const pages = await server.get('jobs?per_page=1')
  const token = pages.headers.get('x-nomad-nexttoken')
  assert.deepEqual(each((await server.get(`jobs?per_page=1&next_token=${token}`)).value), ['web'])
  const batch = (await server.get('job/batch%2F1')).value as Record<string, unknown>
  assert.deepEqual([batch['ID'], batch['Type'], batch['Stop']], ['batch/1', 'service', true])
  assert.deepEqual(each((await server.get('job/web/allocations?all=false&namespace=default')).value), [ONE])
  assert.deepEqual(each((await server.get('job/web/allocations?namespace=secret')).value), [THREE])
  assert.equal((await server.get('job/nobody/allocations')).text, '[]')
  assert.equal((await server.get('job/web/evaluations')).text, '[]')
  assert.equal((await server.get('job/web/deployment')).text, 'null')
  const counts = async () => {
    const { value: summary } = await server.get('job/web/summary')
    const { Running, Complete } = (summary as { Summary: Record<string, Record<string, number>> }).Summary['api'] ?? {}
    return [Running, Complete]
  }
  assert.deepEqual(await counts(), [1, 0])
  const more = [allocationOf(ONE, { clientStatus: 'complete' }), allocationOf(idOf('04000000'))]
  server.say(nodeOf(NODE, { name: 'n1' }), more)
  assert.deepEqual(await counts(), [1, 1])
  assert.equal((await server.get('job/batch%2F1')).status, 404)
  server.say(nodeOf(NODE, { name: 'n1' }), [])
  const gone = await server.get('job/web')
  assert.deepEqual([gone.status, gone.text], [404, 'job not found'])
})

test('a search returns at most twenty IDs of each kind that have the prefix', async (t) => {
  const server = await startFleetServer(t)
  fill(server)
  const search = async (body: unknown, method = 'PUT') => {
    const { value } = await server.get('search', { method, body: JSON.stringify(body) })
    return value as { Matches: Record<string, string[]>; Truncations: Record<string, boolean> }
  }
  const found = await search({ Prefix: '01', Context: 'allocs' })
  assert.deepEqual([found.Matches, found.Truncations], [{ allocs: [ONE] }, { allocs: false }])
  assert.deepEqual((await search({ Prefix: 'aa0', Context: 'nodes' }, 'POST')).Matches, { nodes: [NODE] })
  const all = await search({ Prefix: 'b', Context: 'all', Region: '', WaitIndex: 0 })
  assert.deepEqual([all.Matches['jobs'], all.Matches['namespaces']], [['batch/1'], []])
  assert.deepEqual((await search({ Prefix: 'web', Context: 'nodes' })).Matches, { nodes: [] })
  const many = Array.from({ length: 21 }, (_, serial) => allocationOf(idOf('77000000', serial)))
  server.say(nodeOf(idOf('cc000000')), many)
  const cut = await search({ Prefix: '77', Context: 'allocs' })
  assert.deepEqual([cut.Matches['allocs']?.length, cut.Truncations['allocs']], [20, true])
  for (const body of ['', '[]', '{"Prefix":1}', '{"Context":"planets"}']) {
    assert.equal((await server.get('search', { method: 'PUT', body })).status, 400, body)
  }
})

test('a search with twenty visible matches is complete: invisible ones and others after them do not truncate it', async (t) => {
  const server = await startFleetServer(t)
  const visible = Array.from({ length: 20 }, (_, serial) =>
    allocationOf(idOf('77000000', serial), { jobId: `web-${serial}` }),
  )
  const invisible = allocationOf(idOf('77000000', 20), { namespace: 'secret', jobId: 'web-99' })
  server.say(nodeOf(NODE), [...visible, invisible, allocationOf(ONE, { jobId: 'other' })])
  const search = async (body: unknown) => {
    const { value } = await server.get('search', { method: 'PUT', body: JSON.stringify(body) })
    return value as { Matches: Record<string, string[]>; Truncations: Record<string, boolean> }
  }
  for (const [Context, Prefix] of [
    ['allocs', '77'],
    ['jobs', 'web'],
  ] as const) {
    const { Matches, Truncations } = await search({ Prefix, Context })
    assert.deepEqual([Matches[Context]?.length, Truncations], [20, { [Context]: false }])
  }
})

test('a server reports itself as leader, peer, member and region', async (t) => {
  const server = await startFleetServer(t)
  assert.equal((await server.get('status/leader')).value, '127.0.0.1:4646')
  assert.deepEqual((await server.get('status/peers')).value, ['127.0.0.1:4646'])
  assert.deepEqual((await server.get('regions')).value, ['global'])
  const members = (await server.get('agent/members')).value as { Members: Record<string, unknown>[] }
  assert.deepEqual(each(members.Members, 'Name'), ['s1.global'])
  const license = await server.get('operator/license')
  assert.deepEqual([license.status, license.text, license.headers.get('content-length')], [204, '', null])
  server.actAs(identity())
  assert.equal((await server.get('regions')).status, 200)
})

test('garbage collection is started on all ready nodes', async (t) => {
  const server = await startFleetServer(t)
  fill(server)
  server.leave(OTHER)
  const { status, text } = await server.get('system/gc', { method: 'PUT', body: '{}\n' })
  assert.deepEqual([status, text], [200, ''])
  await eventually(() =>
    server.logger.lines.some(({ message }) => message === 'garbage collection requested on all nodes'),
  )
  assert.deepEqual(server.collected, [NODE])
  for (const method of ['GET', 'POST']) assert.equal((await server.get('system/gc', { method })).status, 405)
})

interface EventLine {
  readonly Index?: number
  readonly Events?: readonly { Topic: string; Type: string; Key: string; Payload: Record<string, unknown> }[]
}

/** Reads an event stream; the lines so far can be looked at. */
async function listen(t: Pick<import('node:test').TestContext, 'after'>, server: FleetServer, query: string) {
  const abort = new AbortController()
  t.after(() => abort.abort())
  const answer = await fetch(`${server.url}/v1/event/stream?${query}`, { signal: abort.signal })
  const lines: EventLine[] = []
  const read = async () => {
    let text = ''
    for await (const bytes of answer.body ?? []) {
      text += Buffer.from(bytes).toString()
      const whole = text.split('\n')
      text = whole.pop() ?? ''
      lines.push(...whole.map((line) => JSON.parse(line) as EventLine))
    }
  }
  void read().catch(() => undefined)
  const keys = () => lines.flatMap(({ Events = [] }) => Events.map(({ Topic, Type, Key }) => `${Topic} ${Type} ${Key}`))
  return { answer, lines, keys, close: () => abort.abort() }
}

test('the event stream sends changes of the selected topics and keys from an index on', async (t) => {
  const server = await startFleetServer(t)
  const all = await listen(t, server, 'namespace=*')
  assert.equal(all.answer.headers.get('content-type'), 'application/json')
  await eventually(() => all.lines.length > 0)
  assert.deepEqual(all.lines[0], {})
  const nodes = await listen(t, server, 'topic=Node')
  const one = await listen(t, server, `topic=Allocation:${TWO}`)
  await eventually(() => nodes.lines.length > 0 && one.lines.length > 0)
  fill(server)
  server.say(nodeOf(NODE, { name: 'n1' }), [])
  const added = [ONE, TWO].map((id) => `Allocation AllocationUpdated ${id}`)
  const secret = `Allocation AllocationUpdated ${THREE}`
  const removed = [ONE, TWO].map((id) => `Allocation AllocationRemoved ${id}`)
  const [first, second] = [NODE, OTHER].map((id) => `Node NodeRegistration ${id}`)
  await eventually(() => all.keys().length === 7)
  assert.deepEqual(all.keys(), [first, ...added, second, secret, ...removed])
  await eventually(() => nodes.keys().length === 2)
  assert.deepEqual(nodes.keys(), [first, second])
  await eventually(() => one.keys().length === 2)
  assert.deepEqual(one.keys(), [added[1], removed[1]])
  const payload = all.lines[1]?.Events?.[0]?.Payload['Node'] as Record<string, unknown>
  assert.equal(payload['ID'], NODE)
  const index = all.lines[2]?.Index ?? 0
  const again = await listen(t, server, `index=${index}`)
  await eventually(() => again.keys().length === 5)
  assert.deepEqual(again.keys(), [...added, second, ...removed])
  for (const stream of [all, nodes, one, again]) stream.close()
  await eventually(() => server.api.queries.waiterCount === 0)
  assert.equal((await server.get('event/stream?topic=Planet')).status, 400)
  assert.equal((await server.get('event/stream?index=x')).status, 400)
})

test('events of allocations in namespaces that the caller may not see are left out', async (t) => {
  const server = await startFleetServer(t)
  server.actAs(identity('default:read-job', 'node:read'))
  const events = await listen(t, server, 'namespace=*')
  await eventually(() => events.lines.length > 0)
  fill(server)
  server.leave(OTHER)
  await eventually(() => events.keys().includes(`Node NodeEvent ${OTHER}`), 'what comes behind the others')
  const allocations = events.keys().filter((key) => key.startsWith('Allocation'))
  assert.deepEqual(
    allocations,
    [ONE, TWO].map((id) => `Allocation AllocationUpdated ${id}`),
  )
})

test('a caller that has left gets no more events', async (t) => {
  const server = await startFleetServer(t)
  const caller = identity('default:read-job', 'node:read')
  let checks = 0
  server.actAs({
    ...caller,
    allowsNode(capability) {
      checks++
      return caller.allowsNode(capability)
    },
  })
  const events = await listen(t, server, 'topic=Node')
  await eventually(() => events.lines.length > 0)
  checks = 0
  server.say(nodeOf(NODE), [])
  assert.ok(checks > 0, 'permissions are checked for each event')
  events.close()
  await eventually(() => server.api.queries.waiterCount === 0)
  checks = 0
  server.say(nodeOf(OTHER), [])
  assert.equal(checks, 0)
})

test('a caller that is more than 10,000 events behind is cut, after those that wait for it', async (t) => {
  const server = await startFleetServer(t)
  const answer = await fetch(`${server.url}/v1/event/stream?namespace=*`)
  assert.equal(answer.status, 200)
  await eventually(() => server.api.queries.waiterCount === 1)
  const many = Array.from({ length: 10_001 }, (_, serial) => allocationOf(idOf('0a000000', serial)))
  server.say(nodeOf(NODE, { name: 'n1' }), many)
  const chunks: Buffer[] = []
  await assert.rejects(async () => {
    let tail = ''
    for await (const bytes of answer.body ?? []) {
      const chunk = Buffer.from(bytes)
      chunks.push(chunk)
      // A heartbeat behind the events: the stream goes on, with a gap.
      const end = '}\n{}\n'
      tail = (tail + chunk.toString('latin1', Math.max(0, chunk.length - end.length))).slice(-end.length)
      if (tail === end) break
    }
  })
  assert.equal(
    Buffer.concat(chunks)
      .toString()
      .match(/"Topic":/g)?.length,
    10_000,
  )
})
