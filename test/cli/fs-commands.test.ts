import assert from 'node:assert/strict'
import { appendFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { startAgent, workDirectory, writeConfig } from '../helpers/agent-process.ts'
import { runHere } from '../helpers/command-here.ts'
import { Random } from '../helpers/frames.ts'
import { writeManifest } from '../host/allocations/host-fixture.ts'
import { ALLOC_ID, fakeAgent } from './fake-agent.ts'
import { OUTPOST, start } from './outpost-process.ts'
import { eventually } from '../helpers/eventually.ts'

const at = (url: string) => ({ ...process.env, OUTPOST_ADDR: url })

/** In this process. */
function ask(url: string, args: readonly string[]) {
  return runHere(args, at(url))
}

async function site(t: TestContext) {
  const directory = workDirectory(t)
  const config = writeConfig(directory, 'acl { enabled = false }')
  const files = join(directory, 'data/alloc', ALLOC_ID, 'alloc/data')
  mkdirSync(files, { recursive: true })
  writeManifest(join(directory, 'data/alloc'), ALLOC_ID, { ClientStatus: 'running' })
  const { url } = await startAgent(t, ['-config', config])
  return { url, files, directory }
}

test('lists, stats, prints and copies files', async (t) => {
  const { url, files, directory } = await site(t)
  const bytes = new Random(3).bytes(3_000_000)
  writeFileSync(join(files, 'big.bin'), bytes)
  writeFileSync(join(files, 'odd\u001b[31m'), 'x')
  mkdirSync(join(files, 'inner'))
  const run = (...args: string[]) => ask(url, args)
  const listed = await run('fs', 'ls', ALLOC_ID, 'alloc/data')
  assert.equal(listed.code, 0, listed.stderr)
  const time = String.raw`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:Z|[+-]\d\d:\d\d)`
  const lines = listed.stdout.split('\n')
  assert.match(lines[1] ?? '', new RegExp(String.raw`^-rw\S+  3000000  ${time}  big\.bin$`))
  assert.match(lines[2] ?? '', new RegExp(String.raw`^d\S+ +\d+  ${time}  inner/$`))
  assert.match(lines[3] ?? '', /^-rw\S+ +1 {2}.* {2}odd\\x1b\[31m$/)
  assert.match((await run('fs', 'ls', '-H', ALLOC_ID, 'alloc/data')).stdout, / 2\.9 MiB /)
  const stat = await run('fs', 'stat', '-json', ALLOC_ID, 'alloc/data/big.bin')
  assert.equal((JSON.parse(stat.stdout) as { Size: number }).Size, bytes.length)
  const target = join(directory, 'copy.bin')
  const copied = await run('fs', 'cat', '-o', target, ALLOC_ID, 'alloc/data/big.bin')
  assert.deepEqual(copied, { code: 0, signal: null, stdout: '', stderr: '' })
  assert.ok(readFileSync(target).equals(bytes))
  const shell = 'OUTPOST_ADDR=$1 "$2" fs cat "$3" alloc/data/big.bin > "$4"'
  await start('sh', ['-c', shell, 'sh', url, OUTPOST, ALLOC_ID, `${target}2`]).finished
  assert.ok(readFileSync(`${target}2`).equals(bytes), 'to a file')
  const piped = 'OUTPOST_ADDR=$1 "$2" fs cat "$3" alloc/data/big.bin | (sleep 0.3; cat) > "$4"'
  await start('sh', ['-c', piped, 'sh', url, OUTPOST, ALLOC_ID, `${target}3`]).finished
  assert.ok(readFileSync(`${target}3`).equals(bytes), 'to a slow pipe')
  const early = '"$2" fs cat "$3" alloc/data/big.bin | head -c 10 | wc -c; echo "${PIPESTATUS[*]}"'
  const left = await start('bash', ['-c', `export OUTPOST_ADDR=$1; ${early}`, 'bash', url, OUTPOST, ALLOC_ID]).finished
  assert.deepEqual([left.stdout, left.stderr], ['10\n0 0 0\n', ''])
  const missing = await run('fs', 'cat', ALLOC_ID, 'alloc/data/none')
  assert.deepEqual([missing.code, missing.stdout], [1, ''])
  assert.match(missing.stderr, /^outpost: .*\(HTTP 404\)\n$/)
})

test('an interrupted copy leaves no file', async (t) => {
  const directory = workDirectory(t)
  const agent = await fakeAgent(t, (_, response) => {
    response.writeHead(200, { 'Content-Length': 1000 })
    response.write('half', () => setTimeout(() => response.destroy(), 20))
  })
  const target = join(directory, 'copy')
  const { code, stderr } = await start(OUTPOST, ['fs', 'cat', '-o', target, ALLOC_ID, 'x'], { env: at(agent.url) })
    .finished
  assert.equal(code, 1)
  assert.match(stderr, /closed the connection/)
  assert.deepEqual(readdirSync(directory), [])
  const toStdout = await ask(agent.url, ['fs', 'cat', ALLOC_ID, 'x'])
  assert.deepEqual([toStdout.code, toStdout.stdout], [1, 'half'])
})

const tailLine = (args: readonly string[]) => ['fs', 'tail', ...args, ALLOC_ID, 'alloc/data/notes']

test('tail prints the last lines and follows', async (t) => {
  const { url, files } = await site(t)
  const file = join(files, 'notes')
  writeFileSync(file, Array.from({ length: 30 }, (_, line) => `line ${line}\n`).join(''))
  const tail = (...args: string[]) => ask(url, tailLine(args))
  const ten = await tail()
  assert.equal(ten.stdout.split('\n')[0], 'line 20', ten.stderr)
  assert.equal((await tail('-n', '2')).stdout, 'line 28\nline 29\n')
  assert.equal((await tail('-c', '3')).stdout, '29\n')
  const following = start(OUTPOST, tailLine(['-f', '-n', '1']), { env: at(url) })
  let seen = ''
  following.child.stdout?.on('data', (text: string) => (seen += text))
  await eventually(() => seen === 'line 29\n', 'the last line')
  appendFileSync(file, 'more\n')
  await eventually(() => seen === 'line 29\nmore\n', 'the line that came')
  following.child.kill('SIGINT')
  assert.equal((await following.finished).code, 0)
})
