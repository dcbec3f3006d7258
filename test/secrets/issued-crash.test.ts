/** A process that is killed at every step of giving out and taking back: no lease is lost, no wrapped answer is read twice. */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { cpSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { checkDatabase } from '../../src/store/check.ts'
import { CoreWorld, type WorldKeys } from '../helpers/core-world.ts'
import { lender } from '../helpers/lender-engine.ts'
import { StepCopies } from '../helpers/step-copies.ts'
import { steppedStore } from '../helpers/stepped-store.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'
import { issueAndTakeBack, prepare, type Said, type Step, STEPS } from './issued-steps.ts'

const CRASHER = join(import.meta.dirname, 'issued-crasher.ts')
const INVALID = 'wrapping token is not valid or does not exist'

async function base(t: TestContext): Promise<{ directory: string; keys: WorldKeys; audit: string }> {
  const world = await CoreWorld.open(t, { engines: [lender().engine] })
  const audit = join(world.directory, 'audit.log')
  await prepare(world)
  assert.equal((await world.ask('PUT', 'sys/audit/file', { type: 'file', options: { file_path: audit } })).status, 204)
  await world.core.seal()
  await world.store.close()
  return { directory: world.directory, keys: world.keys, audit }
}

async function check(directory: string, keys: WorldKeys, said: readonly Said[], what: string): Promise<void> {
  assert.deepEqual(checkDatabase(join(directory, 'secrets.db')), [], what)
  const world = await CoreWorld.reopen(directory, keys, { engines: [lender().engine] })
  try {
    await look(world, new Map(said.map(({ step, value }) => [step, value])), what)
  } finally {
    await world.core.seal()
    await world.store.close()
  }
}

async function look(world: CoreWorld, said: ReadonlyMap<Step, string>, what: string): Promise<void> {
  const leases = () => world.store.paths('sys/lease/id/').length
  const out = () => world.store.paths('logical/').filter((path) => path.includes('/out/')).length
  const lasts = async (id: string) => (await world.ask('PUT', 'sys/leases/lookup', { lease_id: id })).status === 200
  assert.equal(leases(), out(), `${what}: what is out has a lease, and nothing else has one`)
  const first = said.get('issued')
  if (first !== undefined && !said.has('rewrapped'))
    assert.ok(await lasts(first), `${what}: an answered lease is there`)
  if (first !== undefined && said.has('revoked')) assert.ok(!(await lasts(first)), `${what}: a revoked lease is gone`)
  await checkToken(world, said.get('wrapped'), said.has('unwrapped'), what)
  await checkToken(world, said.get('again'), said.has('rewrapped'), what)
  if (said.has('rewrapped')) await checkToken(world, said.get('rewrapped'), false, what)
  if (said.has('ended')) assert.equal(leases(), 0, what)
  assert.equal((await world.ask('PUT', 'sys/leases/revoke-prefix/lent')).status, 204)
  assert.deepEqual([leases(), out()], [0, 0], `${what}: everything can be taken back`)
}

/** A token is good for one answer at most, and for none where it was used. */
async function checkToken(world: CoreWorld, token: string | undefined, isUsed: boolean, what: string): Promise<void> {
  if (token === undefined) return
  const unwrap = async () => world.ask('POST', 'sys/wrapping/unwrap', { token })
  const first = await unwrap()
  if (isUsed) assert.equal(first.body.errors[0], INVALID, `${what}: a used token`)
  assert.ok(first.status === 200 || first.body.errors[0] === INVALID, `${what}: ${first.text}`)
  assert.equal((await unwrap()).body.errors[0], INVALID, `${what}: twice`)
}

/** Each answered step has its second line. */
function checkAudit(file: string, said: readonly Said[]): void {
  const lines = readFileSync(file, 'utf8').trimEnd().split('\n').slice(1)
  const answered = lines.map((line) => JSON.parse(line) as { type: string; error?: string })
  const count = answered.filter(({ error, type }) => type === 'response' && error === undefined).length
  assert.ok(count >= said.length, `${count} lines of ${said.length} answers`)
}

test('what was given out survives the death of its process with its lease, or was never given out', async (t) => {
  const { audit, directory, keys } = await base(t)
  const room = temporaryDirectory(t)
  const killed = join(room, 'killed')
  cpSync(directory, killed, { recursive: true })
  const said: Said[] = []
  let isCounting = false
  const copies = new StepCopies({ directory, name: 'secrets.db', room, said: () => [...said] })
  const world = await CoreWorld.reopen(directory, keys, {
    engines: [lender().engine],
    wrap: (real) => steppedStore(real, () => isCounting && copies.take()),
  })
  isCounting = true
  await issueAndTakeBack(world, (each) => said.push(each))
  isCounting = false
  copies.take()
  await world.close()
  assert.deepEqual(
    said.map(({ step }) => step),
    STEPS,
  )
  assert.ok(copies.all.length > 3 * STEPS.length, `${copies.all.length} steps`)
  for (const [at, copy] of copies.all.entries()) {
    await check(copy.directory, keys, copy.said, `step ${at + 1}, after ${copy.said.at(-1)?.step ?? 'nothing'}`)
  }
  const middle = String(Math.ceil(copies.all.length / 2))
  const child = spawnSync(process.execPath, [CRASHER, killed, keys.unsealKey, keys.rootToken, middle])
  assert.equal(child.signal, 'SIGKILL', child.stderr.toString())
  const heard = child.stdout
    .toString()
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Said)
  checkAudit(audit, heard)
  await check(killed, keys, heard, `killed by the system, after ${heard.at(-1)?.step ?? 'nothing'}`)
})
