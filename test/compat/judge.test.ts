/** What the comparison itself must refuse: an unlisted difference, one that has gone, and a stale entry. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Comparable } from './comparable.ts'
import { type Difference, Judge } from './judge.ts'
import { status } from './turns.ts'

const row = { name: 'unary/x', method: 'GET', path: '/v1/x' }
const answer = (code: number): Comparable => ({ status: code, headers: [], body: '', end: 'ended' })
const listed: Difference = { because: 'a reason', rows: /x$/, turn: status(404) }

test('an unlisted difference fails', () => {
  const judge = new Judge([])
  judge.check(row, answer(500), answer(500))
  assert.throws(() => judge.check(row, answer(500), answer(404)), /unary\/x/)
})

test('a listed difference that does not occur fails', () => {
  const judge = new Judge([listed])
  judge.check(row, answer(500), answer(404))
  assert.throws(() => judge.check(row, answer(500), answer(500)), /a reason/)
  assert.deepEqual(judge.stale(), [])
})

test('an exemption that changes nothing is stale', () => {
  const judge = new Judge([listed])
  judge.check(row, answer(404), answer(404))
  assert.deepEqual(judge.stale(), ['a reason: /x$/'])
})
