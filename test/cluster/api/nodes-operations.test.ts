/** `/v1/nodes` over HTTP: records, prefixes, filters, pages, blocking queries, permissions. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { allocationOf, each, idOf, nodeOf, startFleetServer } from '../../helpers/fleet-server.ts'
import { identity } from '../../host/allocations/host-fixture.ts'
import { eventually } from '../../helpers/eventually.ts'

const A = idOf('aa000000')
const B = idOf('aabb0000')
const C = idOf('cc000000')

test('nodes are listed in the order of their IDs, with the headers of a read', async (t) => {
  const server = await startFleetServer(t)
  for (const id of [C, A, B]) server.say(nodeOf(id))
  const { status, headers, value } = await server.get('nodes')
  assert.equal(status, 200)
  assert.deepEqual(each(value), [A, B, C])
  assert.equal(headers.get('x-nomad-index'), String(server.roster.index))
  assert.equal(headers.get('x-nomad-knownleader'), 'true')
  assert.equal(headers.get('x-nomad-lastcontact'), '0')
  assert.deepEqual(each((await server.get('nodes?reverse=true')).value), [C, B, A])
  const [first] = (await server.get('nodes?resources=true&os=true')).value as Record<string, unknown>[]
  assert.deepEqual(first?.['Attributes'], { 'os.name': 'debian' })
  const { Cpu, Disk, Memory } = (first?.['NodeResources'] ?? {}) as Record<string, Record<string, number>>
  assert.deepEqual([Cpu?.['CpuShares'], Disk?.['DiskMB'], Memory?.['MemoryMB']], [5198, 5120, 24_105])
  assert.equal((await server.get('nodes?pretty')).text.startsWith('[\n    {\n        "Address"'), true)
  const bare = await fetch(`${server.url}/nodes`)
  assert.equal(((await bare.json()) as unknown[]).length, 3)
})

test('a late heartbeat of a ready node has its age on request, in the list and of one node', async (t) => {
  const server = await startFleetServer(t)
  server.say(nodeOf(A))
  const ages = async (path: string) => {
    const { value } = await server.get(path)
    return each(Array.isArray(value) ? value : [value], 'SecondsSinceHeartbeat')
  }
  assert.deepEqual(await ages('nodes?heartbeat_age=true'), [undefined])
  server.clock.aheadMs = 14_900
  server.say(nodeOf(B))
  assert.deepEqual(await ages('nodes?heartbeat_age=true&status_time=true'), [15, undefined])
  assert.deepEqual(await ages('nodes?heartbeat_age=true&pretty'), [15, undefined])
  assert.deepEqual(await ages('nodes'), [undefined, undefined], 'as the compatible system')
  assert.deepEqual(await ages(`node/${A}?heartbeat_age=true`), [15])
  assert.deepEqual(await ages(`node/${A}`), [undefined])
  server.clock.aheadMs = 31_000
  server.roster.sweep()
  assert.deepEqual(await ages('nodes?heartbeat_age=true'), [undefined, 16], 'a node that is down has none')
})

test('a list without nodes is an empty array and not null', async (t) => {
  const server = await startFleetServer(t)
  assert.equal((await server.get('nodes')).text, '[]')
  assert.equal((await server.get('nodes?pretty')).text, '[]\n')
})

test('a prefix has an even number of hexadecimal digits, with or without hyphens', async (t) => {
  const server = await startFleetServer(t)
  for (const id of [C, A, B]) server.say(nodeOf(id))
  const listed = async (prefix: string) => each((await server.get(`nodes?prefix=${prefix}`)).value)
  assert.deepEqual(await listed('aa'), [A, B])
  assert.deepEqual(await listed('AABB'), [B])
  assert.deepEqual(await listed('aabb000000'), [B])
  assert.deepEqual(await listed(A), [A])
  assert.deepEqual(await listed(A.replaceAll('-', '')), [A])
  assert.deepEqual(await listed('ffff'), [])
  const odd = await server.get('nodes?prefix=aab')
  assert.equal(odd.status, 400)
  assert.equal(odd.text, 'node lookup failed: index error: Input (without hyphens) must be even length')
  assert.equal((await server.get('nodes?prefix=zz')).status, 400)
  assert.equal((await server.get('nodes?prefix=a-a-a-a-a-a-')).status, 400)
})

test('metadata and filters select nodes', async (t) => {
  const server = await startFleetServer(t)
  server.say(nodeOf(A, { meta: { rack: 'r1', role: 'edge' } }))
  server.say(nodeOf(B, { meta: { rack: 'r1' } }))
  server.say(nodeOf(C, { meta: { rack: 'r2', role: 'edge' }, datacenter: 'dc2' }))
  const listed = async (query: string) => each((await server.get(`nodes?${query}`)).value)
  assert.deepEqual(await listed('meta.rack=r1'), [A, B])
  assert.deepEqual(await listed('meta.rack=r1&meta.role=edge'), [A])
  assert.deepEqual(await listed('meta.nothing=1'), [])
  const filter = (text: string) => listed(`filter=${encodeURIComponent(text)}`)
  assert.deepEqual(await filter('Datacenter == dc2 or Meta.role is empty'), [B, C])
  assert.deepEqual(await filter('Attributes["os.name"] == debian and Address == "10.0.0.1"'), [A, B, C])
  assert.equal((await server.get('nodes?filter=Datacenter')).status, 400)
})

test('pages cover the complete list, also with a filter and in descending order', async (t) => {
  const server = await startFleetServer(t)
  const ids = Array.from({ length: 25 }, (_, at) => idOf(`${(at * 10).toString(16).padStart(2, '0')}000000`))
  for (const id of ids) server.say(nodeOf(id))
  for (const extra of ['', '&reverse=true', `&filter=${encodeURIComponent('Name not contains "name-0a"')}`]) {
    const whole = each((await server.get(`nodes?x=${extra}`)).value)
    const paged: unknown[] = []
    let token: string | null = ''
    for (let page = 0; token !== null; page++) {
      assert.ok(page < 10)
      const { headers, value } = await server.get(`nodes?per_page=7&next_token=${token}${extra}`)
      assert.ok(each(value).length <= 7)
      paged.push(...each(value))
      token = headers.get('x-nomad-nexttoken')
    }
    assert.deepEqual(paged, whole)
  }
  assert.equal((await server.get('nodes?per_page=25')).headers.get('x-nomad-nexttoken'), null)
})

test('a node has all fields that stock clients dereference', async (t) => {
  const server = await startFleetServer(t)
  server.say(nodeOf(A, { meta: { rack: 'r1' } }))
  const { status, value, headers } = await server.get(`node/${A}`)
  const node = value as Record<string, Record<string, Record<string, unknown>>>
  assert.equal(status, 200)
  assert.ok(Number(headers.get('x-nomad-index')) > 0)
  assert.equal(node['HTTPAddr'], '', 'tokens go to servers only')
  assert.equal(node['SecretID'], '')
  assert.deepEqual(node['Meta'], { rack: 'r1' })
  for (const one of ['NodeResources', 'ReservedResources']) {
    assert.equal(typeof node[one]?.['Cpu']?.['CpuShares'], 'number')
    assert.equal(typeof node[one]?.['Memory']?.['MemoryMB'], 'number')
    assert.equal(typeof node[one]?.['Disk']?.['DiskMB'], 'number')
  }
  assert.deepEqual(
    (node['Events'] as unknown as Record<string, unknown>[]).map(({ Message, Subsystem }) => [Message, Subsystem]),
    [['Node registered', 'Cluster']],
  )
  assert.equal(node['Drivers']?.['raw_exec']?.['Healthy'], true)
  const missing = await server.get(`node/${B}`)
  assert.deepEqual([missing.status, missing.text], [404, 'node not found'])
  assert.ok(missing.headers.has('x-nomad-index'))
  assert.equal((await server.get('node/aa00')).status, 400)
})

test('a node that has left is down with the reason', async (t) => {
  const server = await startFleetServer(t)
  server.say(nodeOf(A))
  server.leave(A)
  const [stub] = (await server.get('nodes')).value as Record<string, unknown>[]
  assert.deepEqual([stub?.['Status'], stub?.['StatusDescription']], ['down', 'Node left'])
})

test('the allocations of a node are those that the caller may read', async (t) => {
  const server = await startFleetServer(t)
  const [first, second, secret] = [idOf('01000000'), idOf('02000000'), idOf('03000000')]
  server.say(nodeOf(A), [allocationOf(second), allocationOf(first), allocationOf(secret, { namespace: 'secret' })])
  server.say(nodeOf(B), [allocationOf(idOf('04000000'))])
  assert.deepEqual(each((await server.get(`node/${A}/allocations`)).value), [first, second, secret])
  assert.equal((await server.get(`node/${C}/allocations`)).text, '[]')
  server.actAs(identity('node:read', 'default:read-job'))
  assert.deepEqual(each((await server.get(`node/${A}/allocations`)).value), [first, second])
  server.actAs(identity('default:read-job'))
  for (const path of ['nodes', `node/${A}`, `node/${A}/allocations`]) {
    const { status, text } = await server.get(path)
    assert.deepEqual([status, text], [403, 'Permission denied'], path)
  }
})

test('the parameters of a read are validated as in the compatible system', async (t) => {
  const server = await startFleetServer(t)
  server.say(nodeOf(A))
  const texts: [string, number, string][] = [
    ['wait=5', 400, 'Invalid wait time'],
    ['wait=-5s', 400, 'Invalid wait time'],
    ['index=x', 400, 'Invalid index'],
    ['index=-1', 400, 'Invalid index'],
    ['stale=maybe', 400, 'Expect `true` or `false` for `stale` query string parameter'],
    ['per_page=x', 400, 'Expect a number for `per_page` query string parameter'],
    ['region=mars', 500, 'No path to region'],
  ]
  for (const [query, status, text] of texts) {
    const answer = await server.get(`nodes?${query}`)
    assert.deepEqual([answer.status, answer.text], [status, text], query)
  }
  assert.equal((await server.get('nodes?region=global&stale=true&wait=5s')).status, 200)
  assert.equal((await server.get('nodes', { method: 'DELETE' })).status, 405)
})

test('a blocking query is answered after the next change of its own list only', async (t) => {
  const server = await startFleetServer(t)
  server.say(nodeOf(A))
  const { headers } = await server.get('nodes')
  const asked = server.get(`nodes?index=${headers.get('x-nomad-index')}&wait=60s`)
  const one = server.get(`node/${A}?index=${server.roster.index}&wait=60s`)
  const old = await server.get('nodes?index=1')
  assert.equal(old.status, 200)
  await eventually(() => server.api.queries.waiterCount === 2)
  server.say(nodeOf(A), [allocationOf(idOf('01000000'))])
  assert.equal((await server.get('nodes')).headers.get('x-nomad-index'), headers.get('x-nomad-index'))
  assert.equal(server.api.queries.waiterCount, 2)
  server.say(nodeOf(A, { meta: { new: '1' } }), [allocationOf(idOf('01000000'))])
  assert.equal((await asked).status, 200)
  assert.equal((await one).status, 200)
  const before = server.roster.index
  const nodesIndex = (await server.get('nodes')).headers.get('x-nomad-index')
  let isAnswered = false
  const other = server.get(`node/${A}/allocations?index=${before}&wait=60s`).then((answer) => {
    isAnswered = true
    return answer
  })
  await eventually(() => server.api.queries.waiterCount === 1)
  server.say(nodeOf(B), [allocationOf(idOf('02000000'))])
  assert.notEqual((await server.get('nodes')).headers.get('x-nomad-index'), nodesIndex)
  assert.equal(isAnswered, false)
  server.say(nodeOf(A), [allocationOf(idOf('01000000'), { clientStatus: 'complete' })])
  assert.deepEqual(each((await other).value, 'ClientStatus'), ['complete'])
})

test('a blocking query ends at its timeout, with its caller, and at once for an index of another server', async (t) => {
  const server = await startFleetServer(t)
  server.say(nodeOf(A))
  const index = server.roster.index
  assert.equal((await server.get(`nodes?index=${index}&wait=50ms`)).status, 200)
  assert.equal((await server.get(`nodes?index=${index + 1000}&wait=60s`)).status, 200)
  const abort = new AbortController()
  const gone = server.get(`nodes?index=${index}&wait=60s`, { signal: abort.signal })
  await eventually(() => server.api.queries.waiterCount === 1)
  abort.abort()
  await assert.rejects(gone)
  await eventually(() => server.api.queries.waiterCount === 0)
})

test('a purged node is removed with its key, and registers again with any key', async (t) => {
  const server = await startFleetServer(t)
  server.say(nodeOf(A), [allocationOf('aa00aa00-0000-4000-8000-000000000001')])
  const purge = (id: string) => fetch(`${server.url}/v1/node/${id}/purge`, { method: 'PUT' })
  assert.equal((await purge('nonsense')).status, 400)
  assert.equal((await purge(B)).status, 404)
  const purged = await purge(A)
  assert.equal(purged.status, 200)
  assert.deepEqual(await purged.json(), { EvalIDs: [], EvalCreateIndex: 0, NodeModifyIndex: server.roster.index })
  assert.equal((await server.get(`node/${A}`)).status, 404)
  assert.deepEqual((await server.get('allocations')).value, [])
  server.say(nodeOf(A))
  assert.equal((await server.get(`node/${A}`)).status, 200)
})
