/** `outpost monitor`: the log of the addressed process, and of a node through a server. */
import '../helpers/short-timings.ts'
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { startCluster } from '../helpers/cluster.ts'
import { runHere } from '../helpers/command-here.ts'
import { eventually } from '../helpers/eventually.ts'
import { OUTPOST } from '../helpers/program.ts'
import { spawn } from 'node:child_process'
import { once } from 'node:events'

function monitor(url: string, ...args: string[]) {
  const child = spawn(OUTPOST, ['monitor', ...args], { env: { ...process.env, OUTPOST_ADDR: url } })
  let [stdout, stderr] = ['', '']
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text))
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text))
  return { child, stdout: () => stdout, stderr: () => stderr, closed: once(child, 'close') }
}

test('follows the log of the server, and of a node by its name', async (t) => {
  const world = await startCluster(t, { hosts: 1, here: ['server'] })
  const { url } = world.server()
  const node = world.host().member
  const own = monitor(url, '-log-level', 'debug', '-json')
  const others = monitor(url, '-node', 'client-0')
  t.after(() => [own, others].forEach(({ child }) => child.kill('SIGKILL')))

  await t.test('lines as JSON, from the requested level on', async () => {
    // A probe is logged at debug, below the level of the server.
    await eventually(async () => {
      await fetch(`${url}/v1/agent/health`)
      return own.stdout().includes('/v1/agent/health')
    })
    for (const line of own.stdout().split('\n').slice(0, -1)) {
      assert.equal(typeof (JSON.parse(line) as Record<string, unknown>)['@message'], 'string', line)
    }
  })

  await t.test('lines of a node, requested from the server', async () => {
    await eventually(async () => {
      await fetch(`${node.url}/v1/client/metadata?at=the-node`)
      return /\[INFO\] .*\/v1\/client\/metadata/.test(others.stdout())
    })
    assert.ok(!others.stdout().includes('/v1/agent/health'))
  })

  await t.test('Ctrl-C ends it with 0, a lost connection with 1 and the cause', async () => {
    own.child.kill('SIGINT')
    assert.deepEqual(await own.closed, [0, null])
    assert.equal(own.stderr(), '')
    await node.kill()
    assert.deepEqual(await others.closed, [1, null])
    assert.match(others.stderr(), /^outpost: connection to http:\S+ lost \([^)]+\)\n$/)
  })

  await t.test('a node that is down, an unknown one, a wrong level', async () => {
    const run = (...args: string[]) => runHere(['monitor', ...args], { OUTPOST_ADDR: url })
    await eventually(async () => (await run('-node', 'client-0')).stderr.includes('has been down since'))
    const unknown = await run('-node', 'nobody-here')
    assert.deepEqual(
      [unknown.code, unknown.stderr],
      [1, `outpost: no node with ID prefix or name "nobody-here" at ${url}\n`],
    )
    const wrong = await run('-log-level', 'loud')
    assert.equal(wrong.code, 2)
    assert.match(wrong.stderr, /must be one of trace, debug, info, warn, error/)
  })
})
