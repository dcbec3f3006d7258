/** Secrets that are gathered into one commit: what counts while they wait, when it fails, and when something else writes them. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { SecretGroupCommit } from '../../../src/secrets/mfa/secret-group-commit.ts'
import type { TotpMethod } from '../../../src/secrets/mfa/mfa-method.ts'
import { type MfaSecret, newSecret } from '../../../src/secrets/mfa/mfa-secret.ts'

const METHOD: TotpMethod = {
  id: 'm',
  position: 0,
  name: 'm',
  issuer: 'test',
  periodSeconds: 30,
  keyBytes: 20,
  qrPixels: 0,
  algorithm: 'SHA1',
  digits: 6,
  skew: 1,
  attemptsMax: 5,
  recoveryCodes: 0,
  needsConfirmation: false,
}

const secretOf = (failures: number): MfaSecret => ({ ...newSecret(METHOD, 0).secret, failures })
const one = (path: string, failures: number) => new Map([[path, secretOf(failures)]])

function world() {
  const commits: { readonly counts: Record<string, number>; readonly done: () => void; readonly fail: () => void }[] =
    []
  const gathered = new SecretGroupCommit((secrets) => {
    const { promise, reject, resolve } = Promise.withResolvers<void>()
    const counts = Object.fromEntries([...secrets].map(([path, { failures }]) => [path, failures]))
    commits.push({ counts, done: resolve, fail: () => reject(new Error('the disk is full')) })
    return promise
  })
  const pending = (path: string) => gathered.pending(path)?.failures
  return { commits, gathered, pending }
}

test('the first change is committed immediately, later ones together, and pending changes are effective', async () => {
  const { commits, gathered, pending } = world()
  const first = gathered.add(one('a', 1))
  assert.deepEqual(commits[0]?.counts, { a: 1 })
  const others = [gathered.add(one('b', 1)), gathered.add(one('a', 2)), gathered.add(one('b', 2))]
  assert.deepEqual([commits.length, pending('a'), pending('b')], [1, 2, 2])
  commits[0]?.done()
  await first
  assert.deepEqual(commits[1]?.counts, { a: 2, b: 2 })
  assert.equal(pending('a'), undefined, 'the entries tell what is queued')
  commits[1]?.done()
  await Promise.all(others)
  assert.deepEqual([commits.length, pending('a'), pending('b')], [2, 2, 2])
})

test('a failed commit rejects each of its changes and caches none of them', async () => {
  const { commits, gathered, pending } = world()
  const first = gathered.add(one('a', 1))
  const others = [gathered.add(one('a', 2)), gathered.add(one('b', 1))]
  commits[0]?.done()
  await first
  commits[1]?.fail()
  for (const { status } of await Promise.allSettled(others)) assert.equal(status, 'rejected')
  assert.deepEqual([pending('a'), pending('b')], [undefined, undefined])
  const next = gathered.add(one('a', 3))
  assert.equal(commits.length, 3)
  commits[2]?.done()
  await next
})

test('an entry that another writer changes is removed from the cache in every state', async () => {
  const { commits, gathered, pending } = world()
  const queued = gathered.add(one('queued', 1))
  const waiting = gathered.add(one('waiting', 1))
  gathered.forget(['queued', 'waiting'])
  assert.equal(commits.length, 2, 'what waits is queued ahead of it')
  for (const { done } of commits) done()
  await Promise.all([queued, waiting])
  assert.deepEqual([pending('queued'), pending('waiting')], [undefined, undefined])
  const durable = gathered.add(one('durable', 1))
  commits[2]?.done()
  await durable
  assert.equal(pending('durable'), 1)
  gathered.forget(['durable'])
  assert.equal(pending('durable'), undefined)
  const all = gathered.add(one('all', 1))
  gathered.forgetAll()
  commits[3]?.done()
  await all
  assert.equal(pending('all'), undefined)
})
