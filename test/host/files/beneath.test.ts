/** No path leads out of an allocation or into the content of its secrets, in any notation. */
import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import {
  closeSync,
  constants,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  readSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { type Edge, startEdge } from '../../helpers/edge.ts'
import { type Answer, ask, raw } from '../../helpers/raw-http.ts'
import { ALLOC, INSIDE, makeAllocation, SECRET } from '../../helpers/allocation.ts'
import { eventually } from '../../helpers/eventually.ts'

const encoded = (path: string) => encodeURIComponent(path)
const OUTSIDE = 'OUTSIDE-of-every-allocation'
const ROOT = process.getuid?.() === 0

/** The endpoints that take a path, as query texts behind it. */
const VIEWS = { ls: '', stat: '' } as const
const READS = { cat: '', readat: '&offset=0&limit=-1', stream: '&offset=0&follow=false', tail: '&offset=0' } as const
const ENDPOINTS = { ...VIEWS, ...READS } as const
type Endpoint = keyof typeof ENDPOINTS

/** A stream that follows has given its first bytes, or been refused. */
const hasData = (text: string) => text.includes('"Data"') || /^HTTP\/1\.1 [45]/.test(text)

/** `path` is already percent-encoded. A followed stream is left after its first data. */
async function call(edge: Edge, endpoint: Endpoint, path: string): Promise<Answer> {
  const name = endpoint === 'tail' ? 'stream' : endpoint
  const target = `/v1/client/fs/${name}/${ALLOC}?path=${path}${ENDPOINTS[endpoint]}`
  if (endpoint !== 'tail') return ask(edge.port, 'GET', target)
  const head = `GET ${target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`
  const { bytes } = await raw({ port: edge.port, until: hasData }, head)
  const headEnd = bytes.indexOf('\r\n\r\n')
  const status = Number(bytes.toString('latin1', 9, 12))
  return { status, headers: new Map(), head: '', body: bytes.subarray(headEnd), whole: true }
}

/** A body as text, and what its frames hold. */
function shown(answer: Answer): string {
  const text = answer.body.toString('latin1')
  const data = [...text.matchAll(/"Data":"([^"]*)"/g)].map(([, base64]) => Buffer.from(base64 ?? '', 'base64'))
  return text + Buffer.concat(data).toString('latin1')
}

function assertClean(answer: Answer, edge: Edge, what: string): void {
  const text = shown(answer)
  for (const never of [SECRET, OUTSIDE, edge.directory, edge.outside, '/proc/', 'root:x:0']) {
    assert.ok(!text.includes(never), `${what}: the answer holds ${never}: ${text.slice(0, 300)}`)
  }
}

async function refused(edge: Edge, endpoints: readonly Endpoint[], path: string, statuses: readonly number[]) {
  for (const endpoint of endpoints) {
    const answer = await call(edge, endpoint, path)
    const what = `${endpoint} ${path.slice(0, 80)}`
    assert.ok(statuses.includes(answer.status), `${what}: ${answer.status} ${shown(answer).slice(0, 200)}`)
    assert.notEqual(shown(answer), '', what)
    assertClean(answer, edge, what)
  }
}

const ALL = ['ls', 'stat', 'cat', 'readat', 'stream', 'tail'] as const
const CONTENT = ['cat', 'readat', 'stream', 'tail'] as const

async function prepare(t: TestContext): Promise<Edge> {
  const edge = await startEdge(t)
  writeFileSync(join(edge.outside, 'secret.txt'), OUTSIDE)
  return edge
}

test('a path that leaves the directory is refused in every notation', async (t) => {
  const edge = await prepare(t)
  const climbs = [
    '..',
    '../',
    '/..',
    '../../outside/secret.txt',
    '/../outside/secret.txt',
    'web/../../../outside/secret.txt',
    './/.//../outside/secret.txt',
    '%2e%2e/%2e%2e/outside/secret.txt',
    '%2e%2e%2f%2e%2e%2foutside%2fsecret.txt',
    '..%2f..%2foutside%2fsecret.txt',
    'web/local/../../..',
    `../${ALLOC}/../../outside/secret.txt`,
  ]
  for (const path of climbs) await refused(edge, ALL, path, [400])
})

test('names that contain dots are names', async (t) => {
  const edge = await prepare(t)
  for (const name of ['..foo', '...', '.. ', '..%2f', '%252e%252e', '..\\']) {
    writeFileSync(join(edge.directory, decodeURIComponent(encoded(name))), INSIDE)
    const answer = await call(edge, 'cat', encoded(name))
    assert.equal(answer.status, 200, name)
    assert.equal(answer.body.toString(), INSIDE)
  }
  // Twice encoded is not decoded twice, and a backslash is no slash.
  for (const path of ['%252e%252e/%252e%252e/outside/secret.txt', '..%5c..%5coutside%5csecret.txt', '%c0%ae%c0%ae/x']) {
    await refused(edge, ALL, path, [400, 404])
  }
  for (const path of ['web/local/../local/./hello.txt', '/web//local/hello.txt', 'web/secrets/../local/hello.txt']) {
    assert.equal((await call(edge, 'cat', path)).body.toString(), INSIDE)
  }
})

test('an invalid path is refused with the reason', async (t) => {
  const edge = await prepare(t)
  await refused(edge, ALL, 'web/local/hello.txt%00.png', [400])
  await refused(edge, ALL, '%00', [400])
  await refused(edge, ALL, '%ff%fe', [400])
  await refused(edge, ALL, 'web/%E0%80%AF', [400])
  await refused(edge, ALL, 'web/%zz', [400])
  await refused(edge, ALL, 'a'.repeat(10_240), [414])
  await refused(edge, ALL, 'a'.repeat(300), [400])
  await refused(edge, ALL, 'a/'.repeat(300), [414])
  await refused(edge, ALL, 'web/local/nothing', [404])
  await refused(edge, ALL, 'web/local/hello.txt/more', [400])
})

test('symbolic links are followed inside the allocation and nowhere else', async (t) => {
  const edge = await prepare(t)
  const local = join(edge.directory, 'web/local')
  const link = (target: string, name: string) => symlinkSync(target, join(local, name))
  link('hello.txt', 'same')
  link('../../web/local/hello.txt', 'around')
  link(join(edge.directory, 'web/local/hello.txt'), 'absolute')
  link('same', 'chain')
  link('.', 'here')
  for (const name of ['same', 'around', 'absolute', 'chain', 'here/here/hello.txt', 'here/chain']) {
    for (const endpoint of CONTENT) {
      assert.ok(shown(await call(edge, endpoint, `web/local/${name}`)).includes(INSIDE), `${endpoint} ${name}`)
    }
  }
  link(join(edge.outside, 'secret.txt'), 'out-absolute')
  link('../../../../outside/secret.txt', 'out-relative')
  link('out-relative', 'out-chain')
  link(edge.outside, 'out-directory')
  link('/', 'out-root')
  link(`${edge.directory}/../../outside`, 'out-dots')
  link('/proc/self/root', 'out-magic')
  link(`/proc/${process.pid}/cwd`, 'out-cwd')
  link(`/proc/${process.pid}/root${edge.directory}/web/local/hello.txt`, 'out-around')
  link('/proc/self/fd/0', 'out-fd')
  const out = [
    'out-absolute',
    'out-relative',
    'out-chain',
    'out-directory',
    'out-directory/secret.txt',
    'out-root',
    'out-root/etc/passwd',
    'out-dots/secret.txt',
    'out-magic',
    'out-magic/etc/passwd',
    'out-cwd',
    'out-around',
    'out-fd',
    'here/out-directory/secret.txt',
  ]
  for (const name of out) await refused(edge, ALL, `web/local/${name}`, [400])
  // `ls` of their directory shows the links themselves.
  const listing = JSON.parse((await call(edge, 'ls', 'web/local')).body.toString()) as {
    Name: string
    FileMode: string
  }[]
  assert.equal(listing.find(({ Name }) => Name === 'out-root')?.FileMode.charAt(0), 'L')
})

test('dangling, circular and expensive links are refused', async (t) => {
  const edge = await prepare(t)
  const local = join(edge.directory, 'web/local')
  symlinkSync('nothing', join(local, 'dangling'))
  symlinkSync('loop', join(local, 'loop'))
  symlinkSync('loop-b', join(local, 'loop-a'))
  symlinkSync('loop-a', join(local, 'loop-b'))
  symlinkSync('deep/x', join(local, 'deep'))
  await refused(edge, ALL, 'web/local/dangling', [404])
  for (const name of ['loop', 'loop-a', 'loop/x', 'deep', 'deep/x'])
    await refused(edge, ALL, `web/local/${name}`, [400])
  // 39 links that each walk up and down 600 times before the next.
  mkdirSync(join(local, 'd'))
  for (let index = 0; index < 39; index++) {
    symlinkSync(`${'d/../'.repeat(600)}${index === 38 ? 'hello.txt' : `slow${index + 1}`}`, join(local, `slow${index}`))
  }
  await refused(edge, ALL, 'web/local/slow0', [414])
})

test('a directory with the name of the allocation as prefix is outside', async (t) => {
  const edge = await prepare(t)
  mkdirSync(`${edge.directory}x`)
  writeFileSync(`${edge.directory}x/evil.txt`, OUTSIDE)
  symlinkSync(`${edge.directory}x`, join(edge.directory, 'web/local/sibling'))
  symlinkSync(`${edge.directory}x/evil.txt`, join(edge.directory, 'web/local/sibling.txt'))
  symlinkSync(`../../../${ALLOC}x/evil.txt`, join(edge.directory, 'web/local/relative.txt'))
  for (const name of ['sibling', 'sibling/evil.txt', 'sibling.txt', 'relative.txt']) {
    await refused(edge, ALL, `web/local/${name}`, [400])
  }
  await refused(edge, ALL, `../${ALLOC}x/evil.txt`, [400])
})

const DIRECT_LINKS = ['directory/token', 'relative', 'absolute', 'chain', 'key', 'cased', 'hard'].map(
  (name) => `web/local/${name}`,
)

test('the content of secrets and private is never readable', async (t) => {
  const edge = await prepare(t)
  const task = join(edge.directory, 'web')
  const link = (target: string, name: string) => symlinkSync(target, join(task, 'local', name))
  mkdirSync(join(task, 'SeCrEtS'))
  writeFileSync(join(task, 'SeCrEtS/token'), SECRET)
  mkdirSync(join(task, 'secrets/deep/er'), { recursive: true })
  writeFileSync(join(task, 'secrets/deep/er/token'), SECRET)
  // File systems that compare names by their canonical form take these for "secrets" and "private".
  const lookalikes = ['\uff53ecrets', 'se\u200bcrets', '\uff30rivate']
  for (const name of lookalikes) {
    mkdirSync(join(task, name))
    writeFileSync(join(task, name, 'token'), SECRET)
  }
  link('../secrets', 'directory')
  link('../secrets/token', 'relative')
  link(join(task, 'secrets/token'), 'absolute')
  link('relative', 'chain')
  link('../private/key', 'key')
  link('../SeCrEtS/token', 'cased')
  linkSync(join(task, 'secrets/token'), join(task, 'local/hard'))
  linkSync(join(task, 'secrets/deep/er/token'), join(edge.directory, 'alloc/data/hard'))
  linkSync(join(task, 'private/key'), join(task, 'local/hard-key'))
  symlinkSync('web', join(edge.directory, 'other'))
  const ways = [
    'web/secrets/token',
    'web/SeCrEtS/token',
    ...lookalikes.map((name) => `web/${encodeURIComponent(name)}/token`),
    'web/private/key',
    'web/secrets/deep/er/token',
    '/web//secrets/./token',
    'web/local/../secrets/token',
    'other/secrets/token',
    'alloc/data/hard',
    'web/local/hard-key',
    ...DIRECT_LINKS,
  ]
  for (const path of ways) {
    await refused(edge, CONTENT, path, [403])
    const stat = await call(edge, 'stat', path)
    assert.equal(stat.status, 200, `stat ${path}`)
    assert.match(
      stat.body.toString(),
      /"ContentType":"application\/octet-stream"/,
      'its type would tell of its content',
    )
  }
  for (const path of ['web/secrets', 'web/private', 'web/local/directory']) {
    await refused(edge, CONTENT, path, [400])
    assert.match((await call(edge, 'ls', path)).body.toString(), /"Name":"(token|key)"/)
  }
})

test('a hard link is refused if it cannot be excluded that it is a secret', async (t) => {
  const edge = await prepare(t)
  const task = join(edge.directory, 'web')
  // Deeper than a path can be: made and linked from within.
  execFileSync(
    'sh',
    [
      '-c',
      `for i in $(seq 30); do mkdir ${'d'.repeat(200)}; cd -P ${'d'.repeat(200)}; done; printf %s "$2" >t; ln t "$1"`,
    ].concat('sh', join(task, 'local/deep'), SECRET),
    { cwd: join(task, 'secrets') },
  )
  t.after(() => execFileSync('rm', ['-rf', join(task, 'secrets')]))
  await refused(edge, CONTENT, 'web/local/deep', [403])
  // Two names that are both in the open stay readable as long as that can be seen.
  execFileSync('rm', ['-rf', join(task, 'secrets')])
  linkSync(join(task, 'local/hello.txt'), join(task, 'local/twin'))
  assert.equal((await call(edge, 'cat', 'web/local/twin')).body.toString(), INSIDE)
})

test('names similar to the protected ones are readable', async (t) => {
  const edge = await prepare(t)
  for (const path of [
    'web/secrets-x',
    'web/secretsx',
    'web/xsecrets',
    'web/local/secrets',
    'alloc/private',
    'secrets/a',
  ]) {
    mkdirSync(join(edge.directory, path), { recursive: true })
    writeFileSync(join(edge.directory, path, 'f'), INSIDE)
    assert.equal((await call(edge, 'cat', `${path}/f`)).body.toString(), INSIDE, path)
  }
})

test('tasks may have the names of protected directories', async (t) => {
  const edge = await prepare(t)
  for (const name of ['secrets', 'constructor', '__proto__', '..task', '-', 'a b', 'ünï', '%2e%2e', 'alloc.json.d']) {
    mkdirSync(join(edge.directory, name, 'secrets'), { recursive: true })
    mkdirSync(join(edge.directory, name, 'local'), { recursive: true })
    writeFileSync(join(edge.directory, name, 'secrets/token'), SECRET)
    writeFileSync(join(edge.directory, name, 'local/f'), INSIDE)
    await refused(edge, CONTENT, encoded(`${name}/secrets/token`), [403])
    assert.equal((await call(edge, 'cat', encoded(`${name}/local/f`))).body.toString(), INSIDE, name)
  }
})

test('names that are not UTF-8 are listed', async (t) => {
  const edge = await prepare(t)
  writeFileSync(Buffer.concat([Buffer.from(`${edge.directory}/web/local/bad-`), Buffer.from([0xff, 0xfe])]), INSIDE)
  const answer = await call(edge, 'ls', 'web/local')
  assert.equal(answer.status, 200)
  const names = (JSON.parse(answer.body.toString()) as { Name: string }[]).map(({ Name }) => Name)
  assert.deepEqual(names, ['bad-\ufffd\ufffd', 'hello.txt'])
})

test('pipes are not opened and keep every byte', async (t) => {
  const edge = await prepare(t)
  const pipe = join(edge.directory, 'alloc/logs/.web.stdout.fifo')
  execFileSync('mkfifo', [
    pipe,
    join(edge.directory, 'alloc/logs/web.stderr.0'),
    join(edge.directory, 'web/local/silent'),
  ])
  symlinkSync('silent', join(edge.directory, 'web/local/to-silent'))
  for (const path of ['web/local/silent', 'web/local/to-silent', 'alloc/logs/.web.stdout.fifo']) {
    await refused(edge, CONTENT, path, [400])
    assert.match((await call(edge, 'stat', path)).body.toString(), /"FileMode":"p/)
    await refused(edge, ['ls'], path, [400])
  }
  const logs = await ask(edge.port, 'GET', `/v1/client/fs/logs/${ALLOC}?task=web&type=stderr`)
  assert.equal(logs.status, 404, 'a pipe is no log file')

  const reader = spawn('cat', [pipe], { stdio: ['ignore', 'pipe', 'inherit'] })
  const writer = spawn('sh', ['-c', 'i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo "line $i"; done >"$0"', pipe])
  let got = ''
  reader.stdout.setEncoding('utf8').on('data', (text: string) => (got += text))
  const ended = new Promise((resolve) => reader.on('close', resolve))
  let looks = 0
  while (reader.exitCode === null && writer.exitCode === null) {
    for (const endpoint of ALL) await call(edge, endpoint, 'alloc/logs/.web.stdout.fifo')
    looks++
  }
  await ended
  assert.ok(looks > 0)
  assert.equal(got, Array.from({ length: 2000 }, (_, index) => `line ${index + 1}\n`).join(''))
  await call(edge, 'ls', 'alloc/logs')
  // With bytes in the pipe and no reader.
  const both = openSync(pipe, constants.O_RDWR | constants.O_NONBLOCK)
  t.after(() => closeSync(both))
  writeFileSync(`/proc/self/fd/${both}`, 'waiting')
  for (const endpoint of ALL) await call(edge, endpoint, 'alloc/logs/.web.stdout.fifo')
  const left = Buffer.alloc(100)
  assert.equal(left.toString('utf8', 0, readSync(both, left)), 'waiting')
})

test('sockets and devices are listed but never read', async (t) => {
  const edge = await prepare(t)
  const server = createServer().listen(join(edge.directory, 'web/local/api.sock'))
  t.after(() => server.close())
  await eventually(() => server.listening, 'the socket listens')
  await refused(edge, CONTENT, 'web/local/api.sock', [400])
  assert.match((await call(edge, 'stat', 'web/local/api.sock')).body.toString(), /"FileMode":"S/)
  if (!ROOT) return t.diagnostic('devices are left out: only root can make them')
  for (const [name, major, minor] of [
    ['zero', '1', '5'],
    ['tty', '5', '0'],
    ['null', '1', '3'],
  ] as const) {
    try {
      execFileSync('mknod', [join(edge.directory, 'web/local', name), 'c', major, minor], { stdio: 'ignore' })
    } catch {
      return t.diagnostic('devices are left out: this root may not make them')
    }
    await refused(edge, CONTENT, `web/local/${name}`, [400])
    assert.match((await call(edge, 'stat', `web/local/${name}`)).body.toString(), /"FileMode":"Dc/)
  }
})

test('log files that are links, pipes or have odd names are handled like others', async (t) => {
  const edge = await prepare(t)
  const logs = join(edge.directory, 'alloc/logs')
  symlinkSync(join(edge.outside, 'secret.txt'), join(logs, 'web.stdout.1'))
  symlinkSync('../../web/secrets/token', join(logs, 'web.stdout.2'))
  linkSync(join(edge.directory, 'web/secrets/token'), join(logs, 'web.stdout.3'))
  execFileSync('mkfifo', [join(logs, 'web.stdout.4')])
  writeFileSync(join(logs, 'web.stdout.old'), SECRET)
  writeFileSync(join(logs, 'web.stdout.007'), SECRET)
  for (const query of ['plain=true', '', 'origin=end&offset=100']) {
    const answer = await ask(edge.port, 'GET', `/v1/client/fs/logs/${ALLOC}?task=web&type=stdout&${query}`)
    assert.equal(answer.status, 200)
    assertClean(answer, edge, `logs ${query}`)
    assert.ok(shown(answer).includes('a line of the log\n'))
  }
})

test('a log directory that is a link to the outside has no logs', async (t) => {
  const edge = await prepare(t)
  const OTHER = 'a1b2c3d4-0000-4000-8000-000000000002'
  const directory = makeAllocation(edge.allocDir, OTHER)
  await eventually(() => edge.host.allocations.get(OTHER), 'the allocation is seen')
  writeFileSync(join(edge.outside, 'web.stdout.0'), OUTSIDE)
  execFileSync('rm', ['-rf', join(directory, 'alloc/logs')])
  for (const target of [edge.outside, '../web/secrets']) {
    execFileSync('ln', ['-sfn', target, join(directory, 'alloc/logs')])
    writeFileSync(join(directory, 'web/secrets/web.stdout.0'), SECRET)
    for (const follow of ['false', 'true']) {
      const answer = await ask(edge.port, 'GET', `/v1/client/fs/logs/${OTHER}?task=web&type=stdout&follow=${follow}`)
      assert.ok(answer.status >= 400, String(answer.status))
      assertClean(answer, edge, `logs in ${target}`)
    }
  }
})

test('a same-named tree in another mount namespace is not reached', async (t) => {
  const edge = await prepare(t)
  const script = `mount -t tmpfs none ${edge.directory} && mkdir -p ${edge.directory}/web/local && echo ${OUTSIDE} >${edge.directory}/web/local/hello.txt && echo ready && sleep 60`
  const attacker = spawn('unshare', ['-rm', 'sh', '-c', script], {
    stdio: ['ignore', 'pipe', 'ignore'],
    detached: true,
  })
  t.after(() => attacker.pid !== undefined && attacker.exitCode === null && process.kill(-attacker.pid, 'SIGKILL'))
  const started = await new Promise<boolean>((resolve) => {
    attacker.stdout.once('data', () => resolve(true))
    attacker.once('close', () => resolve(false))
    attacker.once('error', () => resolve(false))
  })
  if (!started) return t.skip('no user namespaces here')
  const there = `/proc/${attacker.pid}/root${edge.directory}`
  assert.match(readFileSync(`${there}/web/local/hello.txt`, 'utf8'), new RegExp(OUTSIDE), 'the attack is in place')
  const local = join(edge.directory, 'web/local')
  symlinkSync(`${there}/web/local`, join(local, 'ns'))
  symlinkSync(`${there}/web/local/hello.txt`, join(local, 'ns.txt'))
  symlinkSync(`/proc/${attacker.pid}/cwd`, join(local, 'cwd'))
  for (const name of ['ns', 'ns.txt', 'ns/hello.txt', 'cwd', 'cwd/hello.txt']) {
    await refused(edge, ALL, `web/local/${name}`, [400])
  }
  assert.equal((await call(edge, 'cat', 'web/local/hello.txt')).body.toString(), INSIDE)
})
