import assert from 'node:assert/strict'
import { test } from 'node:test'
import { startAgent, workDirectory, writeConfig } from '../helpers/agent-process.ts'
import { ALLOC_ID, fakeAgent } from './fake-agent.ts'
import { runHere } from '../helpers/command-here.ts'
import { eventually } from '../helpers/eventually.ts'
import { outpost } from './outpost-process.ts'

function ask(url: string, args: readonly string[], env: NodeJS.ProcessEnv = {}) {
  return runHere(args, { ...process.env, OUTPOST_ADDR: url, ...env })
}

const OPEN = 'acl { enabled = false }'

test('metadata is read and changed', async (t) => {
  const directory = workDirectory(t)
  const config = writeConfig(directory, `${OPEN}\nclient {\n meta {\n  rack = "r1"\n  role = "db"\n }\n}`)
  const { url } = await startAgent(t, ['-config', config])
  const applied = await ask(url, ['node', 'meta', 'apply', 'zone=a=b', 'empty', '-unset', 'rack,role', 'role=x'])
  assert.deepEqual(applied, { code: 0, signal: null, stdout: '', stderr: '' })
  const { stdout } = await ask(url, ['node', 'meta', 'read', '-json'])
  const { Meta, Dynamic } = JSON.parse(stdout) as Record<string, Record<string, string | null>>
  assert.deepEqual(Dynamic, { zone: 'a=b', empty: '', rack: null, role: null })
  assert.equal(Meta?.['zone'], 'a=b')
  const shown = await ask(url, ['node', 'meta', 'read'])
  assert.match(shown.stdout, /^Set over the API:\nempty = \nrack {2}= <unset>\nrole {2}= <unset>\nzone {2}= a=b\n/m)
  for (const [args, message] of [
    [[], /what shall change\?/],
    [['=x'], /names no key/],
  ] as const) {
    const wrong = await ask(url, ['node', 'meta', 'apply', ...args])
    assert.equal(wrong.code, 2)
    assert.match(wrong.stderr, message)
  }
  const refused = await ask(url, ['node', 'meta', 'apply', 'a/b=1'])
  assert.deepEqual([refused.code, refused.stdout], [1, ''])
  assert.match(refused.stderr, /HTTP 400/)
  const status = await ask(url, ['node', 'status'])
  assert.match(status.stdout, new RegExp(`^Address +=? ?.*\n[^]*^Roles +=? agent$[^]*^Meta zone += a=b$`, 'm'))
  const stats = await ask(url, ['node', 'stats'])
  assert.match(stats.stdout, /^Memory {4}= \S+ [KMGT]iB used of \S+ [KMGT]iB$/m)
  assert.match(stats.stdout, /^cpu0 +\d+\.\d %/m)
  assert.match(stats.stdout, /^Mounted on +Size/m)
  const json = JSON.parse((await ask(url, ['node', 'stats', '-json'])).stdout) as { CPU: unknown[] }
  assert.ok(json.CPU.length > 0)
})

test('what a token does not permit is named, and nothing permitted is an error', async (t) => {
  const agent = await fakeAgent(t, ({ path, request }, response) => {
    const permitted = request.headers['x-nomad-token'] === 'some' && path === '/v1/client/metadata'
    response.statusCode = permitted ? 200 : 403
    response.end(permitted ? '{"Meta":{"k":"v\\u001b[2J"}}' : 'Permission denied')
  })
  const some = await ask(agent.url, ['node', 'status'], { OUTPOST_TOKEN: 'some' })
  assert.equal(some.code, 0)
  assert.match(some.stdout, /^Meta k +=? v\\x1b\[2J\nNot permitted = \/v1\/agent\/self, \/v1\/client\/stats$/m)
  const none = await ask(agent.url, ['node', 'status'], { OUTPOST_TOKEN: 'none' })
  assert.deepEqual([none.code, none.stdout], [1, ''])
  assert.match(none.stderr, /the token from OUTPOST_TOKEN is not allowed/)
  assert.ok(!none.stderr.includes('none'), 'the token is not shown')
})

test('an allocation is measured and collected', async (t) => {
  const directory = workDirectory(t)
  const { url } = await startAgent(t, ['-config', writeConfig(directory, OPEN)])
  const data = ['-data-dir', `${directory}/data`]
  const id = ALLOC_ID
  assert.equal(
    (await outpost('alloc', 'run', ...data, '-id', id, '-detach', '-task', 'web', '--', 'sleep', '60')).code,
    0,
  )
  const stats = async () => (await ask(url, ['alloc', 'stats', ...data, id.slice(0, 8)])).stdout
  const shown = await eventually(async () => {
    const text = await stats()
    return /^web/m.test(text) && text
  }, 'the task is measured')
  assert.match(shown, /^Task +CPU +Memory +Swap +Processes\nweb +\d+\.\d % +\S+ \w*B +\S+ \w*B +1$/m)
  const running = await ask(url, ['alloc', 'gc', id])
  assert.deepEqual([running.code, running.stdout], [1, ''])
  assert.match(running.stderr, /HTTP 409/)
  const stopped = await outpost('alloc', 'stop', '-json', ...data, id)
  assert.equal((JSON.parse(stopped.stdout) as { ClientStatus: string }).ClientStatus, 'complete')
  let collected = await ask(url, ['alloc', 'gc', id])
  for (let tries = 0; tries < 100 && collected.code !== 0; tries++) collected = await ask(url, ['alloc', 'gc', id])
  assert.deepEqual([collected.code, collected.stdout], [0, `Removed ${id}\n`])
  assert.equal((await runHere(['alloc', 'list', ...data], process.env)).stdout, 'No allocations\n')
  assert.equal((await ask(url, ['node', 'gc'])).code, 0)
})
