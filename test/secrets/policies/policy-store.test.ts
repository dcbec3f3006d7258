import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Batch, type EntryAccess, type History, Storage } from '../../../src/storage/barrier/storage.ts'
import { PolicyStore } from '../../../src/secrets/policies/policy-store.ts'
import { ALICE } from './policy-table-templates.ts'

const NOW = Date.UTC(2026, 10, 21)

/** Entries in memory, whose commits end when the test says so. */
class StandbyEntries implements EntryAccess {
  readonly #durable = new Map<string, Buffer>()
  #queue: { readonly batch: Batch; readonly done: (error?: Error) => void }[] = []
  reads = 0

  getShared(path: string): Buffer | undefined {
    this.reads++
    return this.#durable.get(path)
  }

  pendingShared(path: string): Buffer | undefined {
    for (const { batch } of this.#queue.toReversed()) {
      if (batch.deletes.includes(path)) return undefined
      const put = batch.puts.find((each) => each.path === path)
      if (put) return Buffer.from(put.value)
    }
    return this.#durable.get(path)
  }

  list(prefix = ''): string[] {
    return [...this.#durable.keys()].filter((path) => path.startsWith(prefix)).map((path) => path.slice(prefix.length))
  }

  paths(prefix: string): string[] {
    return [...this.#durable.keys()].filter((path) => path.startsWith(prefix))
  }

  history(): History {
    return { epoch: 0, oldest: 0, newest: 0, rows: [] }
  }

  commit(batch: Batch): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#queue.push({ batch, done: (error) => (error ? reject(error) : resolve(1)) })
    })
  }

  /** Everything queued becomes durable, or fails. */
  async settle(error?: Error): Promise<void> {
    const queue = this.#queue
    this.#queue = []
    for (const { batch, done } of queue) {
      if (!error) {
        for (const { path, value } of batch.puts) this.#durable.set(path, Buffer.from(value))
        for (const path of batch.deletes) this.#durable.delete(path)
      }
      done(error)
    }
    await new Promise((resolve) => setImmediate(resolve))
  }
}

function opening(): { storage: StandbyEntries; store: PolicyStore; allowed: () => boolean } {
  const storage = new StandbyEntries()
  const store = new PolicyStore(new Storage(storage))
  return {
    storage,
    store,
    allowed: () => store.acl(['app'], NOW).decide({ operation: 'read', path: 'kv/a' }).allowed,
  }
}

const READ = { text: 'path "kv/a" { capabilities = ["read"] }' }
const DENY = { text: 'path "kv/a" { capabilities = ["deny"] }' }

test('a change applies when it is durable, and a failed one never', async () => {
  const { allowed, storage, store } = opening()
  const first = store.write('app', READ, { nowMs: NOW })
  assert.ok(!allowed(), 'not durable yet')
  await storage.settle()
  await first
  assert.ok(allowed())
  const failing = store.write('app', DENY, { nowMs: NOW })
  const failed = assert.rejects(failing, /disk full/)
  await storage.settle(new Error('disk full'))
  await failed
  assert.ok(allowed())
  assert.equal(store.find('app', NOW)?.version, 1)
  const second = store.write('app', DENY, { nowMs: NOW })
  await storage.settle()
  await second
  assert.ok(!allowed())
  const removed = store.remove('app')
  await storage.settle()
  await removed
  assert.equal(store.find('app', NOW), undefined)
})

test('versions count queued writes', async () => {
  const { storage, store } = opening()
  const writes = [READ, DENY, READ].map((change) => store.write('app', change, { nowMs: NOW }))
  const tooLate = assert.rejects(store.write('app', DENY, { nowMs: NOW, cas: 1 }), /did not match/)
  await storage.settle()
  await Promise.all([...writes, tooLate])
  assert.equal(store.find('app', NOW)?.version, 3)
})

test('an expiry that is extended while expired policies are removed stays extended', async () => {
  const { storage, store } = opening()
  const make = store.write('app', { ...READ, expiresAtMs: NOW + 1 }, { nowMs: NOW })
  await storage.settle()
  await make
  const later = NOW + 100 * 86_400_000
  const put = store.write('app', { ...READ, expiresAtMs: later + 1000 }, { nowMs: later })
  const other = store.write('other', READ, { nowMs: later })
  await storage.settle()
  await Promise.all([put, other])
  assert.ok(store.find('app', later))
  assert.deepEqual(store.names('', later), ['app', 'other'])
})

test('compiled policies are cached, per entity if they have templates', async () => {
  const { storage, store } = opening()
  const change = { text: 'path "kv/{{identity.entity.name}}" { capabilities = ["read"] } node { policy = "read" }' }
  const write = store.write('app', change, { nowMs: NOW })
  await storage.settle()
  await write
  const acl = store.acl(['app', 'none'], NOW)
  const reads = storage.reads
  assert.equal(store.acl(['none', 'app', 'app'], NOW), acl)
  const alice = store.acl(['app', 'none'], NOW, ALICE)
  assert.equal(store.acl(['app', 'none'], NOW, ALICE), alice)
  assert.deepEqual([acl.capabilities('kv/alice'), alice.capabilities('kv/alice')], [['deny'], ['read']])
  assert.deepEqual(store.acl(['app', 'none'], NOW, { ...ALICE, name: 'bob' }).capabilities('kv/alice'), ['deny'])
  assert.ok(storage.reads - reads <= 3, 'names without a policy may be looked up again, nothing else')
  const identity = store.identity(['app'], NOW, 'ops')
  assert.deepEqual([identity.accessor, identity.allowsNode('read'), identity.allowsNode('write')], ['ops', true, false])
  assert.ok(store.identity(['root'], NOW, 'ops').allowsNode('write'))
  assert.ok(store.acl(['app', 'root'], NOW).root)
})

test('a stored policy with errors is a fault and not a policy without rules', async () => {
  const { storage, store } = opening()
  const record = { name: 'app', text: 'path "a" { new_key = 1 }', version: 1, modifiedAtMs: 0, casRequired: false }
  const value = Buffer.from(JSON.stringify({ ...record, freeSlashes: false, freeWildcards: false }))
  const commit = storage.commit({ puts: [{ path: 'sys/policy/app', value }], deletes: [] })
  await storage.settle()
  await commit
  assert.throws(() => store.acl(['app'], NOW), /the stored policy "app" has errors: 1:12/)
})
