/**
 * Replays the recorded streams that follow a file or a log: the same files, changed in the same way at the same moments,
 * all at once, since that is also how they were recorded. What a stream shows is compared as runs of data with the
 * offset at their end, and events; `frames.ts` checks that every single offset is exact.
 */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { runningMs, runningUntil } from '../helpers/running-clock.ts'
import { type Answer, send } from './call.ts'
import { comparableActual, comparableRecorded } from './comparable.ts'
import { streamDifferences } from './differences-streams.ts'
import { completed } from './differences-unary.ts'
import { type CompatHost, patterned, put, startHost, writeManifest } from './host.ts'
import { Judge, unexplained } from './judge.ts'
import { splitFrames } from './frames.ts'
import { recorded, type RecordedRow } from './recording.ts'
import { ALLOC, DATA, LOGS, NODE, type Scenario } from './stream-scenarios.ts'

/** A stream that ended in the recording is given this long to end here. */
const END_MS = 3500

describe('followed files and logs respond as recorded', { concurrency: true }, () => {
  const judge = new Judge(streamDifferences)
  const rows = recorded('streams')
  let host: CompatHost

  before(async () => {
    host = await startHost(NODE, (allocDir) => {
      const tasks = Object.fromEntries(Array.from({ length: 12 }, (_, n) => [`q${n}`, 'running' as const]))
      writeManifest(allocDir, ALLOC, tasks)
    })
  })
  after(async () => {
    await host.stop()
    process.stdout.write(`${judge.summary()}\n`)
    assert.deepEqual(judge.stale(), [])
  })

  for (const [folder, kind, scenarios] of [
    ['alloc/data', 'stream-follow', DATA],
    ['alloc/logs', 'logs-follow', LOGS],
  ] as const) {
    for (const scenario of scenarios) {
      test(`${kind}: ${scenario.rows.join(', ')}`, async () => {
        const path = join(host.allocDir, ALLOC, folder)
        for (const [name, content] of Object.entries(scenario.files)) put(join(path, name), content)
        const watched = scenario.rows.map((name) => rowOf(rows, `streams/${kind}/${name}`))
        const streams = watched.map((row) => replay(host.url, row, judge))
        // Nothing changes before all of them have their heads, so a busy machine does not change what they see.
        await Promise.race([Promise.all(streams.map(({ head }) => head)), Promise.all(streams.map(({ done }) => done))])
        const [contents] = await Promise.all([Promise.all(streams.map(({ done }) => done)), play(scenario, path)])
        if (/bytes/.test(scenario.rows.join())) checkPattern(contents[0])
      })
    }
  }

  test('every recorded stream is replayed, and every difference is explained', () => {
    const named = DATA.flatMap((one) => one.rows.map((name) => `streams/stream-follow/${name}`))
    named.push(...LOGS.flatMap((one) => one.rows.map((name) => `streams/logs-follow/${name}`)))
    assert.deepEqual(named.sort(), rows.map(({ name }) => name).sort())
    assert.deepEqual(unexplained(streamDifferences), [])
  })
})

function rowOf(rows: readonly RecordedRow[], name: string): RecordedRow {
  const row = rows.find((each) => each.name === name)
  assert.ok(row, name)
  return row
}

interface Replay {
  readonly head: Promise<void>
  readonly done: Promise<Answer>
}

/** Sends the request as it was, and again with the offset that we require where it had none; `head` is of the latter. */
function replay(url: string, row: RecordedRow, judge: Judge): Replay {
  const { promise: head, resolve: onHead } = Promise.withResolvers<void>()
  return { head, done: exchange(url, row, judge, onHead) }
}

async function exchange(url: string, row: RecordedRow, judge: Judge, onHead: () => void): Promise<Answer> {
  const then = comparableRecorded(row)
  // A log that ended in the recording stays open here; what it shows until then is compared.
  const openMs = row.answer?.openMs ?? END_MS
  const full = completed(row)
  if (full !== row) judge.check(row, then, comparableActual(await send(url, row), row))
  const answer = await send(url, full, openMs, onHead)
  judge.check(full, then, comparableActual(answer, full))
  return answer
}

async function play(scenario: Scenario, path: string): Promise<void> {
  const startMs = runningMs()
  for (const [atMs, act] of scenario.steps) {
    await runningUntil(startMs + atMs)
    act(path)
  }
}

/** Long bodies are not in the recordings; what they held is known. */
function checkPattern(answer: Answer | undefined): void {
  assert.ok(answer)
  const { frames } = splitFrames(answer.body.toString())
  const data = Buffer.concat(frames.map((frame) => frame.data ?? Buffer.alloc(0)))
  assert.ok(data.equals(patterned(data.length)))
  assert.ok(frames.every(({ size }) => size <= 65_536))
}
