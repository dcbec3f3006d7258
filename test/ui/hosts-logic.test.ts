/** Logic of the views of hosts, without a browser. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { ApiError, isRefusal } from '../../ui/api/client.ts'
import { collectionSummary, type HostAllocation, isEnded } from '../../ui/views/hosts/gc-rules.ts'
import { countStatuses, filterHosts, type HostStub, parseSearch } from '../../ui/views/hosts/host-filter.ts'
import { isApplied, keyProblem, metadataPatch, metadataRows, removalText } from '../../ui/views/hosts/metadata.ts'
import { Poller } from '../../ui/views/hosts/poller.ts'
import { shownTimes } from '../../ui/components/plot-times.ts'
import { TimeSeries } from '../../ui/views/hosts/series.ts'
import { hostUsage, networkRates } from '../../ui/views/hosts/usage.ts'
import { adviceFor, sortedChecks } from '../../ui/views/status/advice.ts'
import { eventually } from '../helpers/eventually.ts'

function host(over: Partial<HostStub>): HostStub {
  return {
    Address: '10.0.0.1',
    Datacenter: 'dc1',
    ID: 'a1b2c3d4-0000-4000-8000-000000000001',
    Name: 'worker-1',
    NodeClass: 'gpu',
    NodePool: 'default',
    Status: 'ready',
    StatusDescription: '',
    Version: '0.1.0',
    ...over,
  }
}

test('a search has words, and metadata as key=value with quotes', () => {
  assert.deepEqual(parseSearch('Web rack=r1 zone="eu west" =x'), {
    words: ['web', '=x'],
    meta: [
      ['rack', 'r1'],
      ['zone', 'eu west'],
    ],
  })
  assert.deepEqual(parseSearch('  '), { words: [], meta: [] })
  assert.deepEqual(parseSearch('a="open'), { words: [], meta: [['a', 'open']] })
})

test('hosts are found by all words in any field, and by status', () => {
  const hosts = [host({}), host({ Name: 'db-2', NodeClass: '', Address: '10.0.0.2', Status: 'down' })]
  const names = (text: string, status?: string) => filterHosts(hosts, parseSearch(text), status).map(({ Name }) => Name)
  assert.deepEqual(names('WORKER gpu'), ['worker-1'])
  assert.deepEqual(names('10.0.0.2'), ['db-2'])
  assert.deepEqual(names('a1b2c3d4', 'down'), ['db-2'])
  assert.deepEqual(names('worker db'), [])
  assert.equal(filterHosts(hosts, parseSearch(''), undefined), hosts)
  assert.deepEqual(countStatuses([...hosts, host({})]), [
    ['ready', 2],
    ['down', 1],
  ])
})

const disk = (name: string, percent: number, size = 1000) => ({
  Available: 0,
  Device: '',
  InodesUsedPercent: 0,
  Mountpoint: name,
  Size: size,
  Used: (size * percent) / 100,
  UsedPercent: percent,
})

test('the disk use of a host is that of its fullest file system', () => {
  const stats = {
    AllocDirStats: disk('', 40.2, 500),
    CPU: [10, 30].map((percent) => ({ CPU: '', Idle: 0, System: 1, TotalPercent: percent, TotalTicks: 0, User: 0 })),
    CPUTicksConsumed: 0,
    DeviceStats: null,
    DiskStats: [disk('/', 40, 500), disk('/data', 97)],
    Memory: { Available: 25, Free: 1, Total: 100, Used: 1 },
    Timestamp: 0,
    Uptime: 60,
  }
  const usage = hostUsage(stats)
  assert.equal(usage.cpuPercent, 20)
  assert.equal(usage.memoryPercent, 75)
  assert.equal(usage.fullest.name, '/data')
  assert.deepEqual(
    usage.fileSystems.map(({ name }) => name),
    ['/', '/data'],
  )
  const withOwnDisk = hostUsage({ ...stats, AllocDirStats: disk('', 99, 700) })
  assert.equal(withOwnDisk.fullest.name, 'allocations')
  assert.equal(hostUsage({ ...stats, DiskStats: null, CPU: [] }).cpuPercent, 0)
})

test('the removal of a configured key is not called that of a dynamic one', () => {
  assert.deepEqual(
    [
      removalText({ source: 'static', configured: undefined }),
      removalText({ source: 'dynamic', configured: 'r1' }),
    ].map(({ title }) => title),
    ['Unset a configured key', 'Remove a dynamic key'],
  )
  assert.match(removalText({ source: 'dynamic', configured: 'r1' }).effect, /stays unset/)
  assert.doesNotMatch(removalText({ source: 'dynamic', configured: undefined }).effect, /configuration/)
})

test('rows of metadata show where the value comes from', () => {
  const rows = metadataRows({
    Static: { rack: 'r1', zone: 'a', old: 'x' },
    Dynamic: { rack: 'r2', old: null, added: '' },
    Meta: { rack: 'r2', zone: 'a', added: '' },
  })
  assert.deepEqual(rows, [
    { key: 'added', value: '', source: 'dynamic', configured: undefined },
    { key: 'old', value: undefined, source: 'unset', configured: 'x' },
    { key: 'rack', value: 'r2', source: 'dynamic', configured: 'r1' },
    { key: 'zone', value: 'a', source: 'static', configured: undefined },
  ])
})

test('a key named as a property of every object is a key', () => {
  assert.equal(JSON.stringify(metadataPatch('__proto__', 'x')), '{"__proto__":"x"}')
  assert.equal(isApplied({ Static: {}, Dynamic: {}, Meta: {} }, 'constructor', null), true)
  assert.equal(isApplied({ Static: {}, Dynamic: {}, Meta: {} }, 'rack', 'r1'), false)
  assert.equal(isApplied({ Static: {}, Dynamic: { rack: 'r1' }, Meta: { rack: 'r1' } }, 'rack', 'r1'), true)
})

test('keys that an agent refuses are recognized', () => {
  for (const key of ['rack', 'a.b', '_x', 'zone-1', 'größe']) assert.equal(keyProblem(key), undefined, key)
  for (const key of ['', 'a/b', '1a', 'a..b', 'a b', '.a']) assert.notEqual(keyProblem(key), undefined, key)
})

const allocation = (over: Partial<HostAllocation>): HostAllocation => ({
  ClientDescription: '',
  ClientStatus: 'running',
  CreateTime: 0,
  DesiredStatus: 'run',
  ID: 'x',
  JobID: '',
  ModifyTime: 0,
  Name: '',
  Namespace: 'default',
  NodeID: '',
  NodeName: '',
  TaskGroup: '',
  TaskStates: null,
  ...over,
})

test('allocations are collected if they have ended', () => {
  const dead = { Events: null, Failed: false, FinishedAt: null, Restarts: 0, StartedAt: null, State: 'dead' as const }
  assert.equal(isEnded(allocation({})), false)
  assert.equal(isEnded(allocation({ ClientStatus: 'failed' })), true)
  assert.equal(isEnded(allocation({ DesiredStatus: 'stop' })), false)
  assert.equal(isEnded(allocation({ DesiredStatus: 'stop', TaskStates: { web: dead } })), true)
  assert.equal(isEnded(allocation({ ClientStatus: 'unknown', TaskStates: { web: dead } })), false)
})

test('the result of a collection counts what was confirmed only', () => {
  const results = (['removed', 'removed', 'kept', 'unknown'] as const).map((state, at) => ({ id: `${at}`, state }))
  assert.equal(collectionSummary(results), 'Removed 2 of 4, 1 not removed, 1 not confirmed.')
  assert.equal(collectionSummary(results.slice(0, 2)), 'Removed 2 of 2.')
})

test('a series keeps the newest values, and has a gap where samples are missing', () => {
  const series = new TimeSeries(2, { capacity: 4, gapSeconds: 10 })
  series.add(1, [1, 10])
  series.add(1, [9, 9])
  series.add(2, [2, null])
  assert.deepEqual(series.data, [
    [1, 2],
    [1, 2],
    [10, null],
  ])
  series.add(30, [3, 30])
  assert.deepEqual(series.data[0], [1, 2, 7, 30])
  assert.deepEqual(series.data[1], [1, 2, null, 3])
  series.add(31, [4, 40])
  assert.deepEqual(series.data[0], [2, 7, 30, 31])
  assert.equal(series.latest(0), 4)
})

test('a plot of one sample shows a minute, and one of many shows all', () => {
  assert.deepEqual(shownTimes([1000]), [940, 1000])
  assert.deepEqual(shownTimes([1000, 1030]), [970, 1030])
  assert.deepEqual(shownTimes([1000, 1500]), [1000, 1500])
})

test('visible hosts are read first, a sweep reads each host once, and few reads run at a time', async () => {
  const order: string[] = []
  let [running, most] = [0, 0]
  let changes = 0
  const poller = new Poller<string>({
    refreshMs: 60_000,
    onChange: () => changes++,
    async read(id) {
      order.push(id)
      most = Math.max(most, ++running)
      await delay(1)
      running--
      if (id === 'bad') throw new Error('No path to node')
      return `use of ${id}`
    },
  })
  const all = ['bad', ...Array.from({ length: 40 }, (_, at) => `h${at}`)]
  try {
    poller.sweep(all)
    poller.show(['h39', 'h38'])
    await eventually(() => poller.reading('h37')?.value !== undefined && poller.progress?.done === all.length)
    await delay(10)
  } finally {
    poller.close()
  }
  assert.equal(order.length, all.length)
  assert.equal(new Set(order).size, all.length)
  assert.ok(order.indexOf('h39') < 8, `h39 was read at ${order.indexOf('h39')}`)
  assert.equal(most, 5)
  assert.equal(poller.reading('bad')?.value, undefined)
  assert.match(poller.reading('bad')?.error?.message ?? '', /No path/)
  assert.ok(changes < 10, `${changes} changes`)
})

test('a value that was refused is not read again, and one that failed otherwise is', async () => {
  const reads = { refused: 0, failed: 0 }
  const poller = new Poller<string>({
    refreshMs: 0,
    onChange: () => undefined,
    isFinal: isRefusal,
    async read(id) {
      reads[id === 'refused' ? 'refused' : 'failed']++
      await delay(1)
      throw new ApiError(id === 'refused' ? 403 : 500, 'no')
    },
  })
  try {
    poller.show(['refused', 'failed'])
    await eventually(() => reads.failed > 3)
  } finally {
    poller.close()
  }
  assert.equal(reads.refused, 1)
})

test('hosts that scroll by are not read; those on the screen are read when the list has stopped', async () => {
  const read: string[] = []
  const poller = new Poller<string>({
    refreshMs: 60_000,
    onChange: () => undefined,
    read: (id) => Promise.resolve(read.push(id)).then(() => id),
  })
  try {
    poller.show(['first'])
    for (let at = 0; at < 20; at++) {
      poller.show([`passing-${at}`])
      await delay(5)
    }
    poller.show(['last'])
    await eventually(() => poller.reading('last') !== undefined)
  } finally {
    poller.close()
  }
  assert.deepEqual(read, ['first', 'last'])
})

test('network rates are those between two samples, and none after a counter was reset', () => {
  const before = { received: 1000, sent: 500 }
  assert.deepEqual(networkRates(before, { received: 5000, sent: 700 }, 2), { received: 2000, sent: 100 })
  assert.equal(networkRates(before, { received: 10, sent: 700 }, 2), undefined)
  assert.equal(networkRates(before, before, 0), undefined)
})

test('failing checks are first, and each has advice', () => {
  const checks = [
    { name: 'disk', state: 'ok', reason: '' },
    { name: 'seal', state: 'failing', reason: 'sealed' },
  ]
  assert.deepEqual(
    sortedChecks({ ready: false, role: 'active', warnings: [], checks }).map(({ name }) => name),
    ['seal', 'disk'],
  )
  assert.equal(adviceFor('seal').link?.to, '/seal')
  assert.notEqual(adviceFor('constructor').text, undefined)
})
