/** Signs of life: the first at once, then each second, idle and under load; a plain follow has its head at once. */
import assert from 'node:assert/strict'
import { appendFileSync, writeFileSync } from 'node:fs'
import { test } from 'node:test'
import { TailClient } from '../../helpers/tail-client.ts'
import { startTailHost } from '../../helpers/tail-host.ts'

/** Far more than it takes here, far less than the one second it must not wait for. */
const AT_ONCE_MS = 800

for (const load of [false, true]) {
  test(`heartbeats are sent at once and every second, ${load ? 'under load' : 'idle'}`, async (t) => {
    const host = await startTailHost(t)
    writeFileSync(host.log(0), 'x\n')
    const clients = [
      new TailClient(host.logsUrl({ follow: true })),
      new TailClient(host.streamUrl('alloc/logs/web.stdout.0')),
    ]
    const writer = load ? setInterval(() => appendFileSync(host.log(0), 'y'.repeat(5000)), 5) : undefined
    try {
      for (const client of clients) {
        await client.until(() => client.beatsMs.length >= 5)
        const [first = 0, ...later] = client.beatsMs
        const firstMs = first - (client.headAtMs ?? 0)
        assert.ok(firstMs < AT_ONCE_MS, `first ${firstMs} ms after the head`)
        // Never more often than promised; how late one may be is for the machine to say.
        const gaps = later.map((ms, index) => ms - (client.beatsMs[index] ?? 0))
        assert.ok(
          gaps.every((gap) => gap > 450),
          `gaps ${gaps.join(', ')}`,
        )
        const mean = ((later.at(-1) ?? 0) - first) / later.length
        assert.ok(mean > 900 && Math.min(...gaps) < 1900, `gaps ${gaps.join(', ')}`)
        assert.equal(client.ended, undefined)
        client.destroy()
      }
    } finally {
      clearInterval(writer)
    }
  })
}

test('a follow of a silent log gets its head at once, framed ones with a heartbeat', async (t) => {
  const host = await startTailHost(t)
  writeFileSync(host.log(0), '')
  for (const plain of [true, false]) {
    const tookMs: number[] = []
    // One of several: each may meet a moment in which the machine does something else.
    for (let tries = 0; tries < 5; tries++) {
      const startMs = performance.now()
      const client = await new TailClient(host.logsUrl({ follow: true, plain }), { framed: !plain }).open()
      tookMs.push((client.headAtMs ?? Number.POSITIVE_INFINITY) - startMs)
      assert.equal(client.status, 200)
      assert.equal(client.response?.headers['content-type'], plain ? 'text/plain' : 'application/json')
      client.destroy()
    }
    assert.ok(Math.min(...tookMs) < AT_ONCE_MS, `${tookMs.join(', ')} ms`)
  }
})
