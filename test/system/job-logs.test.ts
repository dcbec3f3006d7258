/** The logs of a job over two real hosts, a real server and NATS: searched, followed, and one host dies. */
import assert from 'node:assert/strict'
import { appendFileSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { startAgent, workDirectory } from '../helpers/agent-process.ts'
import { startNatsServer } from '../helpers/nats-server.ts'
import { makeAllocation } from '../helpers/allocation.ts'
import { eventually } from '../helpers/eventually.ts'

const [FIRST, SECOND] = ['0a000000-0000-4000-8000-000000000001', '0b000000-0000-4000-8000-000000000002'] as const

test('one connection follows a job on every host, and continues after one of them is killed', async (t) => {
  const nats = await startNatsServer(t)
  const directory = workDirectory(t)
  const start = (name: string, role: string) => {
    mkdirSync(join(directory, name), { recursive: true })
    const file = join(directory, `${name}.hcl`)
    const common = `name = "${name}"\ndata_dir = "${directory}/${name}"\nports { http = 0 }\nacl { enabled = false }\n`
    writeFileSync(file, `${common}nats { servers = ["${nats.url}"] }\n${role} { enabled = true }\n`)
    return startAgent(t, ['-config', file])
  }
  const logOf = (name: string, id: string) => {
    const allocations = join(directory, name, 'alloc')
    mkdirSync(allocations, { recursive: true })
    return join(makeAllocation(allocations, id, { JobID: 'shop' }), 'alloc/logs/web.stdout.0')
  }
  const [server, first, second] = [await start('s1', 'server'), logOf('h1', FIRST), logOf('h2', SECOND)]
  await start('h1', 'client')
  const dying = await start('h2', 'client')
  await eventually(async () => {
    const answer = await fetch(`${server.url}/v1/job/shop/allocations`)
    return ((await answer.json()) as unknown[]).length === 2
  }, 'the server knows both')
  const abort = new AbortController()
  t.after(() => abort.abort())
  const followed = await fetch(`${server.url}/v1/job/shop/logs?follow&grep=error`, { signal: abort.signal })
  let text = ''
  const read = async () => {
    for await (const bytes of followed.body ?? []) text += Buffer.from(bytes).toString()
  }
  void read().catch(() => undefined)
  const lines = () =>
    [...text.matchAll(/"Data":"([^"]*)"[^}]*"AllocID":"(..)/g)].map(([, data = '', id]) => `${id} ${atob(data).trim()}`)
  await eventually(
    () => text.includes('{}'),
    () => `it is followed: ${text}`,
  )
  appendFileSync(first, 'all is well\nerror on one\n')
  appendFileSync(second, 'error on two\nnothing else\n')
  await eventually(
    () => lines().length === 2,
    () => `both lines are received: ${text}`,
  )
  assert.deepEqual(lines().sort(), ['0a error on one', '0b error on two'])
  dying.child.kill('SIGKILL')
  await eventually(
    () => text.includes('"log failed"'),
    () => `the failure is reported: ${text}`,
  )
  assert.match(text, new RegExp(`"FileEvent":"log failed","Error":"504 [^"]*","AllocID":"${SECOND}"`))
  appendFileSync(first, 'another error\n')
  await eventually(() => lines().includes('0a another error'))
})
