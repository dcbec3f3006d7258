import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { escapeLine } from '../../../src/cli/framework/terminal-escapes.ts'
import { bar, fitted } from '../../../src/cli/output/terminal.ts'
import { ALLOC_ID, beat, fakeAgent, frame } from '../fake-agent.ts'
import { OUTPOST, ROOT, start } from '../outpost-process.ts'

const PROGRAM = join(ROOT, 'test/helpers/terminal.py')
const HAS_PYTHON = spawnSync('python3', ['-c', 'import pty']).status === 0
const ESCAPE = '\u001b'

const STATS = {
  Uptime: 100_000,
  Memory: { Total: 8_000_000_000, Used: 7_900_000_000, Available: 1 },
  CPU: [{ CPU: 'cpu0', TotalPercent: 50, User: 20, System: 30 }],
  DiskStats: [{ Mountpoint: '/a-mount-point-that-is-long', Size: 100, Used: 1, Available: 99, UsedPercent: 1 }],
}

/** An agent that answers statistics, a file of 5 MB in pieces, and a log that goes on. */
function agentFor(t: TestContext) {
  return fakeAgent(t, ({ path }, response) => {
    if (path === '/v1/client/stats') response.end(JSON.stringify(STATS))
    else if (path.includes('/fs/cat/')) {
      response.writeHead(200, { 'Content-Length': 5_000_000 })
      let sent = 0
      const timer = setInterval(() => {
        response.write(Buffer.alloc(500_000))
        if (++sent === 10) clearInterval(timer)
      }, 60)
    } else {
      response.write(frame('one\n', { File: 'alloc/logs/web.stdout.0' }))
      beat(response)
    }
  })
}

interface Shape {
  readonly columns?: number
  readonly interruptBehind?: string
  readonly env?: NodeJS.ProcessEnv
}

/** What the command wrote on a terminal, and its exit code. */
async function onTerminal(url: string, args: readonly string[], shape: Shape = {}) {
  const { NO_COLOR: _none, COLUMNS: _columns, ...inherited } = process.env
  const env = { ...inherited, OUTPOST_ADDR: url, TERM: 'xterm', ...shape.env }
  const command = [PROGRAM, String(shape.columns ?? 80), shape.interruptBehind ?? '', OUTPOST, ...args]
  const { stdout, stderr } = await start('python3', command, { env }).finished
  assert.equal(stderr, '')
  const [, text = '', code] = /^([^]*)\nexit code (-?\d+)\n$/.exec(stdout) ?? []
  return { text: text.replaceAll('\r\n', '\n'), code: Number(code) }
}

if (HAS_PYTHON) {
  test('colors and bars on a terminal, and only there', async (t) => {
    const agent = await agentFor(t)
    const coloured = await onTerminal(agent.url, ['node', 'stats'])
    assert.equal(coloured.code, 0)
    assert.ok(coloured.text.includes(`${ESCAPE}[31m[####################]${ESCAPE}[0m`), 'full memory in red')
    assert.ok(coloured.text.includes(`${ESCAPE}[32m[##########          ]${ESCAPE}[0m`), 'half a core in green')
    const plain = await start(OUTPOST, ['node', 'stats'], { env: { ...process.env, OUTPOST_ADDR: agent.url } }).finished
    assert.ok(!plain.stdout.includes(ESCAPE) && !plain.stdout.includes('##'))
    for (const [args, env] of [
      [['-no-color'], {}],
      [[], { NO_COLOR: '1' }],
      [[], { TERM: 'dumb' }],
    ] as const) {
      const { text } = await onTerminal(agent.url, ['node', 'stats', ...args], { env })
      assert.equal(text, plain.stdout, JSON.stringify([args, env]))
    }
  })

  test('narrow terminals get cut lines', async (t) => {
    const agent = await agentFor(t)
    for (const shape of [{ columns: 20 }, { env: { COLUMNS: '20' } }]) {
      const { text, code } = await onTerminal(agent.url, ['node', 'stats'], shape)
      assert.equal(code, 0)
      for (const line of text.split('\n')) assert.ok(line.length <= 20, line)
      assert.match(text, /^Memory {4}= .*…$/m)
    }
  })

  test('a copy shows its progress and clears the line', async (t) => {
    const agent = await agentFor(t)
    const directory = mkdtempSync(join(tmpdir(), 'outpost-terminal-'))
    t.after(() => rmSync(directory, { recursive: true, force: true }))
    for (const columns of [80, 20]) {
      const args = ['fs', 'cat', '-o', join(directory, 'copy'), ALLOC_ID, 'x']
      const { text, code } = await onTerminal(agent.url, args, { columns })
      assert.equal(code, 0, text)
      const drawn = text.split(`\r${ESCAPE}[K`)
      assert.equal(drawn.at(-1), '', 'the line is taken away')
      assert.ok(drawn.length > 3, text)
      for (const line of drawn) assert.ok(line.length < columns, line)
      assert.match(drawn.at(-2) ?? '', / \d+ %$/)
    }
    const quiet = await onTerminal(agent.url, ['fs', 'cat', '-no-color', '-o', join(directory, 'b'), ALLOC_ID, 'x'])
    assert.deepEqual(quiet, { text: '', code: 0 })
  })

  test('Ctrl-C ends a follow cleanly', async (t) => {
    const agent = await agentFor(t)
    const { text, code } = await onTerminal(agent.url, ['logs', '-f', '-all', ALLOC_ID], { interruptBehind: ' one' })
    assert.equal(code, 0)
    assert.equal(text, `${ESCAPE}[36mweb |${ESCAPE}[0m one\n^C`)
  })
}

test('bars, cut lines and names', () => {
  assert.deepEqual(
    [bar(0, 4), bar(0.5, 4), bar(1, 4), bar(7, 4), bar(-1, 4)].join(),
    '[    ],[##  ],[####],[####],[    ]',
  )
  const terminal = { isTerminal: true, colours: true, columns: 4 }
  assert.equal(fitted('abcd\nabcde\n', terminal), 'abcd\nabc…\n')
  assert.equal(fitted('abcdef\n', { ...terminal, columns: 1 }), '…\n')
  assert.equal(escapeLine('a\u001b[2J\u009bb\n'), String.raw`a\x1b[2J\x9bb\x0a`)
})
