import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { chmodSync, mkdtempSync, readFileSync, readdirSync, rmdirSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createPrivateKey } from 'node:crypto'
import { type TestContext, test } from 'node:test'
import { type DiskSteps, diskSteps } from '../../../src/platform/program-file.ts'
import { HostState } from '../../../src/host/node/state.ts'
import { Fault, messageOf } from '../../../src/platform/errors.ts'
import { recordingLogger } from '../allocations/host-fixture.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

const ID = '6f1c0b9e-2f0a-4a51-9d0c-3f1f7a3f0001'
const open = (stateDir: string, more: { nodeId?: string; steps?: DiskSteps } = {}) =>
  HostState.open({ stateDir, log: recordingLogger(), ...more })
const set = (key: string, value: string) => (now: ReadonlyMap<string, string | null>) => new Map(now).set(key, value)

test('the first start creates a durable ID and a private key', async (t) => {
  const stateDir = join(temporaryDirectory(t), 'client')
  const state = await open(stateDir)
  assert.match(state.nodeId, /^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$/)
  assert.equal(createPrivateKey(state.nodeKeyPem).asymmetricKeyType, 'ed25519')
  assert.equal(statSync(stateDir).mode & 0o777, 0o700)
  assert.equal(statSync(join(stateDir, 'state.json')).mode & 0o777, 0o600)
  const again = await open(stateDir)
  assert.equal(again.nodeId, state.nodeId)
  assert.equal(again.nodeKeyPem, state.nodeKeyPem)
})

test('permissions of group and others are removed', async (t) => {
  const stateDir = temporaryDirectory(t)
  await open(stateDir)
  chmodSync(join(stateDir, 'state.json'), 0o644)
  chmodSync(stateDir, 0o755)
  await open(stateDir)
  assert.equal(statSync(join(stateDir, 'state.json')).mode & 0o777, 0o600)
  assert.equal(statSync(stateDir).mode & 0o777, 0o700)
})

test('a configured node ID is used at the first start, in lower case, and another one is refused later', async (t) => {
  const stateDir = temporaryDirectory(t)
  assert.equal((await open(stateDir, { nodeId: ID.toUpperCase() })).nodeId, ID)
  assert.equal((await open(stateDir, { nodeId: ID })).nodeId, ID)
  assert.equal((await open(stateDir)).nodeId, ID)
  const other = ID.replace('6f', '7f')
  await assert.rejects(open(stateDir, { nodeId: other }), (error) => {
    assert.ok(error instanceof Fault)
    return error.message.includes(ID) && error.message.includes(other) && /move the file away/.test(error.message)
  })
  await assert.rejects(open(temporaryDirectory(t), { nodeId: 'xyz' }), /not a UUID/)
})

test('a torn, empty, foreign or newer file fails the start with instructions and without quoting it', async (t) => {
  const stateDir = temporaryDirectory(t)
  await open(stateDir, { nodeId: ID })
  const path = join(stateDir, 'state.json')
  const whole = readFileSync(path, 'utf8')
  const secret = /"nodeKey": "(.*)"/.exec(whole)?.[1]?.slice(30, 60) ?? assert.fail('no key')
  const value: unknown = JSON.parse(whole)
  assert.ok(typeof value === 'object' && value !== null)
  const bad: [string, RegExp][] = [
    ['', /it is empty/],
    [whole.slice(0, -20), /not valid JSON/],
    ['\0'.repeat(100), /not valid JSON/],
    ['[]', /damaged/],
    [JSON.stringify({ ...value, nodeId: 'PLANTED' }), /"nodeId" is missing or wrong/],
    [JSON.stringify({ ...value, nodeKey: 'PLANTED' }), /"nodeKey" is missing or wrong/],
    [JSON.stringify({ ...value, dynamicMeta: { a: 1 } }), /"dynamicMeta" is missing or wrong/],
    [JSON.stringify({ ...value, version: 2 }), /newer version of outpost/],
  ]
  for (const [text, expected] of bad) {
    writeFileSync(path, text)
    await assert.rejects(open(stateDir), (error) => {
      assert.match(messageOf(error), expected)
      assert.ok(!messageOf(error).includes('PLANTED') && !messageOf(error).includes(secret))
      if (text !== '' && !/newer/.test(messageOf(error))) assert.match(messageOf(error), /restore it from a backup/)
      return true
    })
    assert.equal(readFileSync(path, 'utf8'), text, 'the file was left for the operator to see')
  }
  writeFileSync(path, whole)
  assert.equal((await open(stateDir)).nodeId, ID)
})

test('a failure of any step fails the update and changes nothing', async (t) => {
  const stateDir = temporaryDirectory(t)
  let failing: keyof DiskSteps | undefined
  const step =
    <A extends unknown[]>(name: keyof DiskSteps, real: (...args: A) => Promise<void>) =>
    (...args: A) =>
      failing === name ? Promise.reject(Object.assign(new Error('ENOSPC: planted'), { code: 'ENOSPC' })) : real(...args)
  const steps: DiskSteps = {
    create: step('create', diskSteps.create),
    rename: step('rename', diskSteps.rename),
    link: diskSteps.link,
    syncDirectory: step('syncDirectory', diskSteps.syncDirectory),
    remove: diskSteps.remove,
  }
  const state = await open(stateDir, { steps })
  await state.updateDynamicMeta(set('a', '1'))
  for (const name of ['create', 'rename', 'syncDirectory'] as const) {
    failing = name
    await assert.rejects(state.updateDynamicMeta(set('a', name)), name === 'syncDirectory' ? /cannot sync/ : /ENOSPC/)
    failing = undefined
    assert.deepEqual([...state.dynamicMeta], [['a', '1']])
    assert.deepEqual([...(await open(stateDir)).dynamicMeta], [['a', '1']], `on the disk after ${name}`)
    assert.deepEqual(readdirSync(stateDir), ['state.json'])
  }
  await state.updateDynamicMeta(set('a', '2'))
  assert.deepEqual([...(await open(stateDir)).dynamicMeta], [['a', '2']])
})

test('a full disk fails the update and changes nothing', async (t) => {
  const stateDir = mountTiny(t)
  if (!stateDir) return t.skip('needs root and mount')
  const state = await open(stateDir)
  await state.updateDynamicMeta(set('a', '1'))
  await assert.rejects(state.updateDynamicMeta(set('big', 'x'.repeat(200_000))), /ENOSPC/)
  assert.deepEqual([...state.dynamicMeta], [['a', '1']])
  assert.deepEqual(readdirSync(stateDir), ['state.json'])
  await state.updateDynamicMeta(set('b', '2'))
  assert.deepEqual(
    [...(await open(stateDir)).dynamicMeta],
    [
      ['a', '1'],
      ['b', '2'],
    ],
  )
})

function mountTiny(t: TestContext): string | undefined {
  const path = mkdtempSync(join(tmpdir(), 'outpost-tiny-'))
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', path], { stdio: 'ignore' })
  } catch {
    rmdirSync(path)
    return undefined
  }
  t.after(() => {
    execFileSync('umount', [path])
    rmdirSync(path)
  })
  return path
}

const increment = (now: ReadonlyMap<string, string | null>) =>
  new Map(now).set('n', String(Number(now.get('n') ?? 0) + 1))

test('updates are serialized, and those that wait share a write', async (t) => {
  let writes = 0
  const steps = { ...diskSteps, create: (path: string, text: string) => (writes++, diskSteps.create(path, text)) }
  const state = await open(temporaryDirectory(t), { steps })
  writes = 0
  const results = await Promise.all(Array.from({ length: 200 }, () => state.updateDynamicMeta(increment)))
  assert.deepEqual(
    results.map((after) => after.get('n')),
    Array.from({ length: 200 }, (_, i) => String(i + 1)),
  )
  assert.ok(writes < 20, `${writes} writes`)
  writes = 0
  await state.updateDynamicMeta((now) => now)
  assert.equal(writes, 0, 'no change, no write')
  const outcomes = await Promise.allSettled([
    state.updateDynamicMeta(() => {
      throw new Error('mine')
    }),
    state.updateDynamicMeta(increment),
  ])
  assert.deepEqual(
    outcomes.map((outcome) => outcome.status),
    ['rejected', 'fulfilled'],
  )
  assert.equal(state.dynamicMeta.get('n'), '201')
})

test('after a kill at any moment the file is complete and has all acknowledged updates', async (t) => {
  const stateDir = temporaryDirectory(t)
  for (let round = 0; round < 12; round++) {
    const child = spawn(process.execPath, [join(import.meta.dirname, 'state-writer.ts'), stateDir])
    let told = ''
    child.stdout.on('data', (bytes) => (told += String(bytes)))
    await new Promise((resolve) => child.stdout.once('data', resolve))
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 40))
    child.kill('SIGKILL')
    await new Promise((resolve) => child.once('close', resolve))
    const answered = Number(told.split('\n').at(-2))
    const state = await open(stateDir)
    const found = Number(state.dynamicMeta.get('n'))
    assert.ok(found === answered || found === answered + 1, `answered ${answered}, found ${found}`)
    assert.deepEqual(readdirSync(stateDir), ['state.json'], 'temporary files are cleaned up')
  }
})
