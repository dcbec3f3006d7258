import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Mutex } from '../../src/platform/mutex.ts'

test('work runs one after the other in the order of the calls', async () => {
  const mutex = new Mutex()
  const steps: string[] = []
  const first = Promise.withResolvers<string>()
  const one = mutex.runExclusive(async () => {
    steps.push('one begins')
    const result = await first.promise
    steps.push('one ends')
    return result
  })
  const two = mutex.runExclusive(async () => steps.push('two'))
  const idle = mutex.whenIdle().then(() => steps.push('idle'))
  first.resolve('result')
  assert.equal(await one, 'result')
  await two
  await idle
  assert.deepEqual(steps, ['one begins', 'one ends', 'two', 'idle'])
})

test('a failure rejects for its caller only', async () => {
  const mutex = new Mutex()
  const failed = mutex.runExclusive(() => Promise.reject(new Error('broken')))
  const next = mutex.runExclusive(async () => 'works')
  await assert.rejects(failed, /^Error: broken$/)
  assert.equal(await next, 'works')
  await mutex.whenIdle()
})
