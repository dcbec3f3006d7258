/**
 * A task writes terminal control sequences into its log, or a hostile server into its responses: another title,
 * simulated input, hidden or reversed text. Commands must escape them on a terminal, while programs that read the output
 * get every byte unchanged.
 */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { TerminalEscaper } from '../../src/cli/framework/terminal-escapes.ts'
import { ALLOC_ID, fakeAgent, frame } from '../cli/fake-agent.ts'
import { OUTPOST, ROOT, start } from '../cli/outpost-process.ts'

const PROGRAM = join(ROOT, 'test/helpers/terminal.py')
const ESCAPE = '\u001b'
const HOSTILE = `${ESCAPE}]0;title\u0007${ESCAPE}[2J${ESCAPE}[6n\u009b5n`
const LINE = `${ESCAPE}[31mred${ESCAPE}[0m ${HOSTILE} gr\u00fcn \u4e2d\r\n`
// oxlint-disable-next-line no-control-regex -- what a terminal obeys, but for colors, line ends and tabs
const OBEYED = /\u001b(?!\[[\d;]*m)|[\u0000-\u0008\u000b\u000c\u000e-\u001a\u001c-\u001f\u007f-\u009f\u202e]/

function hostileAgent(t: TestContext) {
  return fakeAgent(t, ({ path }, response) => {
    const said = `${HOSTILE}\u202e`
    if (path.includes('/fs/logs/')) response.end(frame(LINE, { File: 'alloc/logs/web.stdout.0' }))
    else if (path.includes('/fs/cat/')) response.end(LINE)
    else if (path.includes('/policies/')) response.end(JSON.stringify({ data: { policy: `# ${said}\n` } }))
    else if (path === '/v1/agent/ready') response.writeHead(404).end('{}')
    else {
      const status = { sealed: true, initialized: true, type: said, t: 1, n: 1, progress: 0, version: said }
      response.end(JSON.stringify({ ...status, warnings: [said], data: { [said]: said, value: said } }))
    }
  })
}

async function onTerminal(url: string, args: readonly string[]): Promise<string> {
  const env = { ...process.env, OUTPOST_ADDR: url, OUTPOST_TOKEN: 'token', TERM: 'xterm' }
  const { stdout } = await start('python3', [PROGRAM, '200', '', OUTPOST, ...args], { env }).finished
  return stdout
}

test('terminal escapes in shown values are neutralized by all commands', async (t) => {
  if (spawnSync('python3', ['-c', 'import pty']).status !== 0) return t.skip('needs python3')
  const { url } = await hostileAgent(t)
  const lines = ['status', 'policy read x', 'read sys/x', 'read -field=value sys/x', 'read -format=json sys/x']
  for (const line of [...lines, 'read -format=yaml sys/x', `fs cat ${ALLOC_ID} x`, `logs ${ALLOC_ID} web`]) {
    const shown = await onTerminal(url, line.split(' '))
    assert.match(shown, /title/, line)
    assert.doesNotMatch(shown, OBEYED, line)
  }
  const log = await onTerminal(url, ['logs', ALLOC_ID, 'web'])
  assert.ok(log.startsWith(`${ESCAPE}[31mred${ESCAPE}[0m \\x1b]0;title\\x07\\x1b[2J`), 'colors stay')
  assert.ok(log.includes(String.raw`\x9b5n`) && log.includes(' grün 中'), log)
})

test('a program gets every byte of a file and of a log', async (t) => {
  const { url } = await hostileAgent(t)
  const env = { ...process.env, OUTPOST_ADDR: url }
  for (const line of [`fs cat ${ALLOC_ID} x`, `logs ${ALLOC_ID} web`]) {
    assert.equal((await start(OUTPOST, line.split(' '), { env }).finished).stdout, LINE)
  }
})

test('JSON output keeps its value', async (t) => {
  const { url } = await hostileAgent(t)
  const env = { ...process.env, OUTPOST_ADDR: url, OUTPOST_TOKEN: 'token' }
  const { stdout } = await start(OUTPOST, ['read', '-format=json', 'sys/x'], { env }).finished
  assert.doesNotMatch(stdout, OBEYED)
  const { data } = JSON.parse(stdout) as { data: Record<string, string> }
  assert.equal(data['value'], `${HOSTILE}\u202e`)
})

test('escapes that are split between chunks are neutralized, too', () => {
  const bytes = Buffer.from(`${LINE}${ESCAPE}`)
  const whole = new TerminalEscaper()
  const expected = Buffer.concat([whole.push(bytes), whole.flush()]).toString()
  assert.ok(expected.endsWith(String.raw`\x1b`))
  for (let cut = 0; cut <= bytes.length; cut++) {
    const parts = new TerminalEscaper()
    const pieces = [parts.push(bytes.subarray(0, cut)), parts.push(bytes.subarray(cut)), parts.flush()]
    assert.equal(Buffer.concat(pieces).toString(), expected, `cut at ${cut}`)
  }
})
