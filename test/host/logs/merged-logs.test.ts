/** All logs of an allocation in one stream. */
import assert from 'node:assert/strict'
import { appendFileSync, truncateSync, writeFileSync } from 'node:fs'
import { test } from 'node:test'
import { ask, take, TailClient } from '../../helpers/tail-client.ts'
import { startTailHost, taskOf } from '../../helpers/tail-host.ts'

/** What came of each log file. */
function byFile(client: TailClient): Record<string, string> {
  const files: Record<string, string> = {}
  for (const item of client.items) {
    if (item.kind === 'data') files[item.file.slice(11)] = (files[item.file.slice(11)] ?? '') + item.data.toString()
  }
  return files
}

test('the cursor of another log after a truncation resumes at the start of the truncated file', async (t) => {
  const host = await startTailHost(t)
  writeFileSync(host.log(0), 'before')
  writeFileSync(host.log(0, 'stderr'), 'e')
  const client = new TailClient(host.logsUrl({ task: '*', type: '*', follow: true, cursor: '' }))
  await client.until(({ bytes }) => bytes === 7)
  truncateSync(host.log(0), 0)
  await client.until(({ events }) => events.length === 1)
  appendFileSync(host.log(0, 'stderr'), '+')
  await client.until(({ bytes }) => bytes === 8)
  client.destroy()
  appendFileSync(host.log(0), 'after')
  const again = await ask(host.logsUrl({ task: '*', type: '*', cursor: client.cursor ?? '' }))
  assert.deepEqual([byFile(again), again.events], [{ 'web.stdout.0': 'after' }, []])
})

test('all logs of an allocation are one resumable stream', async (t) => {
  const host = await startTailHost(t)
  const tasks = ['web', 'db', 'new']
  host.change({ tasks: new Map(tasks.map((name) => [name, taskOf(name)])) })
  writeFileSync(host.log(0), 'w0')
  writeFileSync(host.log(1), 'w1')
  writeFileSync(host.log(0, 'stderr'), 'we')
  writeFileSync(`${host.logs}/db.stdout.4`, 'd4')
  const all = { 'web.stdout.0': 'w0', 'web.stdout.1': 'w1', 'web.stderr.0': 'we', 'db.stdout.4': 'd4' }
  assert.deepEqual(byFile(await ask(host.logsUrl({ task: '*', type: '*' }))), all)
  const client = new TailClient(host.logsUrl({ task: '*', type: '*', follow: true, cursor: '' }))
  await client.until(({ bytes }) => bytes === 8)
  writeFileSync(`${host.logs}/new.stdout.0`, 'n0')
  await client.until(({ bytes }) => bytes === 10)
  client.destroy()
  assert.deepEqual(byFile(client), { ...all, 'new.stdout.0': 'n0' })
  appendFileSync(host.log(0, 'stderr'), '+')
  appendFileSync(`${host.logs}/new.stdout.0`, '+')
  writeFileSync(`${host.logs}/new.stderr.0`, 'ne')
  for (const follow of [false, true]) {
    const url = host.logsUrl({ task: '*', type: '*', follow, cursor: client.cursor ?? '' })
    const again = await take(url, ({ bytes }) => bytes >= 4)
    assert.deepEqual(byFile(again), { 'web.stderr.0': '+', 'new.stdout.0': '+', 'new.stderr.0': 'ne' })
  }
  const tail = await ask(host.logsUrl({ task: '*', type: 'stdout', tail_lines: 0 }))
  assert.equal(tail.bytes, 0)
})
