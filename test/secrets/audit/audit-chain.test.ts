/** What another program does to audit files never becomes part of the chain, and what the server itself does never alarms. */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { appendFileSync, copyFileSync, readFileSync, renameSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import type { Barrier } from '../../../src/storage/barrier/barrier.ts'
import { openRootKey } from '../../../src/storage/barrier/seal-entries.ts'
import { kv } from '../../../src/engines/kv/kv.ts'
import {
  CHAIN_START,
  formatLegacyLine,
  type ChainHead,
  headOf,
  newChainId,
} from '../../../src/secrets/audit/audit-chain.ts'
import { DeviceChain } from '../../../src/secrets/audit/device-chain.ts'
import { runAt } from '../../cli/recording-core.ts'
import { assertWhole, auditLinesIn } from '../../helpers/audit-lines.ts'
import { listenTo } from '../../helpers/core-listener.ts'
import { CoreWorld } from '../../helpers/core-world.ts'
import { eventually } from '../../helpers/eventually.ts'

async function audited(t: TestContext, count = 5) {
  const world = await CoreWorld.open(t, { engines: [kv] })
  await world.ask('POST', 'sys/mounts/kept', { type: 'kv', options: { version: '2' } })
  const file = join(world.directory, 'audit.log')
  assert.equal((await world.ask('PUT', 'sys/audit/file', { type: 'file', options: { file_path: file } })).status, 204)
  for (let at = 0; at < count; at++) await write(world)
  return { file, world }
}

async function write(world: CoreWorld): Promise<void> {
  assert.equal((await world.ask('POST', 'kept/data/db', { data: { a: 'b' } })).status, 200)
}

/** The process is killed: what is in memory is gone, and no head is stored. */
async function killed(t: TestContext, world: CoreWorld): Promise<CoreWorld> {
  await world.store.close()
  const again = await CoreWorld.reopen(world.directory, world.keys, { engines: [kv] })
  t.after(() => again.store.close())
  return again
}

/** The barrier of a sealed core, for entries that the test changes; the core stays closed. */
function openBarrier({ core: { barrier }, store, unsealKey }: CoreWorld): Barrier {
  barrier.unseal(openRootKey(store, unsealKey) ?? assert.fail('the key is right'))
  return barrier
}

const stateOf = (world: CoreWorld) => world.core.audit?.states[0] ?? assert.fail('there is a device')

const lineTexts = (file: string) => readFileSync(file, 'utf8').trimEnd().split('\n')

/** Lines that fit behind `head`, with codes that are none. */
function forged(count: number, head: ChainHead, id: string): string[] {
  let last = head
  return Array.from({ length: count }, (_, at) => {
    const plain = formatLegacyLine(
      JSON.stringify({ time: '2026', type: 'request', request: { path: `forged/${at}` } }),
      last,
    )
    const line = plain.replace('"chain":{', `"chain":{"id":"${id}",`).replace(/\}\}$/, `,"mac":"${'0'.repeat(64)}"}}`)
    last = headOf(line) ?? assert.fail('it has the form of a line')
    return line
  })
}

/** Runs `audit verify -path=file/` against this core. */
async function verify(t: TestContext, world: CoreWorld, ...args: readonly string[]) {
  const port = await listenTo(t, world)
  const env = { OUTPOST_TOKEN: world.rootToken }
  return await runAt({ url: `http://127.0.0.1:${port}` }, ['audit', 'verify', '-path=file/', ...args], env)
}

/** As it is read from a file. */
function endOf(text: string) {
  return { head: headOf(text.trimEnd()), line: text.trimEnd() }
}

test('a line of a failed write is accepted as the end of the chain only until another line is recorded', (t) => {
  const id = newChainId()
  const chain = new DeviceChain(Buffer.alloc(32, 1), { id, head: CHAIN_START, isNew: true, trust: 'keyed' })
  t.after(() => chain.close())
  const first = chain.append(['{"time":"1"}'], '')
  chain.advance(first.heads[0] ?? CHAIN_START)
  const failed = chain.append(['{"time":"2"}'], '')
  chain.noteAttempt(failed.heads)
  assert.equal(chain.acceptEnd(endOf(failed.text), 'file', false), 'accepted')
  chain.noteAttempt(chain.append(['{"time":"3"}'], '').heads)
  const lost = chain.append(['{"time":"3"}'], '')
  const next = chain.append(['{"time":"4"}'], '')
  chain.advance(next.heads[0] ?? CHAIN_START)
  assert.equal(chain.acceptEnd(endOf(next.text), 'file', false), 'expected')
  assert.equal(chain.acceptEnd(endOf(lost.text), 'file', false), 'break', 'a line that was replaced by another one')
})

test('after its entries were restored a device continues its own lines, and not those of another device', (t) => {
  const deviceKey = Buffer.alloc(32, 1)
  const lineOf = (key: Buffer) => {
    const chain = new DeviceChain(key, { id: newChainId(), head: CHAIN_START, isNew: true, trust: 'keyed' })
    t.after(() => chain.close())
    return endOf(chain.append(['{"time":"1"}'], '').text)
  }
  for (const [end, expected] of [
    [lineOf(deviceKey), 'accepted'],
    [lineOf(Buffer.alloc(32, 2)), 'break'],
  ] as const) {
    const chain = new DeviceChain(deviceKey, { id: newChainId(), head: CHAIN_START, isNew: true, trust: 'keyed' })
    t.after(() => chain.close())
    assert.equal(chain.acceptEnd(end, 'file', false), expected)
  }
})

test('lines that another program appends are not accepted as the end of the chain', async (t) => {
  const { file, world } = await audited(t)
  const before = stateOf(world)
  appendFileSync(file, `${forged(10, before.head, before.chainId).join('\n')}\n`)
  const [wantedLine, alarmLine] = [before.head.sequence + 1, 'audit file was changed by another program']
  await write(world)
  const after = stateOf(world)
  assert.equal(after.breaks, 1)
  assert.deepEqual(after.broken?.expected, before.head)
  assert.equal(after.broken.found?.sequence, before.head.sequence + 10)
  assert.equal(after.fault, undefined, 'audit devices record requests')
  const logged = world.lines.filter(({ message }) => message === alarmLine)
  assert.equal(logged.length, 1)
  const line = auditLinesIn(file).find(({ chain }) => chain.event === 'break')
  assert.equal(line?.chain.sequence, wantedLine, 'the chain continues behind the line that the server had written')
  assert.equal(line.chain.previous, before.head.hash)
  const shown = (await world.ask('GET', 'sys/audit')).body.data['file/'] as { chain: { broken?: unknown } }
  assert.deepEqual(shown.chain.broken, after.broken)
  const verified = await verify(t, world, file)
  assert.equal(verified.code, 1)
  assert.match(verified.err, new RegExp(`audit\\.log:${wantedLine}: line changed or added: its HMAC is invalid`))
  // It stays over a restart, and is cleared by an operator alone.
  await world.core.saveAuditHeads()
  const again = await killed(t, world)
  assert.deepEqual(stateOf(again).broken, after.broken)
  assert.equal((await again.ask('PUT', 'sys/audit-acknowledge/file')).status, 204)
  assert.equal(stateOf(again).broken, undefined)
  const last = await killed(t, again)
  assert.equal(stateOf(last).broken, undefined)
  assert.equal(stateOf(last).breaks, 0)
  await last.core.seal()
})

test('a file that was forged while the server was stopped is not accepted as the end of the chain', async (t) => {
  const { file, world } = await audited(t)
  const { chainId, head } = stateOf(world)
  await world.core.saveAuditHeads()
  await world.close()
  appendFileSync(file, `${forged(10, head, chainId).join('\n')}\n`)
  const again = await killed(t, world)
  assert.equal(stateOf(again).breaks, 1, 'it is found without a request')
  await write(again)
  assert.equal(auditLinesIn(file).find(({ chain }) => chain.event === 'break')?.chain.sequence, head.sequence + 1)
  await again.core.seal()
})

test('an upgraded server starts a chain with MACs and verifies the lines before it', async (t) => {
  const { file, world } = await audited(t)
  await world.core.saveAuditHeads()
  await world.core.seal()
  // As a version without codes left it: lines without codes, the head in the entry of the device.
  const head = asLegacy(world, file)
  await head.stored
  const again = await killed(t, world)
  await write(again)
  const lines = auditLinesIn(file)
  const start = lines.findIndex(({ chain }) => chain.event === 'start')
  assert.equal(start, head.count, 'the first line of the new version')
  assert.ok(lines.slice(start).every(({ chain }) => chain.mac !== undefined))
  assert.equal(stateOf(again).breaks, 0)
  assert.deepEqual(await verify(t, again, file).then(({ code, err }) => ({ code, err })), { code: 0, err: '' })
  // A line without a code behind it is no line of the upgrade.
  appendFileSync(file, `${formatLegacyLine('{"time":"2026"}', stateOf(again).head)}\n`)
  const added = await runAt({ url: 'http://127.0.0.1:9' }, ['audit', 'verify', file])
  assert.match(added.err, /line added: it has no HMAC, but earlier lines have/)
  await again.core.seal()
})

/** Rewrites the file and the entries of its device as versions without codes wrote them. */
function asLegacy(world: CoreWorld, file: string): { count: number; stored: Promise<unknown> } {
  let head: ChainHead = { sequence: 0, hash: '0'.repeat(64) }
  const lines = lineTexts(file).map((line) => {
    const legacy = formatLegacyLine(`${line.slice(0, line.lastIndexOf(',"chain":'))}}`, head)
    head = headOf(legacy) ?? assert.fail('it is a line')
    return legacy
  })
  writeFileSync(file, lines.map((line) => `${line}\n`).join(''))
  const barrier = openBarrier(world)
  const [path = ''] = barrier.paths('core/audit/')
  const record = JSON.parse(barrier.get(path)?.toString('utf8') ?? '{}') as Record<string, unknown>
  const { isKeyed: _, ...kept } = record
  // A minute old, as after a kill.
  const old = headOf(lines[3] ?? '')
  const value = Buffer.from(JSON.stringify({ ...kept, head: old }))
  const stored = barrier
    .commit({ puts: [{ path, value }], deletes: [] })
    .then(() => barrier.commit({ puts: [], deletes: barrier.paths('local/audit/') }))
  return { count: lines.length, stored }
}

test('a kill between a line and the storing of the head raises no alarm, and the chain continues', async (t) => {
  const { file, world } = await audited(t)
  // The head that is stored is that of the first lines.
  const again = await killed(t, world)
  assert.equal(stateOf(again).breaks, 0)
  await write(again)
  appendFileSync(file, '{"time":"2026-01-01T00:00:00.000Z","type":"requ')
  const torn = await killed(t, again)
  await write(torn)
  // The kill is between the rotation and the first line in the new file.
  renameSync(file, `${file}.1`)
  const rotated = await killed(t, torn)
  await write(rotated)
  assert.equal(stateOf(rotated).breaks, 0)
  assert.deepEqual(
    auditLinesIn(`${file}.1`, file).filter(({ chain }) => chain.event === 'break'),
    [],
  )
  await assertWhole(`${file}.1`, file)
  const verified = await verify(t, rotated, `${file}.1`, file)
  assert.equal(verified.code, 0, verified.err)
  await rotated.core.seal()
})

test('truncated lines are detected while the server runs and at the next start', async (t) => {
  const { file, world } = await audited(t)
  const [first = ''] = lineTexts(file)
  truncateSync(file, first.length + 1)
  // Without a request: files are looked at every few seconds.
  await world.core.audit?.probe()
  assert.equal(stateOf(world).breaks, 1)
  assert.equal(stateOf(world).broken?.found?.sequence, 1)
  assert.equal(auditLinesIn(file).at(-2)?.chain.event, 'break')
  await world.core.audit?.probe()
  assert.equal(stateOf(world).breaks, 1, 'it is one break')
  await world.core.saveAuditHeads()
  await world.close()
  truncateSync(file, first.length + 1)
  const again = await killed(t, world)
  assert.equal(stateOf(again).breaks, 1)
  await again.core.seal()
})

test('lines inserted before the last one are detected while the server runs', async (t) => {
  const { file, world } = await audited(t)
  const { chainId, head } = stateOf(world)
  const lines = lineTexts(file)
  writeFileSync(file, [...lines.toSpliced(3, 0, ...forged(1, head, chainId)), ''].join('\n'))
  await write(world)
  assert.equal(stateOf(world).breaks, 1)
})

test('a file that is emptied or removed is reported, and a rotation is not', async (t) => {
  const { file, world } = await audited(t)
  // By renaming, with a signal and without.
  for (const at of [1, 2]) {
    renameSync(file, `${file}.${at}`)
    if (at === 1) writeFileSync(file, '')
    if (at === 1) world.core.audit?.reopen()
    await write(world)
  }
  world.core.audit?.reopen()
  await write(world)
  // Compressed right after the signal, on a server without requests.
  renameSync(file, `${file}.old`)
  world.core.audit?.reopen()
  copyFileSync(`${file}.old`, `${file}.3`)
  rmSync(`${file}.old`)
  await write(world)
  const { breaks, lostFiles } = stateOf(world)
  assert.deepEqual({ breaks, lostFiles }, { breaks: 0, lostFiles: 0 })
  // By copying and truncating.
  copyFileSync(file, `${file}.4`)
  truncateSync(file, 0)
  await write(world)
  assert.equal(stateOf(world).lostFiles, 1)
  assert.ok(world.lines.some(({ message }) => message === 'audit file was truncated by another program'))
  await assertWhole(...[1, 2, 3, 4].map((at) => `${file}.${at}`), file)
  rmSync(file)
  await write(world)
  assert.equal(stateOf(world).lostFiles, 2)
  assert.ok(world.lines.some(({ message }) => message === 'audit file was removed'))
  assert.equal(stateOf(world).broken, undefined)
  const verified = await verify(t, world, file)
  assert.equal(verified.code, 1)
  assert.match(verified.err, /audit\.log:1: the first line is number \d+, expected number 1/)
})

test('a copy in the place of the file is written from then on, although its size is the same', async (t) => {
  const { file, world } = await audited(t)
  copyFileSync(file, `${file}.copy`)
  renameSync(`${file}.copy`, file)
  const before = lineTexts(file).length
  await write(world)
  assert.equal(lineTexts(file).length, before + 2)
  await assertWhole(file)
})

test('a pipe in the place of the file records nothing, and no request is answered meanwhile', async (t) => {
  const { file, world } = await audited(t)
  renameSync(file, `${file}.1`)
  execFileSync('mkfifo', [file])
  const { status, text } = await world.ask('POST', 'kept/data/db', { data: { a: 'b' } })
  assert.equal(status, 500, text)
  rmSync(file)
  await write(world)
  await assertWhole(`${file}.1`, file)
})

test('lines of another server with the same devices cannot replace those of this server', async (t) => {
  const { file, world } = await audited(t, 2)
  await world.core.saveAuditHeads()
  const own = readFileSync(file)
  await world.core.seal()
  // As on a server that was promoted, or that a snapshot was restored into: the device without the chain.
  const barrier = openBarrier(world)
  const local = barrier.paths('local/audit/')
  const entries = local.map((path) => ({ path, value: barrier.get(path) ?? assert.fail('it is there') }))
  await barrier.commit({ puts: [], deletes: local })
  rmSync(file)
  const other = await killed(t, world)
  for (let at = 0; at < 9; at++) await write(other)
  assert.deepEqual([auditLinesIn(file)[0]?.chain.sequence, stateOf(other).breaks], [1, 0], 'it has a chain of its own')
  await assertWhole(file)
  const ofOther = readFileSync(file)
  await other.core.seal()
  await openBarrier(other).commit({ puts: entries, deletes: [] })
  const again = await killed(t, other)
  assert.equal(stateOf(again).breaks, 1)
  await again.core.seal()
  assert.notDeepEqual(own, ofOther)
})

test('the head is stored once a minute while the server runs', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] })
  const { file, world } = await audited(t)
  const stored = () => {
    const { barrier } = world.core
    const [path = ''] = barrier.paths('local/audit/')
    return JSON.parse(barrier.get(path)?.toString('utf8') ?? '{}') as { head?: ChainHead }
  }
  assert.notDeepEqual(stored().head, stateOf(world).head)
  t.mock.timers.tick(60_000)
  await eventually(() => stored().head?.sequence === stateOf(world).head.sequence, 'it is stored')
  t.mock.timers.reset()
  const lines = lineTexts(file)
  await world.store.close()
  // Cut between two lines that both have right codes: only the stored head tells.
  writeFileSync(
    file,
    lines
      .slice(0, -2)
      .map((line) => `${line}\n`)
      .join(''),
  )
  const again = await killed(t, world)
  assert.equal(stateOf(again).breaks, 1)
  await again.core.seal()
})
