/** A process that is killed at every step of giving out and taking back: no lease is lost, no wrapped answer is read twice. */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { cpSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { checkDatabase } from '../../src/store/check.ts'
import { CoreWorld, type WorldKeys } from '../helpers/core-world.ts'
import { StepCopies } from '../helpers/step-copies.ts'
import { steppedStore } from '../helpers/stepped-store.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'
import type { Said, Scenario } from './crash-scenario.ts'
import { issued } from './issued-steps.ts'
import { logins } from './login-steps.ts'

const CRASHER = join(import.meta.dirname, 'issued-crasher.ts')

async function base(
  t: TestContext,
  scenario: Scenario,
): Promise<{ directory: string; keys: WorldKeys; audit: string }> {
  const world = await CoreWorld.open(t, { engines: scenario.engines() })
  const audit = join(world.directory, 'audit.log')
  await scenario.prepare(world)
  const options = { file_path: audit, hmac_accessor: 'false' }
  assert.equal((await world.ask('PUT', 'sys/audit/file', { type: 'file', options })).status, 204)
  await world.core.seal()
  await world.store.close()
  return { directory: world.directory, keys: world.keys, audit }
}

interface Left {
  readonly directory: string
  readonly said: readonly Said[]
}

async function check(scenario: Scenario, keys: WorldKeys, { directory, said }: Left, what: string): Promise<void> {
  assert.deepEqual(checkDatabase(join(directory, 'secrets.db')), [], what)
  const world = await CoreWorld.reopen(directory, keys, { engines: scenario.engines() })
  try {
    await scenario.look(world, said, what)
  } finally {
    await world.core.seal()
    await world.store.close()
  }
}

const linesOf = (file: string) => readFileSync(file, 'utf8').trimEnd().split('\n').slice(1)

/** Each answered step has its second line. */
function checkAudit(scenario: Scenario, file: string, said: readonly Said[]): void {
  const lines = linesOf(file)
  const answered = lines.map((line) => JSON.parse(line) as { type: string })
  const count = answered.filter(({ type }) => type === 'response').length
  assert.ok(count >= said.length, `${count} lines of ${said.length} answers`)
  for (const each of said) scenario.audited?.(lines, each)
}

for (const [name, scenario] of Object.entries({ issued, logins })) {
  test(`${name}: what was given out survives the death of its process, or was never given out`, async (t) => {
    const { audit, directory, keys } = await base(t, scenario)
    const room = temporaryDirectory(t)
    const killed = join(room, 'killed')
    cpSync(directory, killed, { recursive: true })
    const said: Said[] = []
    let isCounting = false
    const copies = new StepCopies({ directory, name: 'secrets.db', room, said: () => [...said] })
    const world = await CoreWorld.reopen(directory, keys, {
      engines: scenario.engines(),
      wrap: (real) => steppedStore(real, () => isCounting && copies.take()),
    })
    isCounting = true
    await scenario.run(world, (each) => {
      said.push(each)
      scenario.audited?.(linesOf(audit), each)
    })
    isCounting = false
    copies.take()
    await world.close()
    assert.deepEqual(
      said.map(({ step }) => step),
      scenario.steps,
    )
    assert.ok(copies.all.length > scenario.steps.length, `${copies.all.length} steps`)
    for (const [at, copy] of copies.all.entries()) {
      await check(scenario, keys, copy, `step ${at + 1}, after ${copy.said.at(-1)?.step ?? 'nothing'}`)
    }
    const middle = String(Math.ceil(copies.steps / 2))
    const child = spawnSync(process.execPath, [CRASHER, killed, keys.unsealKey, keys.rootToken, middle, name])
    assert.equal(child.signal, 'SIGKILL', child.stderr.toString())
    const words = child.stdout.toString().trimEnd().split('\n').filter(Boolean)
    const heard = words.map((line) => JSON.parse(line) as Said)
    checkAudit(scenario, audit, heard)
    const last = heard.at(-1)?.step ?? 'nothing'
    await check(scenario, keys, { directory: killed, said: heard }, `killed by the system, after ${last}`)
  })
}
