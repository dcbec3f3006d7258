/** How streams end: with the task, with what cannot be opened in the way, and without leaving anything open. */
import assert from 'node:assert/strict'
import { appendFileSync, mkdirSync, readdirSync, readlinkSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { test } from 'node:test'
import { TailClient } from '../../helpers/tail-client.ts'
import { startTailHost, taskOf } from '../../helpers/tail-host.ts'
import { eventually } from '../../helpers/eventually.ts'

const DEAD = { tasks: new Map([['web', taskOf('web', { state: 'dead' })]]) }

/** Descriptors of this process that lead below a directory. */
function descriptorsBelow(directory: string): number {
  return readdirSync('/proc/self/fd').filter((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`).startsWith(directory)
    } catch {
      return false // closed since it was listed
    }
  }).length
}

test('a follow of a dead task ends even if a later name of its log is not a readable file', {
  timeout: 280_000,
}, async (t) => {
  const host = await startTailHost(t)
  host.change(DEAD)
  writeFileSync(host.log(0), 'zero\n')
  mkdirSync(host.log(1))
  writeFileSync(host.log(2), 'two\n')
  mkdirSync(host.log(3))
  for (const query of [{}, { task: '*', type: '*' }, { grep: 'o' }]) {
    const client = new TailClient(host.logsUrl({ follow: true, end_when_done: true, ...query }))
    await client.until(({ ended }) => ended !== undefined)
    assert.deepEqual([client.ended, client.text], ['clean', 'zero\ntwo\n'], JSON.stringify(query))
  }
  await eventually(() => host.followers.count === 0)
})

test('a file created just before the end of the task is sent before the stream ends', async (t) => {
  const host = await startTailHost(t)
  for (let round = 0; round < 20; round++) {
    host.change({ tasks: new Map([['web', taskOf('web')]]) })
    writeFileSync(host.log(round * 2), `${round * 2}\n`)
    const url = host.logsUrl({ follow: true, end_when_done: true, tail_lines: 1 })
    const client = new TailClient(url)
    await client.until(({ bytes }) => bytes > 0)
    // In one turn of the event loop: no watch has reported the file when the end of the task is detected.
    writeFileSync(host.log(round * 2 + 1), 'last words\n')
    host.change(DEAD)
    await client.until(({ ended }) => ended !== undefined)
    assert.deepEqual([client.ended, client.text], ['clean', `${round * 2}\nlast words\n`])
  }
})

test('a client that reads only the head leaves no file open', async (t) => {
  const host = await startTailHost(t)
  writeFileSync(host.log(0), 'line\n')
  for (const url of [
    host.streamUrl('alloc/logs/web.stdout.0', { follow: false }),
    host.streamUrl('alloc/logs/web.stdout.0', { follow: true }),
    host.streamUrl('alloc/logs/web.stdout.0', { follow: false, tail_lines: 1, grep: 'l' }),
    host.logsUrl({}),
    host.logsUrl({ task: '*', cursor: '' }),
    host.logsUrl({ follow: true, since: '1h' }),
  ]) {
    for (let count = 0; count < 5; count++) {
      const status = await new Promise((resolve, reject) => {
        request(url, { method: 'HEAD', agent: false }, (response) => {
          response.resume()
          resolve(response.statusCode)
        })
          .on('error', reject)
          .end()
      })
      assert.equal(status, 200)
    }
  }
  await eventually(() => host.followers.count === 0 && descriptorsBelow(host.directory) === 0)
})

test('a stream with end_when_done ends when its task is dead', async (t) => {
  const host = await startTailHost(t)
  host.change({
    tasks: new Map([
      ['web', taskOf('web')],
      ['db', taskOf('db')],
    ]),
  })
  writeFileSync(host.log(0), 'one ')
  const urls = [
    host.logsUrl({ follow: true, end_when_done: true }),
    host.logsUrl({ follow: true, end_when_done: true, plain: true }),
    host.logsUrl({ follow: true, end_when_done: true, task: '*', type: '*' }),
    host.logsUrl({ follow: true }),
    host.streamUrl('alloc/logs/web.stdout.0', { end_when_done: true }),
  ]
  const clients = urls.map((url) => new TailClient(url, { framed: !url.includes('plain=true') }))
  for (const client of clients) await client.until(({ bytes }) => bytes === 4)
  appendFileSync(host.log(0), 'two ')
  const dead = taskOf('web', { state: 'dead', finishedAtMs: 2 })
  host.change({
    tasks: new Map([
      ['web', dead],
      ['db', taskOf('db')],
    ]),
  })
  for (const client of clients.slice(0, 2)) {
    await client.until(({ ended }) => ended !== undefined)
    assert.equal(client.ended, 'clean')
    assert.equal(client.text, 'one two ')
  }
  assert.ok(clients.slice(2).every(({ ended }) => ended === undefined))
  host.change({
    tasks: new Map([
      ['web', dead],
      ['db', { ...dead, name: 'db' }],
    ]),
  })
  for (const at of [2, 4]) {
    await clients[at]?.until(({ ended }) => ended === 'clean')
    assert.equal(clients[at]?.text, 'one two ')
  }
  assert.equal(clients[3]?.ended, undefined)
  clients[3]?.destroy()
})
