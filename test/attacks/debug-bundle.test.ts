/**
 * The root of a worker chooses the name, the log and the values of its node, and another user of the operator's machine may prepare the
 * directory of the output: `outpost operator debug` must write its bundle, with each file of the node below the node's directory.
 */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { existsSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { fakeAgent, frame } from '../cli/fake-agent.ts'
import { workDirectory } from '../helpers/agent-process.ts'
import { runHere } from '../helpers/command-here.ts'
import { OUTPOST, start } from '../cli/outpost-process.ts'

const NODE_ID = '6f1c0b9e-2f0a-4a51-9d0c-0000000000aa'
const OTHER_ID = '7f1c0b9e-2f0a-4a51-9d0c-0000000000aa'

interface HostileNode {
  readonly names?: Readonly<Record<string, string>>
  readonly log?: string
  readonly stats?: string
}

/** A server with nodes that answer as given. */
async function serverWith(t: TestContext, { log = 'line\n', names = {}, stats = '{}' }: HostileNode) {
  const records = Object.entries(names).map(([ID, Name]) => ({ ID, Name, Status: 'down', StatusUpdatedAt: 1e300 }))
  const answers: Readonly<Record<string, string>> = {
    '/v1/nodes': JSON.stringify(records),
    '/v1/allocations': '[]',
    '/v1/client/stats': stats,
    ...Object.fromEntries(records.map((record) => [`/v1/node/${record.ID}`, JSON.stringify(record)])),
  }
  const { url } = await fakeAgent(t, ({ path, query }, response) => {
    const text = query.has('node_id') ? log : 'of the server\n'
    response.end(path === '/v1/agent/monitor' ? `${frame(text)}{}` : (answers[path] ?? '{}'))
  })
  return { OUTPOST_ADDR: url }
}

/** Names of the members below the bundle's own directory, and the function that reads one. */
async function bundleOf(t: TestContext, env: NodeJS.ProcessEnv, nodes: readonly string[] = []) {
  const file = join(workDirectory(t), 'bundle.tar.gz')
  const given = nodes.flatMap((id) => ['-node', id])
  // A process of its own: the timeout of a test does not end a command that computes for hours in the process of the test.
  const args = ['operator', 'debug', '-duration', '0s', '-output', file, ...given]
  const command = start(OUTPOST, args, { env: { ...process.env, ...env } })
  t.after(() => command.child.kill('SIGKILL'))
  const ran = await command.finished
  assert.equal(ran.code, 0, ran.stderr)
  const list = execFileSync('tar', ['-tzf', file], { encoding: 'utf8' }).trim().split('\n')
  const members = list.map((name) => name.slice(name.indexOf('/') + 1))
  const read = (name: string) =>
    execFileSync('tar', ['-xzOf', file, `bundle/${name}`], { encoding: 'utf8', maxBuffer: 64 << 20 })
  return { members, read }
}

test('the name of a node is no path to the files of the server or of another node', async (t) => {
  const names = { [NODE_ID]: '..', [OTHER_ID]: '.' }
  const dots = await bundleOf(t, await serverWith(t, { names }), [NODE_ID, OTHER_ID])
  assert.ok(dots.members.includes(`nodes/${NODE_ID}/outpost.log`), dots.members.join())
  assert.ok(dots.members.includes(`nodes/${OTHER_ID}/outpost.log`), dots.members.join())
  assert.equal(dots.read('outpost.log'), 'of the server\n')
  const same = await serverWith(t, { names: { [NODE_ID]: 'web', [OTHER_ID]: 'WEB' } })
  const { members } = await bundleOf(t, same, [NODE_ID, OTHER_ID])
  assert.equal(new Set(members.map((name) => name.toLowerCase())).size, members.length, members.join())
  assert.ok(members.includes(`nodes/${OTHER_ID}/stats.jsonl`), members.join())
})

test('removing secrets takes linear time on any log', { timeout: 120_000 }, async (t) => {
  // Each of these took hours for a megabyte when the time was quadratic.
  const log = [' ', '-eyJ', '\\', '"', 'a.', 'token: '].map((text) => text.repeat((1 << 20) / text.length)).join('\n')
  const line = String.raw`error="{\"password\":\"hunter22\\x\"}" token: eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln`
  const env = await serverWith(t, { names: { [NODE_ID]: 'web' }, log: `${log}\n${line}\n` })
  const { read } = await bundleOf(t, env, [NODE_ID])
  assert.doesNotMatch(read('nodes/web/outpost.log'), /hunter22|eyJhbGciOiJIUzI1NiJ9|eyJzdWIiOiIxIn0/)
})

test('deep or endless values of a node do not prevent the bundle', async (t) => {
  const names = { [NODE_ID]: 'web' }
  const deep = await serverWith(t, { names, stats: `{"token":${'['.repeat(20_000)}"secret"${']'.repeat(20_000)}}` })
  const { read } = await bundleOf(t, deep, [NODE_ID])
  assert.match(read('nodes/web/stats.jsonl'), /<nested too deeply>/)
  assert.doesNotMatch(read('nodes/web/stats.jsonl'), /secret/)
  const long = await bundleOf(t, await serverWith(t, { names, stats: `"${'a'.repeat(40 << 20)}"` }), [NODE_ID])
  assert.ok(!long.members.includes('nodes/web/stats.jsonl'))
  assert.match(long.read('index.json'), /limit of 32 MiB/)
})

test('a link in place of the output is not followed', async (t) => {
  const directory = workDirectory(t)
  const [file, target] = [join(directory, 'bundle.tar.gz'), join(directory, 'target')]
  symlinkSync(target, file)
  const env = await serverWith(t, {})
  const { code, stderr } = await runHere(['operator', 'debug', '-duration', '0s', '-output', file], env)
  assert.equal(code, 1)
  assert.match(stderr, /exists, nothing was written/)
  assert.ok(!existsSync(target))
})
