/** `outpost top`: one table, a live screen on a terminal, and how much it asks of a server with a thousand nodes. */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { setImmediate as turn } from 'node:timers/promises'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { agentTarget } from '../../src/cli/client/agent-target.ts'
import { FleetSampler, ROUND_CALLS_MAX } from '../../src/cli/commands/top/fleet-sampler.ts'
import { sortRows } from '../../src/cli/commands/top/top-table.ts'
import { keysIn } from '../../src/cli/output/live-screen.ts'
import { runHere } from '../helpers/command-here.ts'
import { eventually } from '../helpers/eventually.ts'
import { idOf } from '../helpers/fleet-server.ts'
import { fakeAgent } from './fake-agent.ts'
import { OUTPOST, ROOT, start } from './outpost-process.ts'

const HAS_PYTHON = spawnSync('python3', ['-c', 'import pty']).status === 0
const ESCAPE = '\u001b'

const nodeIdOf = (serial: number) => idOf('0a0a0a0a', serial)

/** CPU of a node rises with its serial number, memory falls, and the disk is that of the middle. */
function statsOf(serial: number, count: number) {
  return {
    CPU: [{ TotalPercent: serial / 10 }, { TotalPercent: serial / 10 }],
    Memory: { Used: 1000 * (count - serial), Total: 1000 * count },
    AllocDirStats: { Used: Math.min(serial, count - serial), Size: count },
  }
}

interface Fleet {
  readonly url: string
  /** Serial numbers of the sampled nodes, in order. */
  readonly sampled: number[]
  readonly most: () => number
  stop(): Promise<void>
}

const TASKS = (serial: number) => ({
  Tasks: {
    web: { ResourceUsage: { CpuStats: { Percent: serial }, MemoryStats: { RSS: 2048 } }, Pids: { 1: {}, 2: {} } },
  },
})

/** A server with `count` nodes; the second one does not answer, the last one is down. */
async function fleetOf(t: TestContext, count: number): Promise<Fleet> {
  const sampled: number[] = []
  let [underway, most] = [0, 0]
  const nodes = Array.from({ length: count }, (_, serial) => ({
    ID: nodeIdOf(serial),
    Name: `node-${serial}`,
    Status: serial === count - 1 ? 'down' : 'ready',
  }))
  const allocations = nodes
    .slice(0, -1)
    .map(({ ID, Name }) => ({ ID, NodeName: Name, JobID: 'job', TaskStates: { web: {} } }))
  const answer = async (path: string, query: URLSearchParams) => {
    if (path === '/v1/nodes') return query.has('filter') ? nodes.slice(0, 1) : nodes
    if (path === '/v1/allocations') return allocations
    const id = query.get('node_id') ?? path.split('/')[4] ?? ''
    const serial = Number.parseInt(id.slice(-12), 16)
    sampled.push(serial)
    most = Math.max(most, ++underway)
    // Requests that are under way together are counted together.
    await turn()
    underway--
    if (serial === 1) return undefined
    return path === '/v1/client/stats' ? statsOf(serial, count) : TASKS(serial)
  }
  const agent = await fakeAgent(t, ({ path, query }, response) => {
    void answer(path, query).then((value) =>
      value === undefined ? response.writeHead(404).end('No path to node') : response.end(JSON.stringify(value)),
    )
  })
  return { url: agent.url, sampled, most: () => most, stop: () => agent.stop() }
}

/** In the order in which they are printed. */
function namesOf(text: string): (string | undefined)[] {
  return [...text.matchAll(/(node-\d)/g)].map(([, name]) => name)
}

test('once, or without a terminal: one table of all nodes, sorted, those without a sample last', async (t) => {
  const { sampled, url } = await fleetOf(t, 6)
  const top = (...args: string[]) => runHere(['top', ...args], { OUTPOST_ADDR: url })
  const { code, stderr, stdout } = await top()
  assert.deepEqual([code, stderr], [0, ''])
  assert.match(stdout, /^ID +Name +Status +CPU +Memory +Mem % +Disk +Disk %\n/)
  assert.match(stdout, /^\S+ +node-4 +ready +0\.4 % +2\.0 KiB +33\.3 % +2 B +33\.3 %$/m)
  assert.match(stdout, /^\S+ +node-1 +no response +- +- +- +- +-$/m)
  assert.match(stdout, /^\S+ +node-5 +down +- +- +- +- +-$/m)
  assert.deepEqual(namesOf(stdout), ['node-4', 'node-3', 'node-2', 'node-0', 'node-1', 'node-5'])
  assert.deepEqual(
    sampled.toSorted((a, b) => a - b),
    [0, 1, 2, 3, 4],
    'a node that is down is not asked',
  )
  assert.deepEqual(namesOf((await top('-once', '-sort=memory')).stdout).slice(0, 4), [
    'node-0',
    'node-2',
    'node-3',
    'node-4',
  ])
  assert.deepEqual(namesOf((await top('-once', '-sort=disk')).stdout).slice(0, 2), ['node-3', 'node-2'])
  assert.deepEqual(namesOf((await top('-once', '-reverse')).stdout)[0], 'node-0')
  assert.deepEqual(namesOf((await top('-sort', 'name', '-reverse')).stdout)[0], 'node-5')
  const json = JSON.parse((await top('-json')).stdout) as Record<string, unknown>[]
  assert.deepEqual(json[0], {
    ID: nodeIdOf(4),
    Name: 'node-4',
    Status: 'ready',
    CPUPercent: 0.4,
    MemoryBytes: 2000,
    MemoryTotalBytes: 6000,
    DiskBytes: 2,
    DiskTotalBytes: 6,
  })
  assert.equal(json.at(-1)?.['CPUPercent'], null)
  const tasks = (await top('tasks')).stdout
  assert.match(
    tasks,
    /^Alloc +Job +Task +Node +Status +CPU +Memory +Processes\n\S+ +job +web +node-4 +running +4\.0 % +2\.0 KiB +2\n/,
  )
  assert.equal(namesOf((await top('-node', 'node-0')).stdout).length, 1)
  for (const [args, text] of [
    [['all'], 'expected nodes or tasks'],
    [['tasks', '-sort=disk'], 'tasks have no disk usage'],
    [['-job', 'web'], 'require "tasks"'],
    [['-sort', 'pid'], 'must be one of cpu, memory, disk, name'],
    [['-interval', '1ms'], 'must be at least 500 ms'],
  ] as const) {
    const wrong = await top(...args)
    assert.deepEqual([wrong.code, wrong.stdout], [2, ''], text)
    assert.ok(wrong.stderr.includes(text), wrong.stderr)
  }
})

test('a thousand nodes: each round is bounded, and all nodes are sampled in turn', async (t) => {
  const { most, sampled, url } = await fleetOf(t, 1000)
  const filters = { kind: 'nodes', nodeId: undefined, job: undefined, namespace: '*' } as const
  const sampler = new FleetSampler(agentTarget({ OUTPOST_ADDR: url }, 'hosts'), filters)
  const { signal } = new AbortController()
  await sampler.round(signal)
  assert.equal(sampler.calls, ROUND_CALLS_MAX)
  assert.equal(new Set(sampled).size, ROUND_CALLS_MAX)
  assert.equal(sampler.rows().length, 1000)
  assert.deepEqual([sampler.coverage().sampled, sampler.coverage().reachable], [ROUND_CALLS_MAX, 999])
  for (let round = 1; round < 4; round++) await sampler.round(signal)
  assert.ok(sampler.calls <= 4 * ROUND_CALLS_MAX)
  assert.equal(new Set(sampled).size, 999)
  assert.ok(most() <= 16, `${most()} requests at a time`)
  assert.equal(sortRows(sampler.rows(), { key: 'cpu', isReversed: false })[0]?.node, 'node-998')
})

test('a server that permits no statistics, and one that does not answer', async (t) => {
  const refusing = await fakeAgent(t, ({ path }, response) => {
    if (path === '/v1/nodes') response.end(JSON.stringify([{ ID: nodeIdOf(1), Name: 'a', Status: 'ready' }]))
    else response.writeHead(403).end('Permission denied')
  })
  const denied = await runHere(['top'], { OUTPOST_ADDR: refusing.url })
  assert.deepEqual([denied.code, denied.stdout], [1, ''])
  assert.match(denied.stderr, /^outpost: Permission denied \(HTTP 403\), no token was sent/)
  await refusing.stop()
  assert.equal((await runHere(['top'], { OUTPOST_ADDR: refusing.url })).code, 1)
})

test('keys that arrive together are told apart', () => {
  assert.deepEqual(keysIn(`sq${ESCAPE}[A${ESCAPE}[6~\u0003`), ['s', 'q', 'up', 'page down', 'interrupt'])
  assert.deepEqual(keysIn(`${ESCAPE}OB `), ['down', ' '])
})

test('on a terminal: the alternate screen, sorting by keys, and the terminal restored', {
  skip: !HAS_PYTHON,
}, async (t) => {
  const fleet = await fleetOf(t, 60)
  const onTerminal = (typed: readonly string[], awaited: string, ...args: string[]) => {
    const env = { ...process.env, OUTPOST_ADDR: fleet.url, TERM: 'xterm', TYPED: typed.join('\u001e') }
    const program = join(ROOT, 'test/helpers/terminal.py')
    return start('python3', [program, '110', awaited, OUTPOST, 'top', ...args], { env }).finished
  }
  const { stdout } = await onTerminal(['s', 'r', `${ESCAPE}[6~`, 'q'], '59 of 59', '-interval', '500ms')
  assert.ok(stdout.startsWith(`${ESCAPE}[?1049h${ESCAPE}[?25l`), JSON.stringify(stdout.slice(0, 40)))
  assert.match(
    stdout,
    new RegExp(`${ESCAPE}\\[\\?25h${ESCAPE}\\[\\?1049l\\s+exit code 0\\n$`.replaceAll(ESCAPE, '\\x1b')),
  )
  assert.match(stdout, /outpost top: 60 nodes at http:\S+, by cpu; 59 of 59 nodes sampled, oldest 0s/)
  assert.match(stdout, /by memory; /)
  assert.match(stdout, /by memory reversed; /)
  assert.match(stdout, /rows from 22/)
  // 24 lines of the terminal: never more, so that it does not scroll.
  for (const frame of stdout.split(`${ESCAPE}[H`).slice(1)) assert.ok(frame.split('\n').length <= 24 + 3, frame)

  await t.test('a terminal without control sequences gets one table', async () => {
    const env = { ...process.env, OUTPOST_ADDR: fleet.url, TERM: 'dumb' }
    const program = join(ROOT, 'test/helpers/terminal.py')
    const { stdout: plain } = await start('python3', [program, '110', '', OUTPOST, 'top'], { env }).finished
    assert.ok(!plain.includes(ESCAPE))
    assert.match(plain, /^ID +Name +Status/)
    assert.match(plain, /exit code 0\n$/)
  })

  await t.test('Ctrl-C, and a server that fails for a while', async () => {
    assert.match((await onTerminal(['\u0003'], 'q quit')).stdout, /exit code 0\n$/)
    const before = fleet.sampled.length
    const running = onTerminal(['q'], 'retrying', '-interval', '500ms')
    await eventually(() => fleet.sampled.length >= before + 59)
    await fleet.stop()
    const { stdout: shown } = await running
    assert.match(shown, /outpost top: retrying: no agent at http:\S+: start one with/)
    assert.match(shown, /exit code 0\n$/)
  })
})
