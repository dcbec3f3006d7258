/**
 * A process with a barrier, killed at random times of mixed operations: acknowledged commits are complete, others complete or absent, and
 * every checksum is valid. `CRASH_OPERATIONS=10000 OUTPOST_SEED=…` for a long run.
 */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { closeSync, openSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { Barrier } from '../../../src/storage/barrier/barrier.ts'
import { checkDatabase } from '../../../src/storage/store/database-check.ts'
import { SqliteStore } from '../../../src/storage/store/store.ts'
import { CrashModel } from '../../helpers/crash-model.ts'
import { Random } from '../../helpers/frames.ts'
import { eventually } from '../../helpers/eventually.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

const OPERATIONS = Number(process.env['CRASH_OPERATIONS'] ?? 200)
const SEED = Number(process.env['OUTPOST_SEED'] ?? 1)
const WORKERS = 64
/** Before a kill. */
const ANSWERS_MAX = 400

test('a killed process loses no acknowledged commit, and each commit is atomic', async (t) => {
  const path = join(temporaryDirectory(t), 'secrets.db')
  const rootKey = randomBytes(32)
  const first = await SqliteStore.open(path)
  await new Barrier(first).initialise(rootKey)
  await first.close()
  const random = new Random(SEED)
  const model = new CrashModel()
  let runs = 0
  for (; model.acknowledged < OPERATIONS || runs < 3; runs++) {
    await killedRun(path, rootKey, runs, model, random)
    assert.deepEqual(checkDatabase(path), [], `after run ${runs}`)
    const store = await SqliteStore.open(path)
    try {
      const barrier = new Barrier(store)
      barrier.unseal(rootKey)
      model.verify(
        (prefix) => new Map(barrier.paths(prefix).map((name) => [name, barrier.get(name)?.toString() ?? ''])),
      )
    } finally {
      await store.close()
    }
  }
  t.diagnostic(`${model.acknowledged} operations in ${runs} runs, OUTPOST_SEED=${SEED}`)
})

async function killedRun(path: string, rootKey: Buffer, run: number, model: CrashModel, random: Random): Promise<void> {
  const file = join(import.meta.dirname, 'crash-worker.ts')
  // Into a file: a pipe may be full, and what is in it may be lost with the process.
  const journal = `${path}.journal-${run}`
  const fd = openSync(journal, 'w')
  const child = spawn(process.execPath, [file, path, rootKey.toString('hex'), String(WORKERS), String(run)], {
    stdio: ['ignore', fd, 'pipe'],
  })
  closeSync(fd)
  const closed = once(child, 'close')
  let complaint = ''
  child.stderr?.setEncoding('utf8').on('data', (text: string) => (complaint += text))
  // At any moment: before the first answer, too, now and then.
  const said = () => readFileSync(journal, 'utf8')
  await eventually(() => said().length > 0)
  // Otherwise after so many answers and not after a time, in which a busy machine gives too few of them.
  if (random.between(0, 4) > 0) {
    const answers = random.between(1, ANSWERS_MAX)
    await eventually(() => said().split('done').length > answers)
  }
  await delay(random.between(0, 10))
  child.kill('SIGKILL')
  await closed
  assert.equal(complaint, '')
  model.hear(said())
}
