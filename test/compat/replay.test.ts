/**
 * Replays recorded single requests against a real agent. An answer must be the recorded one, or differ in a way that the
 * table of differences lists and docs/compatibility.md explains.
 *
 * Requests that we refuse because a parameter is missing are sent a second time with it, so that what they were recorded
 * for is compared as well.
 */
import assert from 'node:assert/strict'
import { setTimeout as delay } from 'node:timers/promises'
import { after, before, describe, test } from 'node:test'
import { send } from './call.ts'
import { comparableActual, comparableRecorded } from './comparable.ts'
import { aclDifferences } from './differences-acl.ts'
import { lifecycleDifferences } from './differences-lifecycle.ts'
import { streamDifferences } from './differences-streams.ts'
import { completed, unaryDifferences } from './differences-unary.ts'
import { type CompatHost, startHost } from './host.ts'
import { explained, Judge, unexplained } from './judge.ts'
import { recorded, type RecordedRow } from './recording.ts'
import { buildTree, NODE, openSocket } from './unary-tree.ts'

describe('single requests respond as recorded', () => {
  const judge = new Judge(unaryDifferences)
  let host: CompatHost
  let closeSocket: () => void

  before(async () => {
    host = await startHost(NODE, buildTree)
    closeSocket = await openSocket(host.allocDir)
    // The first sample of the host's statistics needs two looks.
    await delay(1500)
  })
  after(async () => {
    closeSocket()
    await host.stop()
    process.stdout.write(`${judge.summary()}\n`)
  })

  for (const row of recorded('unary').flatMap(withCompleted)) {
    test(row.name, async () => {
      judge.check(row, comparableRecorded(row), comparableActual(await send(host.url, row), row))
    })
  }

  test('every listed difference still occurs and is explained', () => {
    assert.deepEqual(judge.stale(), [])
    assert.deepEqual(unexplained(unaryDifferences), [])
  })

  test('every explanation belongs to a listed difference', () => {
    const tables = [...unaryDifferences, ...streamDifferences, ...lifecycleDifferences, ...aclDifferences]
    const used = new Set(tables.map(({ because }) => because))
    assert.deepEqual(
      explained().filter((heading) => !used.has(heading)),
      [],
    )
  })
})

/** The row as recorded, and with the parameters that we require where it lacks them. */
function withCompleted(row: RecordedRow): RecordedRow[] {
  const full = completed(row)
  return full === row || row.answer?.text?.includes('parsing ""') ? [row] : [row, full]
}
