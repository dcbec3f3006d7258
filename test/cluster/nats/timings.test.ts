/** Shortened times of a cluster for tests. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { DEFAULT_TIMINGS, timingsOf } from '../../../src/cluster/nats/timings.ts'
import { startAgent, workDirectory, writeConfig, spawnAgent } from '../../helpers/agent-process.ts'

test('OUTPOST_TIMINGS shortens times, never lengthens them, and refuses unknown names', () => {
  assert.deepEqual(timingsOf(undefined), DEFAULT_TIMINGS)
  assert.deepEqual(timingsOf(''), DEFAULT_TIMINGS)
  assert.deepEqual(timingsOf('{"heartbeatMs":100}'), { ...DEFAULT_TIMINGS, heartbeatMs: 100 })
  for (const text of [
    '{"heartbeatMs":10001}',
    '{"heartbeatMs":0}',
    '{"heartbeatMs":"9"}',
    '{"heartbeatMs":null}',
    '{"silenceTimeoutMs":1e99}',
  ]) {
    assert.throws(() => timingsOf(text), /OUTPOST_TIMINGS: \w+ must be a number from 1 to \d+/, text)
  }
  assert.throws(() => timingsOf('{"__proto__":1}'), /unknown name __proto__/)
  assert.throws(() => timingsOf('{"assertionTtlMs":1}'), /unknown name assertionTtlMs/)
  assert.throws(() => timingsOf('{"constructor":1}'), /unknown name constructor/)
  for (const text of ['fast', '7', 'null', '"x"']) assert.throws(() => timingsOf(text), /must be a JSON object/, text)
})

test('a process logs that its times are shortened, and does not start with invalid ones', async (t) => {
  const directory = workDirectory(t)
  const config = writeConfig(directory, 'acl { enabled = false }\nserver { enabled = true }')
  const agent = await startAgent(t, ['-config', config], { env: { OUTPOST_TIMINGS: '{"heartbeatMs":1000}' } })
  assert.match(agent.stderr(), /OUTPOST_TIMINGS is set, which is for tests only: cluster timeouts are changed/)
  agent.child.kill('SIGTERM')
  assert.equal(await agent.ended, 0)
  const wrong = spawnAgent(t, ['-config', config], { env: { OUTPOST_TIMINGS: '{"heartbeatMs":-1}' } })
  assert.equal(await wrong.ended, 1)
  assert.match(wrong.stderr(), /OUTPOST_TIMINGS: heartbeatMs must be a number from 1 to 10000/)
})
