/**
 * A process with versioned secrets is killed in the middle of many operations, again and again. What it leaves must be
 * what the model has after some of the operations that were sent, in their order: all that were answered, and perhaps
 * some more, none of them in part.
 */
import assert from 'node:assert/strict'
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { test } from 'node:test'
import { isDeepStrictEqual } from 'node:util'
import { Random } from '../../helpers/frames.ts'
import { KvModel, type KvOperation } from '../../helpers/kv-model.ts'
import { isRead, type KvRequest, randomOperation, requestOf } from '../../helpers/kv-operations.ts'

const KILLS = Number(process.env['OUTPOST_MODEL_KILLS'] ?? 4)
const SEED = Number(process.env['OUTPOST_MODEL_SEED'] ?? Date.now() % 2 ** 31)

interface Answer {
  readonly id: number
  readonly status: number
  readonly text: string
}

class Crasher {
  readonly #process: ChildProcessWithoutNullStreams
  readonly #waiting = new Map<number, (answer: Answer | undefined) => void>()
  readonly ready: Promise<string>
  #next = 0

  constructor(directory: string, nowMs: number, keys: string | undefined) {
    const script = join(import.meta.dirname, 'kv-crasher.ts')
    const args = [script, directory, String(nowMs), ...(keys === undefined ? [] : [keys])]
    this.#process = spawn(process.execPath, args, { stdio: 'pipe' })
    this.#process.stderr.pipe(process.stderr)
    this.#process.stdin.on('error', () => undefined)
    const lines = createInterface({ input: this.#process.stdout })
    this.ready = once(lines, 'line').then(([line]) => {
      lines.on('line', (text) => this.#hear(text))
      return String(line)
    })
    this.#process.on('exit', () => {
      for (const tell of this.#waiting.values()) tell(undefined)
    })
  }

  #hear(line: string): void {
    let answer: Answer
    try {
      answer = JSON.parse(line) as Answer
    } catch {
      return // Cut by the kill: never said.
    }
    this.#waiting.get(answer.id)?.(answer)
    this.#waiting.delete(answer.id)
  }

  /** Undefined when the process was killed before it answered. */
  ask(request: KvRequest, nowMs: number): Promise<Answer | undefined> {
    const id = this.#next++
    return new Promise((resolve) => {
      this.#waiting.set(id, resolve)
      this.#process.stdin.write(`${JSON.stringify({ id, nowMs, ...request })}\n`)
    })
  }

  async kill(): Promise<void> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return
    const exited = once(this.#process, 'exit')
    this.#process.kill('SIGKILL')
    await exited
  }
}

/** Everything that the process has, as the model shows it. */
async function visible(crasher: Crasher, nowMs: number): Promise<Record<string, unknown>> {
  const ask = async (method: string, path: string) => {
    const answer = await crasher.ask({ method, path }, nowMs)
    assert.ok(answer)
    return { status: answer.status, data: (JSON.parse(answer.text) as { data: Record<string, unknown> }).data }
  }
  const names = ((await ask('SCAN', 'secret/metadata')).data['keys'] ?? []) as string[]
  const all: Record<string, unknown> = {}
  for (const name of names) {
    const path = encodeURIComponent(name).replaceAll('%2F', '/')
    const { data } = await ask('GET', `secret/metadata/${path}`)
    const live: Record<string, unknown> = {}
    for (const version of Object.keys(data['versions'] as object)) {
      const read = await ask('GET', `secret/data/${path}?version=${version}`)
      if (read.status === 200) live[version] = read.data['data']
    }
    all[name] = { ...data, live }
  }
  return all
}

/** Sends writes until the process dies of its kill; returns the models that its end may be. */
async function untilKilled(crasher: Crasher, random: Random, model: KvModel, nowMs: number): Promise<KvModel[]> {
  const sent: { operation: KvOperation; answered: boolean }[] = []
  const models = [model.copy()]
  let isKilled = false
  const enough = random.between(5, 120)
  while (!isKilled) {
    const round: Promise<unknown>[] = []
    for (let at = random.between(1, 12); at > 0; at--) {
      const operation = randomOperation(random, (name) => model.keys.get(name)?.current ?? 0)
      if (isRead(operation)) continue
      const expected = model.apply(operation, nowMs)
      const before = models.at(-1)
      models.push(model.copy())
      const isChange = !isDeepStrictEqual(before, models.at(-1))
      const entry = { operation, answered: false }
      sent.push(entry)
      const asked = async () => {
        const answer = await crasher.ask(requestOf(operation), nowMs)
        if (!answer) return
        // What changes nothing is answered at once: it tells nothing of what is still on its way to the disk.
        entry.answered = isChange
        assert.equal(answer.status, expected.status, `seed ${SEED}: ${JSON.stringify(operation)}: ${answer.text}`)
      }
      round.push(asked())
    }
    if (sent.length >= enough) {
      isKilled = true
      // Somewhere between the requests and their answers.
      await new Promise((resolve) => setTimeout(resolve, random.between(0, 6)))
      await crasher.kill()
    }
    await Promise.all(round)
  }
  return models.slice(sent.findLastIndex(({ answered }) => answered) + 1)
}

test(`what is left after ${KILLS} kills is what the model has`, async (t) => {
  t.diagnostic(`seed ${SEED}`)
  const directory = mkdtempSync(join(tmpdir(), 'outpost-kv-kill-'))
  t.after(() => rmSync(directory, { recursive: true, force: true }))
  const random = new Random(SEED)
  let keys: string | undefined
  let model = new KvModel()
  let nowMs = Date.now()
  for (let kill = 0; kill < KILLS; kill++) {
    nowMs += 60_000
    const crasher = new Crasher(directory, nowMs, keys)
    t.after(() => crasher.kill())
    keys = await crasher.ready
    const candidates = await untilKilled(crasher, random, model, nowMs)
    const after = new Crasher(directory, nowMs, keys)
    t.after(() => after.kill())
    await after.ready
    const found = await visible(after, nowMs)
    const same = candidates.filter((each) => isDeepStrictEqual(each.visible(nowMs), found))
    if (same.length === 0)
      assert.deepEqual(
        found,
        candidates[0]?.visible(nowMs),
        `seed ${SEED}, kill ${kill}: the first of ${candidates.length}`,
      )
    assert.ok(same.length > 0, `seed ${SEED}, kill ${kill}: none of ${candidates.length} models is what is there`)
    // Models that look the same may differ in the engine's config: what is set next is what counts.
    model = same[0]?.copy() ?? model
    model.apply({ kind: 'config', settings: { max_versions: 3, cas_required: false, delete_version_after: 0 } }, nowMs)
    const config = { max_versions: 3, cas_required: false, delete_version_after: 0 }
    await after.ask({ method: 'POST', path: 'secret/config', body: config }, nowMs)
    await after.kill()
  }
})
