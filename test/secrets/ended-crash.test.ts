/**
 * A process that is killed at every step of revoking leases and merging entities: no lease is lost, none is revoked
 * twice, no entity is merged partially, and each answered request has its audit lines.
 */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { cpSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { checkDatabase } from '../../src/storage/store/database-check.ts'
import { SqliteStore } from '../../src/storage/store/store.ts'
import { auditLinesOf } from '../helpers/audit-lines.ts'
import { CoreWorld, type WorldKeys } from '../helpers/core-world.ts'
import { leaseTestEngine } from '../helpers/lease-test-engine.ts'
import { eventually } from '../helpers/eventually.ts'
import { StepCopies } from '../helpers/step-copies.ts'
import { steppedStore } from '../helpers/stepped-store.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'
import { ALIAS, endAll, ENDED_STEPS, type EndedSaid, prepareEnd, type Prepared, SHORT_SECONDS } from './ended-steps.ts'

const CRASHER = join(import.meta.dirname, 'issued-crasher.ts')
/** Requests of `endAll` up to each step, by which the answers before a kill are counted. */
const REQUESTS: Readonly<Record<EndedSaid['step'], number>> = {
  issued: 10,
  expired: 10,
  prefix: 11,
  token: 12,
  merged: 13,
  disabled: 16,
}

interface Base {
  readonly directory: string
  readonly keys: WorldKeys
  readonly audit: string
  readonly prepared: Prepared
  readonly nowMs: number
}

async function base(t: TestContext): Promise<Base> {
  const world = await CoreWorld.open(t, { engines: [leaseTestEngine().engine] })
  const audit = join(world.directory, 'audit.log')
  const prepared = await prepareEnd(world)
  assert.equal((await world.ask('PUT', 'sys/audit/file', { type: 'file', options: { file_path: audit } })).status, 204)
  await world.close()
  return { directory: world.directory, keys: world.keys, audit, prepared, nowMs: world.nowMs }
}

async function check(of: Base, directory: string, said: readonly EndedSaid[]): Promise<void> {
  const what = `${directory}, after ${said.at(-1)?.step ?? 'nothing'}`
  assert.deepEqual(checkDatabase(join(directory, 'secrets.db')), [], what)
  const before = await outIn(directory)
  const own = leaseTestEngine()
  const nowMs = of.nowMs + (SHORT_SECONDS + 2) * 1000
  const world = await CoreWorld.reopen(directory, of.keys, { engines: [own.engine], nowMs })
  try {
    const steps = new Map(said.map(({ step, value }) => [step, value]))
    await checkLeases(world, { before, taken: own.revocations }, steps, what)
    await checkEntities(world, of.prepared, steps.has('merged'), what)
  } finally {
    await world.close()
  }
}

/** Numbers that are out, as the killed process has left them. */
async function outIn(directory: string): Promise<number[]> {
  const store = await SqliteStore.open(join(directory, 'secrets.db'))
  try {
    const leases = store.paths('sys/lease/id/').length
    const out = store.paths('logical/').flatMap((path) => /\/out\/(\d+)$/.exec(path)?.[1] ?? [])
    assert.equal(leases, out.length, `${directory}: what is out has a lease, and nothing else has one`)
    return out.map(Number).sort((a, b) => a - b)
  } finally {
    await store.close()
  }
}

async function checkLeases(
  world: CoreWorld,
  { before, taken }: { readonly before: readonly number[]; readonly taken: ReadonlyMap<number, number> },
  said: ReadonlyMap<EndedSaid['step'], string>,
  what: string,
): Promise<void> {
  const token = said.get('issued')
  const isToken = async () => (await world.ask('GET', 'auth/token/lookup-self', undefined, { token })).status === 200
  if (token !== undefined && said.has('token')) assert.equal(await isToken(), false, `${what}: its token is revoked`)
  if (said.size === 1) assert.ok(before.length >= 6, `${what}: answered leases that have not ended exist`)
  if (said.has('expired')) assert.ok(before.length <= 6, what)
  if (said.has('prefix')) assert.ok(before.length <= 3, what)
  if (said.has('disabled')) assert.equal(before.length, 0, what)
  await world.core.open.leases.expiry.tick()
  await world.core.open.revocation.resume()
  assert.equal((await world.ask('PUT', 'sys/leases/revoke-prefix/lent')).status, 204)
  // A mount that was on its way out goes on by itself.
  const left = () => [...world.store.paths('sys/lease/id/'), ...world.store.paths('logical/')]
  await eventually(() => left().length === 0, `${what}: everything is revoked`)
  const each = [...taken].sort(([a], [b]) => a - b)
  assert.deepEqual(
    each,
    before.map((number) => [number, 1]),
    `${what}: each once`,
  )
}

async function checkEntities(world: CoreWorld, of: Prepared, isMerged: boolean, what: string): Promise<void> {
  const may = async (path: string) => (await world.ask('GET', path, undefined, { token: of.token })).status === 200
  assert.equal(await may('sys/auth'), true, `${what}: the rights of before stay`)
  const hasBoth = await may('sys/mounts')
  if (isMerged) assert.ok(hasBoth, `${what}: a merge that was answered is there`)
  const current = hasBoth ? of.target : of.source
  const accessor = String(world.core.open.mounts.get('auth/token/')?.record.accessor)
  const lookup = { alias_name: ALIAS, alias_mount_accessor: accessor }
  const found = await world.ask('POST', 'identity/lookup/entity', lookup)
  assert.equal(found.body.data['id'], current, what)
  const group = (await world.ask('GET', 'identity/group/name/g')).body.data
  assert.deepEqual(group['member_entity_ids'], [current], what)
  const keys = (await world.ask('LIST', 'identity/entity/id')).body.data['keys'] as string[]
  assert.equal(keys.length, hasBoth ? 1 : 2, what)
}

/** What was answered until a moment has both its lines in the audit file as it was then. */
function checkAudit(text: string, said: readonly EndedSaid[]): void {
  const last = said.at(-1)
  const answers = auditLinesOf(text.slice(0, text.lastIndexOf('\n') + 1)).filter(
    ({ error, type }) => type === 'response' && !error,
  )
  const wanted = last ? REQUESTS[last.step] : 0
  assert.ok(answers.length >= wanted, `${answers.length} lines of ${wanted} answers, after ${last?.step ?? 'nothing'}`)
}

test('revocations of leases and merges of entities survive a kill at any point', async (t) => {
  const of = await base(t)
  const room = temporaryDirectory(t)
  const killed = join(room, 'killed')
  cpSync(of.directory, killed, { recursive: true })
  const auditStart = statSync(of.audit).size
  const said: EndedSaid[] = []
  let isCounting = false
  const copies = new StepCopies({
    directory: of.directory,
    name: 'secrets.db',
    room,
    said: () => [...said],
  })
  const moments: { readonly said: readonly EndedSaid[]; readonly auditSize: number }[] = []
  const passed = () => {
    if (!isCounting) return
    moments.push({ said: [...said], auditSize: statSync(of.audit).size })
    copies.take()
  }
  const world = await CoreWorld.reopen(of.directory, of.keys, {
    engines: [leaseTestEngine().engine],
    nowMs: of.nowMs,
    wrap: (real) => steppedStore(real, passed),
  })
  isCounting = true
  await endAll(world, of.prepared, (each) => said.push(each))
  passed()
  isCounting = false
  await world.close()
  assert.deepEqual(
    said.map(({ step }) => step),
    [...ENDED_STEPS],
  )
  const audit = readFileSync(of.audit)
  for (const moment of moments) {
    checkAudit(audit.subarray(auditStart, moment.auditSize).toString('utf8'), moment.said)
  }
  const seen = new Set<string>()
  for (const copy of copies.all) {
    await check(of, copy.directory, copy.said)
    seen.add(copy.said.at(-1)?.step ?? 'nothing')
  }
  assert.deepEqual([...seen], ['nothing', ...ENDED_STEPS], 'there are kills between any two answers')
  const prepared = JSON.stringify(of.prepared)
  const middle = String(Math.ceil(copies.steps / 2))
  const child = spawnSync(process.execPath, [
    CRASHER,
    killed,
    of.keys.unsealKey,
    of.keys.rootToken,
    middle,
    prepared,
    String(of.nowMs),
  ])
  assert.equal(child.signal, 'SIGKILL', child.stderr.toString())
  const lines = child.stdout
    .toString()
    .split('\n')
    .filter((line) => line !== '')
  const heard = lines.map((line) => JSON.parse(line) as EndedSaid)
  await check(of, killed, heard)
})
