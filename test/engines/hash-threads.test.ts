/** The threads that hash passwords. */
import assert from 'node:assert/strict'
import { scryptSync } from 'node:crypto'
import { readdirSync } from 'node:fs'
import { getPriority } from 'node:os'
import { test } from 'node:test'
import { derivedKey } from '../../src/engines/userpass/hash-threads.ts'

const SALT = Buffer.from('salt of a test')
const order = (password: string, cost = 1024) => {
  return { password, salt: SALT, keyBytes: 32, cost, blockSize: 8, parallelization: 1, memoryMax: 16 << 20 }
}
const expected = (password: string) => scryptSync(password, SALT, 32, { cost: 1024 })

/** Priorities of the threads of this process that are lower than its own. */
function lowered(): number[] {
  const own = getPriority()
  const all = readdirSync('/proc/self/task').map((thread) => getPriority(Number(thread)))
  return all.filter((priority) => priority > own)
}

test('keys are those of scrypt, side by side and one after the other, on threads of a lower priority', async () => {
  assert.deepEqual(await Promise.all([derivedKey(order('a')), derivedKey(order('b'))]), [expected('a'), expected('b')])
  assert.deepEqual(await derivedKey(order('c')), expected('c'))
  const own = getPriority()
  assert.deepEqual(new Set(lowered()), new Set([Math.min(19, own + 10)]))
  assert.equal(lowered().length, 2, 'the third password needed no third thread')
})

test('what cannot be hashed is a fault, and the thread goes on', async () => {
  await assert.rejects(derivedKey(order('a', 1000)), /a password could not be hashed/)
  const threads = lowered().length
  assert.deepEqual(await derivedKey(order('d')), expected('d'))
  assert.equal(lowered().length, threads)
})
