/** A store whose process is killed at random times: acknowledged commits are there, and each commit is atomic. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { checkDatabase } from '../../../src/storage/store/database-check.ts'
import { SqliteStore } from '../../../src/storage/store/store.ts'
import { Random } from '../../helpers/frames.ts'
import { eventually } from '../../helpers/eventually.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

const RUNS = Number(process.env['CRASH_RUNS'] ?? 2)
const SEED = Number(process.env['OUTPOST_SEED'] ?? 3)
const WRITERS = 8

test('a killed process loses no acknowledged commit', async (t) => {
  const path = join(temporaryDirectory(t), 'secrets.db')
  t.diagnostic(`OUTPOST_SEED=${SEED}`)
  const random = new Random(SEED)
  for (let run = 0; run < RUNS; run++) {
    // Into a file: a pipe may be full, and what is in it may be lost with the process.
    const journal = `${path}.journal-${run}`
    const fd = openSync(journal, 'w')
    const writer = join(import.meta.dirname, 'crash-writer.ts')
    const child = spawn(process.execPath, [writer, path, String(WRITERS), String(run)], {
      stdio: ['ignore', fd, 'pipe'],
    })
    closeSync(fd)
    let errors = ''
    child.stderr?.on('data', (bytes: Buffer) => (errors += bytes.toString()))
    const closed = once(child, 'close')
    await eventually(() => readFileSync(journal).length > 0)
    await delay(random.between(0, 300))
    child.kill('SIGKILL')
    assert.deepEqual(await closed, [null, 'SIGKILL'], `it ended by itself: ${errors}`)
    await compare(path, run, readFileSync(journal, 'utf8'))
  }
})

async function compare(path: string, run: number, said: string): Promise<void> {
  assert.deepEqual(checkDatabase(path), [])
  const last = new Map<number, number>()
  for (const line of said.split('\n').slice(0, -1)) {
    const [writer, at] = line.split(' ').map(Number)
    last.set(writer ?? 0, at ?? 0)
  }
  const store = await SqliteStore.open(path)
  for (const [writer, acknowledged] of last) {
    const [a, b] = ['a', 'b'].map((name) => Buffer.from(store.get(`w${writer}/${name}`)?.value ?? []).toString())
    assert.equal(a, b)
    const [ofRun, , at] = (a ?? '').split(' ').map(Number)
    assert.equal(ofRun, run)
    assert.ok((at ?? -1) >= acknowledged, `writer ${writer}: ${at} is there, ${acknowledged} was acknowledged`)
    assert.ok((at ?? 0) <= acknowledged + 1)
  }
  await store.close()
}
