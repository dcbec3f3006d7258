/**
 * A process that is killed at every step of issuing and revoking: no lease is lost, no wrapped answer is read twice, and
 * each answered request has its audit lines.
 */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { cpSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { checkDatabase } from '../../src/storage/store/database-check.ts'
import { auditLinesOf } from '../helpers/audit-lines.ts'
import { CoreWorld, type WorldKeys } from '../helpers/core-world.ts'
import { StepCopies } from '../helpers/step-copies.ts'
import { steppedStore } from '../helpers/stepped-store.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'
import { type Answered, answeredAs, type Said, type Scenario } from './crash-scenario.ts'
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

/** Each request that was answered has its first line and its second, and the second names the token that it was given. */
function checkAudit(bytes: Uint8Array, answered: readonly Answered[], what: string): void {
  const text = Buffer.from(bytes).toString('utf8')
  // The line at the end may be a part of one.
  const lines = auditLinesOf(text.slice(0, text.lastIndexOf('\n') + 1))
  for (const { accessor, id } of answered) {
    const own = lines.filter(({ request }) => request?.['id'] === id)
    const types = own.map(({ type }) => type)
    assert.deepEqual(types, ['request', 'response'], `${what}: lines of the answered request ${id}`)
    assert.equal(own[1]?.response?.auth?.['accessor'], accessor, `${what}: the token of ${id}`)
  }
}

for (const [name, scenario] of Object.entries({ issued, logins })) {
  test(`${name}: an issued token or lease is complete after the death of its process, or was never issued`, async (t) => {
    const { audit, directory, keys } = await base(t, scenario)
    const room = temporaryDirectory(t)
    const killed = join(room, 'killed')
    cpSync(directory, killed, { recursive: true })
    const auditStart = statSync(audit).size
    const said: Said[] = []
    const answered: Answered[] = []
    let isCounting = false
    let steps = 0
    const copies = new StepCopies({ directory, name: 'secrets.db', room, said: () => [...said] })
    const moments: { readonly answered: readonly Answered[]; readonly audit: Buffer }[] = []
    const takeAudit = () => moments.push({ answered: [...answered], audit: readFileSync(audit) })
    const passed = () => {
      if (!isCounting) return
      steps++
      copies.take()
      takeAudit()
    }
    const world = await CoreWorld.reopen(directory, keys, {
      engines: scenario.engines(),
      wrap: (real) => steppedStore(real, passed),
      answered(id, answer) {
        answered.push(answeredAs(id, answer))
        takeAudit()
      },
    })
    isCounting = true
    await scenario.run(world, (each) => said.push(each))
    isCounting = false
    copies.take()
    await world.close()
    assert.deepEqual(
      said.map(({ step }) => step),
      scenario.steps,
    )
    assert.ok(copies.all.length > scenario.steps.length, `${copies.all.length} steps`)
    for (const [at, moment] of moments.entries()) {
      checkAudit(moment.audit.subarray(auditStart), moment.answered, `moment ${at + 1}`)
    }
    for (const [at, copy] of copies.all.entries()) {
      await check(scenario, keys, copy, `step ${at + 1}, after ${copy.said.at(-1)?.step ?? 'nothing'}`)
    }
    const middle = String(Math.ceil(steps / 2))
    const killStart = statSync(audit).size
    const child = spawnSync(process.execPath, [CRASHER, killed, keys.unsealKey, keys.rootToken, middle, name])
    assert.equal(child.signal, 'SIGKILL', child.stderr.toString())
    const words = child.stdout.toString().trimEnd().split('\n').filter(Boolean)
    const told = words.map((line) => JSON.parse(line) as Said | Answered)
    const heard = told.filter((each) => 'step' in each)
    const what = `killed by the system, after ${heard.at(-1)?.step ?? 'nothing'}`
    const theirs = told.filter((each) => 'id' in each)
    assert.ok(theirs.length > 0, what)
    checkAudit(readFileSync(audit).subarray(killStart), theirs, what)
    await check(scenario, keys, { directory: killed, said: heard }, what)
  })
}
