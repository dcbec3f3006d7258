/** Which versions of a secret the web interface compares, and what it says about changes by others. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { periodsOf, versionAt, versionBefore } from '../../ui/views/secrets/secret/versions.ts'

function version(number: number, created: string, more: { deletion_time?: string; destroyed?: boolean } = {}) {
  return { version: number, created_time: created, deletion_time: '', destroyed: false, ...more }
}

const metadata = {
  versions: [
    version(5, '2026-03-10T09:00:00Z'),
    version(4, '2026-03-09T15:00:00Z'),
    version(3, '2026-03-09T10:00:00Z', { destroyed: true }),
    version(2, '2026-03-08T12:00:00Z', { deletion_time: '2026-03-08T13:00:00Z' }),
    version(1, '2026-03-01T12:00:00Z', { deletion_time: '2999-01-01T00:00:00Z' }),
  ],
}

test('a version is compared with the latest one before it that can be read', () => {
  assert.equal(versionBefore(metadata, 5), 4)
  assert.equal(versionBefore(metadata, 4), 1)
  assert.equal(versionBefore(metadata, 1), 0)
  assert.equal(versionBefore(undefined, 3), 0)
})

test('the version of a time was the current one then', () => {
  assert.equal(versionAt(metadata, Date.parse('2026-03-09T16:00:00Z')), 4)
  assert.equal(versionAt(metadata, Date.parse('2026-03-09T00:00:00Z')), 1)
  assert.equal(versionAt(metadata, Date.parse('2026-02-01T00:00:00Z')), 0)
})

test('yesterday ends where today begins, also when the clock changes', () => {
  const now = new Date(2026, 2, 30, 15, 30)
  const [today, yesterday, week] = periodsOf(now)
  assert.equal(today?.fromMs, new Date(2026, 2, 30).getTime())
  assert.equal(yesterday?.fromMs, new Date(2026, 2, 29).getTime())
  assert.equal(yesterday?.toMs, today?.fromMs)
  assert.equal(now.getTime() - (week?.fromMs ?? 0), 7 * 86_400_000)
})
