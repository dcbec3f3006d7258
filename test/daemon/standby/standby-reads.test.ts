/** Reads of a standby from its own entries: it must not accept what the active server refuses. */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { cubbyhole } from '../../../src/engines/cubbyhole/cubbyhole.ts'
import { kv } from '../../../src/engines/kv/kv.ts'
import { ReadIndex, stateHeader } from '../../../src/daemon/standby/read-index.ts'
import { StandbyReads } from '../../../src/daemon/standby/standby-reads.ts'
import { encodeMessage } from '../../../src/ha/stream/commit-message.ts'
import { positionOf, StreamCommitLog } from '../../../src/ha/stream/stream-commit-log.ts'
import { ANONYMOUS } from '../../../src/platform/operation.ts'
import { identityEngine } from '../../../src/secrets/identity/identity-engine.ts'
import { systemEngine } from '../../../src/secrets/system/system.ts'
import { tokenEngine } from '../../../src/secrets/tokens/token-engine.ts'
import { Barrier } from '../../../src/storage/barrier/barrier.ts'
import { openRootKey } from '../../../src/storage/barrier/seal-entries.ts'
import { type Batch, encodeBatch } from '../../../src/storage/sqlite/batch.ts'
import { eventually } from '../../helpers/eventually.ts'
import { CoreWorld } from '../../helpers/core-world.ts'
import { addKv, expectStatus, tokenWith, writeSecret } from '../../helpers/kv-world.ts'
import { MemberStore, MemoryStream } from '../../helpers/member-stores.ts'
import { recordingLogger } from '../../helpers/recording-logger.ts'

interface Pair {
  readonly active: CoreWorld
  readonly standby: MemberStore
  readonly reads: StandbyReads
  /** A token that may read `secret/`. */
  readonly token: string
  /** Whether the active server answers the standby. */
  isReachable: boolean
  /** Of the active server, as the standby knows it. */
  clockMs: number
  /** Number of requests to the active server for its rows. */
  indexRequests: number
  /** Called with each of them. */
  onIndexRequest: () => void
  readonly stream: MemoryStream
  /** The entries at the beginning. */
  readonly old: ReadonlyMap<string, Uint8Array>
  /** Number of rows of the stream that the active server has not applied. */
  unapplied: number
  /** Status of the standby's own answer; undefined if it forwards the request. */
  status(headers?: Readonly<Record<string, string>>, path?: string): Promise<number | undefined>
}

async function openPair(t: TestContext): Promise<Pair> {
  const stream = new MemoryStream()
  const active = await CoreWorld.open(t, { raw: true, engines: [kv] })
  const log = new StreamCommitLog(() => active.store.position(), Date.now)
  active.store.member.joinCommitLog(log)
  log.begin({ term: 1, stream, last: 0, nextRow: active.store.position().sequence + 1 })
  await active.initialise()
  await addKv(active)
  await writeSecret(active, 'a', { value: 'one' })
  const token = await tokenWith(active, 'path "secret/*" { capabilities = ["read", "list"] }')
  const standby = await MemberStore.open(t, stream)
  await standby.follow()
  const pair: Omit<Pair, 'reads' | 'status'> = {
    active,
    standby,
    token,
    isReachable: true,
    clockMs: 1,
    indexRequests: 0,
    onIndexRequest: () => undefined,
    stream,
    old: new Map(active.store.paths('').map((path) => [path, active.store.get(path)?.value ?? new Uint8Array()])),
    unapplied: 0,
  }
  const reads = new StandbyReads({
    store: standby.store,
    engines: [cubbyhole, kv],
    own: (core) => [systemEngine(core), tokenEngine(core), identityEngine(core)],
    seal: active.seal,
    version: '0.0.0-test',
    clusterName: 'test',
    logger: recordingLogger([]),
    rootKey: () => openRootKey(active.store, active.unsealKey) ?? Buffer.alloc(0),
    readIndex: new ReadIndex(async () => {
      pair.indexRequests++
      pair.onIndexRequest()
      if (!pair.isReachable) return undefined
      const { store } = active
      return { newest: store.position().sequence - pair.unapplied, visible: store.visibleRow - pair.unapplied }
    }),
    skipBatchDelay: () => undefined,
    activeMs: () => pair.clockMs,
  })
  reads.open()
  t.after(() => reads.close())
  const status: Pair['status'] = async (headers = {}, path = 'secret/data/a') => {
    const raw = { params: { path }, query: [], headers, body: undefined }
    const { signal } = new AbortController()
    const call = { requestId: 'r', identity: ANONYMOUS, signal, raw, token, hops: 0, remote: '127.0.0.1' }
    return (await reads.answer('secrets.read', call))?.status
  }
  return Object.assign(pair, { reads, status })
}

const OLD = { cache_control: 'max-age=999999999' }

/** Removes the right of the token. */
async function changePolicy({ active, token }: Pair): Promise<void> {
  const { data } = await expectStatus(active, 200, 'POST', 'auth/token/lookup', { token })
  const [name] = data['policies'] as string[]
  await expectStatus(active, 204, 'PUT', `sys/policies/acl/${name}`, { policy: 'path "x" { capabilities = ["read"] }' })
}

/** Applies what the active server has committed, and reads until it is applied. Reads that requested the newest row would wait for it. */
async function readWhileApplied(pair: Pair): Promise<void> {
  const applied = pair.standby.follow().then(() => true)
  const read = async () => {
    await pair.status(OLD)
    await nextTurn()
    return false
  }
  while (!(await Promise.race([applied, read()])));
}

test('a read while the revocation of its token is applied does not keep the token valid', async (t) => {
  const pair = await openPair(t)
  assert.equal(await pair.status(), 200)
  await expectStatus(pair.active, 204, 'POST', 'auth/token/revoke', { token: pair.token })
  await readWhileApplied(pair)
  assert.equal(await pair.status(), undefined)
})

test('a read while a policy is changed does not keep the old one', async (t) => {
  const pair = await openPair(t)
  assert.equal(await pair.status(), 200)
  await changePolicy(pair)
  await readWhileApplied(pair)
  assert.equal(await pair.status(), 403)
})

test('reads that were opened while a policy is applied do not keep the old one', async (t) => {
  const pair = await openPair(t)
  assert.equal(await pair.status(), 200)
  await changePolicy(pair)
  const { member } = pair.standby.store
  const onApplying = member.onApplying?.bind(member)
  assert.ok(onApplying)
  let opened = 0
  member.onApplying = (groups) => {
    pair.reads.close()
    const finish = onApplying(groups)
    pair.reads.open()
    opened++
    return finish
  }
  await pair.standby.follow()
  assert.equal(opened, 1)
  assert.equal(pair.reads.isOpen, false)
  pair.reads.open()
  assert.equal(await pair.status(), 403)
})

test('max-age and X-Vault-Index do not make tokens and policies older than a second', async (t) => {
  const pair = await openPair(t)
  let nowMs = performance.now()
  t.mock.method(performance, 'now', () => nowMs)
  const state = { x_vault_index: stateHeader(pair.standby.store.clusterId, pair.standby.store.position().sequence) }
  assert.equal(await pair.status(), 200)
  pair.isReachable = false
  const { indexRequests } = pair
  for (const headers of [OLD, state]) assert.equal(await pair.status(headers), 200)
  assert.equal(pair.indexRequests, indexRequests)
  nowMs += 1001
  for (const headers of [OLD, state, { ...OLD, ...state }]) assert.equal(await pair.status(headers), undefined)
})

test('a standby does not answer with a change before reads at the active server include it', async (t) => {
  const pair = await openPair(t)
  const path = 'secret/data/b'
  await writeSecret(pair.active, 'b', { value: 'two' })
  await pair.standby.follow()
  pair.unapplied = 1
  const visibleFrom = pair.indexRequests + 3
  pair.onIndexRequest = () => {
    if (pair.indexRequests === visibleFrom) pair.unapplied = 0
  }
  assert.equal(await pair.status({}, path), 200)
  assert.equal(pair.indexRequests, visibleFrom)
  pair.unapplied = 1
  assert.equal(await pair.status({}, path), undefined)
  assert.equal(await pair.status(OLD, path), 200)
})

test('a standby waits for what the active server has acknowledged, and forwards the read if it does not arrive', async (t) => {
  const pair = await openPair(t)
  const path = 'secret/data/b'
  await writeSecret(pair.active, 'b', { value: 'two' })
  assert.equal(await pair.status({}, path), undefined)
  const { indexRequests } = pair
  const answer = pair.status({}, path)
  await eventually(() => pair.indexRequests > indexRequests)
  await pair.standby.follow()
  assert.equal(await answer, 200)
})

test('the age of the entries counts from the request to the active server, not from its answer', async (t) => {
  const pair = await openPair(t)
  let nowMs = Math.ceil(performance.now())
  t.mock.method(performance, 'now', () => nowMs)
  pair.onIndexRequest = () => (nowMs += 400)
  assert.equal(await pair.status(), 200)
  pair.isReachable = false
  nowMs += 600
  assert.equal(await pair.status(OLD), 200)
  pair.onIndexRequest = () => undefined
  nowMs += 1
  assert.equal(await pair.status(OLD), undefined)
})

/** A group of another process than the active server, which has the name of the stream and no key. */
function forge({ standby }: Pair, stream: MemoryStream, batch: Batch): void {
  const bytes = Uint8Array.from(encodeBatch(batch))
  const position = positionOf(standby.store.position())
  const group = { epoch: position.epoch, firstSequence: position.sequence + 1, atMs: 0, lengths: [bytes.length], bytes }
  const [part] = encodeMessage({ kind: 'group', term: 1, ...group, position }, stream.messageBytesMax)
  assert.ok(part)
  stream.payloads.push(part.payload)
}

test('a standby serves no entry that a forged group has changed, and cannot take over with it', async (t) => {
  // Without a head, and with one of another time.
  const forgeries: Readonly<Record<string, (pair: Pair, path: string) => Batch>> = {
    'deletes an entry': (_pair, path) => ({ puts: [], deletes: [path] }),
    'puts an old entry back, with its head': (pair, path) => {
      const old = ['core/head', path].map((each) => ({ path: each, value: pair.old.get(each) ?? new Uint8Array() }))
      return { puts: old, deletes: [] }
    },
    'adds an entry': (_pair, path) => ({ puts: [{ path: `${path}x`, value: new Uint8Array(64) }], deletes: [] }),
  }
  for (const [what, batchOf] of Object.entries(forgeries)) {
    const pair = await openPair(t)
    const path = pair.active.store.paths('logical/').find((each) => each.includes('/k/')) ?? ''
    await writeSecret(pair.active, 'a', { value: 'two' })
    await pair.standby.follow()
    assert.equal(await pair.status(), 200)
    forge(pair, pair.stream, batchOf(pair, path))
    await pair.standby.follow()
    assert.equal(pair.reads.isOpen, false, what)
    assert.equal(await pair.status(OLD), undefined, what)
    const rootKey = openRootKey(pair.active.store, pair.active.unsealKey)
    assert.ok(rootKey)
    assert.throws(() => new Barrier(pair.standby.store).unseal(rootKey), /changed by another program/, what)
  }
})

test('while an audit device is enabled, reads are forwarded', async (t) => {
  const pair = await openPair(t)
  const { active, standby } = pair
  assert.equal(await pair.status(), 200)
  const options = { file_path: `${active.directory}/audit.log` }
  await expectStatus(active, 204, 'PUT', 'sys/audit/file', { type: 'file', options })
  await standby.follow()
  assert.equal(await pair.status(), undefined)
  await expectStatus(active, 204, 'DELETE', 'sys/audit/file')
  await standby.follow()
  assert.equal(await pair.status(), 200)
})

test('a standby answers with the secret that it has applied, not with the cached one', async (t) => {
  const pair = await openPair(t)
  const path = 'secret/data/b'
  assert.equal(await pair.status({}, path), 404)
  await writeSecret(pair.active, 'b', { value: 'two' })
  await pair.standby.follow()
  assert.equal(await pair.status({}, path), 200)
})

test('an empty header does not hide another one for which a request is forwarded', async (t) => {
  const pair = await openPair(t)
  for (const header of ['x_vault_mfa', 'x_vault_namespace']) {
    assert.equal(await pair.status({ x_vault_wrap_ttl: '', [header]: 'm' }), undefined, header)
  }
  assert.equal(await pair.status({ x_vault_wrap_ttl: '', x_vault_namespace: '' }), 200)
})

test('a path that the core joins is forwarded', async (t) => {
  const pair = await openPair(t)
  assert.equal(await pair.status({}, 'secret//data/a'), undefined)
})

test('a token may have a limited number of uses until a standby knows that it has not', async (t) => {
  const { active, reads, standby, token } = await openPair(t)
  assert.equal(reads.usesAreLimited(token), false)
  const create = async (options: object) => {
    const { auth } = await expectStatus(active, 200, 'POST', 'auth/token/create', options)
    return String(auth?.['client_token'])
  }
  const [limited, unlimited] = [await create({ num_uses: 5 }), await create({})]
  assert.deepEqual([reads.usesAreLimited(limited), reads.usesAreLimited(unlimited)], [true, true])
  await standby.follow()
  assert.deepEqual([reads.usesAreLimited(limited), reads.usesAreLimited(unlimited)], [true, false])
  reads.close()
  assert.equal(reads.usesAreLimited(unlimited), true)
})

test('a standby tells valid tokens, whose holders may send long bodies', async (t) => {
  const { reads, token } = await openPair(t)
  assert.equal(reads.takesLongBody(token, undefined), true)
  assert.equal(reads.takesLongBody('s.unknown', undefined), false)
  assert.equal(reads.takesLongBody(undefined, undefined), false)
  reads.close()
  assert.equal(reads.takesLongBody(token, undefined), true)
})

test('a standby whose clock cannot follow that of the active server forwards reads', async (t) => {
  const pair = await openPair(t)
  pair.clockMs = Date.now() + 3600_000
  assert.equal(await pair.status(), 200)
  pair.clockMs = Date.now() + 2 * 86_400_000
  assert.equal(await pair.status(), undefined)
  pair.clockMs = 0
  assert.equal(await pair.status(), undefined)
})
