/**
 * A process with versioned secrets is killed in the middle of many operations, again and again. What it leaves must be
 * what the model has after some of the operations that were sent, in their order: all that were answered, and perhaps
 * some more, none of them in part. Half of them change several secrets (transaction, copy, move, import). Half of the
 * kills come at a step of a commit (about to be queued, queued, durable), the others at any moment. In the end everything
 * is removed by its name, and nothing may be left of it.
 *
 * `OUTPOST_MODEL_KILLS` tells how many kills, `OUTPOST_SEED` repeats a run.
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
import { isRead, type KvRequest, randomMany, randomOperation, requestOf } from '../../helpers/kv-operations.ts'

const KILLS = Number(process.env['OUTPOST_MODEL_KILLS'] ?? 2)
const SEED = Number(process.env['OUTPOST_SEED'] ?? Date.now() % 2 ** 31)

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
  #isGone = false

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
    // Not before everything is read that it had said.
    this.#process.on('close', () => {
      this.#isGone = true
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
    if (this.#isGone) return Promise.resolve(undefined)
    return new Promise((resolve) => {
      this.#waiting.set(id, resolve)
      this.#process.stdin.write(`${JSON.stringify({ id, nowMs, ...request })}\n`)
    })
  }

  /** It kills itself at this step of the commits that follow. */
  dieAtStep(step: number): void {
    void this.ask({ method: 'DIE', path: String(step) }, 0)
  }

  async kill(): Promise<void> {
    if (this.#isGone) return
    const closed = once(this.#process, 'close')
    this.#process.kill('SIGKILL')
    await closed
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
      const current = (name: string) => model.keys.get(name)?.current ?? 0
      const operation = random.chance(0.5) ? randomMany(random, current) : randomOperation(random, current)
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
        assert.equal(
          answer.status,
          expected.status,
          `OUTPOST_SEED=${SEED}: ${JSON.stringify(operation)}: ${answer.text}`,
        )
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

/** Removes everything that has a name; returns how many entries are there then. */
async function emptied(crasher: Crasher, nowMs: number): Promise<number> {
  const scan = await crasher.ask({ method: 'SCAN', path: 'secret/metadata' }, nowMs)
  const { keys = [] } = (JSON.parse(scan?.text ?? '') as { data: { keys?: string[] } }).data
  await crasher.ask({ method: 'POST', path: 'secret/data/one', body: { data: {} } }, nowMs)
  for (const name of ['one', ...keys]) {
    const path = encodeURIComponent(name).replaceAll('%2F', '/')
    const answer = await crasher.ask({ method: 'DELETE', path: `secret/metadata/${path}` }, nowMs)
    assert.equal(answer?.status, 204)
  }
  const config = { max_versions: 3, cas_required: false, delete_version_after: 0 }
  await crasher.ask({ method: 'POST', path: 'secret/config', body: config }, nowMs)
  const left = await crasher.ask({ method: 'SCAN', path: 'secret/metadata' }, nowMs)
  assert.deepEqual((JSON.parse(left?.text ?? '') as { data: unknown }).data, {})
  return Number((await crasher.ask({ method: 'ENTRIES', path: 'secret/' }, nowMs))?.text)
}

test(`after ${KILLS} kills the store equals the model`, async (t) => {
  t.diagnostic(`OUTPOST_SEED=${SEED}`)
  const directory = mkdtempSync(join(tmpdir(), 'outpost-kv-kill-'))
  t.after(() => rmSync(directory, { recursive: true, force: true }))
  const random = new Random(SEED)
  let model = new KvModel()
  let nowMs = Date.now()
  // What has been looked at after one kill is killed next.
  let crasher = new Crasher(directory, nowMs, undefined)
  t.after(() => crasher.kill())
  const keys = await crasher.ready
  for (let kill = 0; kill < KILLS; kill++) {
    nowMs += 60_000
    if (random.chance(0.5)) crasher.dieAtStep(random.between(1, 150))
    const candidates = await untilKilled(crasher, random, model, nowMs)
    const after = new Crasher(directory, nowMs, keys)
    crasher = after
    await after.ready
    const found = await visible(after, nowMs)
    const same = candidates.filter((each) => isDeepStrictEqual(each.visible(nowMs), found))
    if (same.length === 0)
      assert.deepEqual(
        found,
        candidates[0]?.visible(nowMs),
        `OUTPOST_SEED=${SEED}, kill ${kill}: the first of ${candidates.length}`,
      )
    assert.ok(
      same.length > 0,
      `OUTPOST_SEED=${SEED}, kill ${kill}: none of ${candidates.length} models is what is there`,
    )
    // Models that look the same may differ in the engine's config: what is set next is what counts.
    model = same[0]?.copy() ?? model
    model.apply({ kind: 'config', settings: { max_versions: 3, cas_required: false, delete_version_after: 0 } }, nowMs)
    const config = { max_versions: 3, cas_required: false, delete_version_after: 0 }
    await after.ask({ method: 'POST', path: 'secret/config', body: config }, nowMs)
  }
  const fresh = new Crasher(mkdtempSync(join(directory, 'fresh')), nowMs, undefined)
  t.after(() => fresh.kill())
  await fresh.ready
  assert.equal(
    await emptied(crasher, nowMs),
    await emptied(fresh, nowMs),
    `OUTPOST_SEED=${SEED}: something is left that has no name`,
  )
})

/** Writes secrets to a mount of version 1 and gives it versions in between; returns what was answered, by name. */
async function upgraded(crasher: Crasher, random: Random, mount: string, nowMs: number) {
  const kept = new Map<string, Set<number>>()
  const names = Array.from({ length: 30 }, (_, at) => `f${at % 4}/${at}`)
  let isUpgraded = false
  const write = async (name: string, value: number) => {
    const values = kept.get(name) ?? new Set()
    // The last that was answered, or what was sent behind it.
    kept.set(name, values.add(value))
    const answer = await crasher.ask({ method: 'POST', path: `${mount}/${name}`, body: { value } }, nowMs)
    if (answer?.status !== 204) return
    for (const each of values) if (each < value) values.delete(each)
  }
  const asked = names.map((name) => write(name, 0))
  const tuneAt = random.between(0, 120)
  for (let at = 0; at < 150; at++) {
    asked.push(write(random.pick([names[0] ?? '', ...names]), at + 1))
    if (at !== tuneAt) continue
    const body = { options: { version: '2' } }
    const tuned = crasher.ask({ method: 'POST', path: `sys/mounts/${mount}/tune`, body }, nowMs)
    asked.push(tuned.then((answer) => void (isUpgraded = answer?.status === 200)))
    if (random.chance(0.5)) await tuned
  }
  await Promise.all(asked)
  return { kept, isUpgraded }
}

test('an upgrade to version 2 under writes and kills is atomic and keeps every secret', async (t) => {
  t.diagnostic(`OUTPOST_SEED=${SEED}`)
  const directory = mkdtempSync(join(tmpdir(), 'outpost-kv-kill-'))
  t.after(() => rmSync(directory, { recursive: true, force: true }))
  const random = new Random(SEED)
  const nowMs = Date.now()
  const versions = new Map<string, number>()
  /** Makes the mount of the next round. */
  const prepared = async (crasher: Crasher, round: number) => {
    const body = { type: 'kv', options: { version: '1' } }
    const made = await crasher.ask({ method: 'POST', path: `sys/mounts/plain${round}`, body }, nowMs)
    assert.equal(made?.status, 204)
  }
  let crasher = new Crasher(directory, nowMs, undefined)
  t.after(() => crasher.kill())
  const keys = await crasher.ready
  await prepared(crasher, 0)
  for (let kill = 0; kill < KILLS; kill++) {
    const mount = `plain${kill}`
    crasher.dieAtStep(random.between(1, 540))
    const { isUpgraded, kept } = await upgraded(crasher, random, mount, nowMs)
    await crasher.kill()
    const after = new Crasher(directory, nowMs, keys)
    crasher = after
    await after.ready
    const ask = async (method: string, path: string) => {
      const answer = await after.ask({ method, path }, nowMs)
      const { data } = JSON.parse(answer?.text ?? '') as { data?: Record<string, unknown> }
      return { status: answer?.status, data: data ?? {} }
    }
    const { version } = (await ask('GET', `sys/mounts/${mount}`)).data['options'] as { version: string }
    versions.set(version, (versions.get(version) ?? 0) + 1)
    if (isUpgraded) assert.equal(version, '2')
    const scanned = (await ask('SCAN', version === '2' ? `${mount}/metadata` : mount)).data['keys'] ?? []
    for (const [name, values] of kept) {
      const read = await ask('GET', version === '2' ? `${mount}/data/${name}` : `${mount}/${name}`)
      const { value } = (version === '2' ? (read.data['data'] ?? {}) : read.data) as { value?: number }
      const where = `OUTPOST_SEED=${SEED}, kill ${kill}, version ${version}: ${name} is ${value} and not ${[...values].join(' or ')}`
      assert.equal((scanned as string[]).includes(name), read.status === 200, where)
      // Only what was never answered may be missing.
      assert.ok(value === undefined ? values.has(0) : values.has(value), where)
    }
    await prepared(after, kill + 1)
  }
  t.diagnostic(`versions afterwards: ${JSON.stringify([...versions])}`)
})
