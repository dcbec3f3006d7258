/** The roster of an agent without servers: loaded after the start, and complete for the first request. */
import '../helpers/short-timings.ts'
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { agentHere } from '../helpers/agent-here.ts'
import { startAgent, workDirectory, writeConfig } from '../helpers/agent-process.ts'
import { ALLOC, makeAllocation } from '../helpers/allocation.ts'
import { MessageClient } from '../helpers/message-client.ts'

const LAUNCHER = join(import.meta.dirname, '../../bin/outpost')

function configWith(t: TestContext): { readonly directory: string; readonly config: string } {
  const directory = workDirectory(t)
  makeAllocation(join(directory, 'data/alloc'), ALLOC, { JobID: 'api' })
  return { directory, config: writeConfig(directory, 'acl { enabled = false }\nname = "lone"') }
}

test('the first request after the start gets complete lists', async (t) => {
  for (const [path, ...expected] of [
    ['allocations', `"ID":"${ALLOC}"`, '"NodeName":"lone"'],
    ['nodes', '"Name":"lone"', '"Status":"ready"'],
    ['jobs', '"ID":"api"', '"Status":"running"'],
    [`allocation/${ALLOC}`, '"JobID":"api"'],
    ['openapi.json', '"/v1/allocations":', '"/v1/client/stats":'],
  ] as const) {
    const { url } = await agentHere(t, ['-config', configWith(t).config])
    const answers = await Promise.all([1, 2].map(() => fetch(`${url}/v1/${path}`)))
    for (const answer of answers) {
      const text = await answer.text()
      assert.equal(answer.status, 200, path)
      for (const part of expected) assert.ok(text.includes(part), `${path}: ${part} in ${text}`)
    }
  }
})

test('the first list is complete on a host with many allocations', async (t) => {
  const { config, directory } = configWith(t)
  const ids = Array.from({ length: 3000 }, (_, at) => `${String(at).padStart(8, '0')}${ALLOC.slice(8)}`)
  for (const id of ids) {
    mkdirSync(join(directory, 'data/alloc', id))
    writeFileSync(join(directory, 'data/alloc', id, 'alloc.json'), JSON.stringify({ ID: id, JobID: 'many', Tasks: {} }))
  }
  const { url } = await agentHere(t, ['-config', config])
  const listed = (await (await fetch(`${url}/v1/allocations`)).json()) as unknown[]
  assert.equal(listed.length, ids.length + 1)
})

test('the first request after the start can be a WebSocket with the logs of a job', async (t) => {
  const { url } = await agentHere(t, ['-config', configWith(t).config])
  const client = new MessageClient({ port: Number(new URL(url).port), path: '/v1/job/api/logs?type=stdout' })
  t.after(() => client.socket.destroy())
  assert.equal((await client.close()).code, 1000)
  assert.match(client.texts.join(''), new RegExp(ALLOC))
})

test('an agent is ready before its own roster is loaded', async (t) => {
  const { config, directory } = configWith(t)
  const [hook, loaded] = [join(directory, 'hook.mjs'), join(directory, 'loaded')]
  writeFileSync(
    hook,
    `import { appendFileSync } from 'node:fs'
import { registerHooks } from 'node:module'
registerHooks({ load(url, context, next) {
  appendFileSync(${JSON.stringify(loaded)}, url + '\\n')
  return next(url, context)
} })`,
  )
  const env = { OUTPOST_NODE_OPTIONS: `--import=${hook}`, OUTPOST_TEST_PROGRAM: LAUNCHER }
  const agent = await startAgent(t, ['-config', config], { env })
  const names = () => (existsSync(loaded) ? readFileSync(loaded, 'utf8') : '')
  assert.match(names(), /host\/host\.ts$/m)
  assert.doesNotMatch(names(), /cluster\/(api\/server-operations|roster\/node-messages)\.ts$|\/msgpackr\//m)
  assert.equal((await fetch(`${agent.url}/v1/nodes`)).status, 200)
  assert.match(names(), /cluster\/api\/server-operations\.ts$/m)
})
