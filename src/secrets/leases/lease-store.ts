/**
 * Leases, as they are kept: an entry each, found by a keyed hash of its ID, and empty entries by which it is found otherwise:
 * by the path that it was given for, by its token, by when it ends.
 *
 * All that belongs to a lease is written in one commit, that of the reply which gives it out; so a lease that was told is
 * there, and what an engine has noted beside it, too. Nothing is read at the start: how many leases there are is no matter.
 */
import { randomBytes } from 'node:crypto'
import type { Part, Put, Storage } from '../../storage/barrier/storage.ts'
import type { LeaseOrder } from '../../engines/framework/engine.ts'
import { Decoded } from '../../engines/framework/decoded.ts'
import { KeyedHash } from '../../platform/keyed-hash.ts'
import type { Steps } from '../../engines/framework/time-slices.ts'
import type { TtlLimits } from '../mounts/mount-ttl.ts'
import { emptyPut, randomName } from '../tokens/token-entry.ts'
import { smallerLimit } from '../tokens/token-ttl.ts'
import {
  dueAtMs,
  encodeLease,
  isIrrevocable,
  type Lease,
  leasePaths,
  LEASES_PREFIX,
  parseLease,
} from './lease-entry.ts'

const SALT_BYTES = 32
const ID_LENGTH = 24
/** Paths that are read at a time. */
const PAGE = 500

const leases = new Decoded(parseLease, encodeLease)

/** For whom and for what a lease is given. */
export interface Issue {
  readonly mount: string
  readonly path: string
  readonly rest: string
  readonly tokenHash: string
  readonly order: LeaseOrder
  /** What the mount allows. */
  readonly ttlLimits: TtlLimits
  /** No longer than the token lasts, where the token is not kept; else absent. */
  readonly untilMs?: number | undefined
  readonly nowMs: number
}

export class LeaseStore {
  readonly storage: Storage
  readonly #hash: KeyedHash
  /** To be written along until it is durable. */
  #saltPut: Put | undefined
  /** Paths that leases are being given for: their texts stay. */
  readonly #issuing = new Map<string, number>()

  /** `storage` is all of the barrier. */
  constructor(storage: Storage) {
    this.storage = storage.below(LEASES_PREFIX)
    const kept = this.storage.pending(leasePaths.salt)
    const salt = kept ?? randomBytes(SALT_BYTES)
    if (!kept) this.#saltPut = { path: leasePaths.salt, value: salt }
    this.#hash = new KeyedHash(salt)
  }

  hashOf(text: string): string {
    return this.#hash.digest(text, 'base64url')
  }

  /** A new lease, and what is to be committed for it; `done` is to be called when that is durable or has failed. */
  issue({ mount, nowMs, order, path, rest, tokenHash, ttlLimits, untilMs }: Issue): {
    lease: Lease
    part: Part
    done: () => void
  } {
    const maxTtlSeconds = smallerLimit(order.maxTtlSeconds, ttlLimits.maxTtlSeconds)
    const requestedTtlSeconds = order.ttlSeconds > 0 ? order.ttlSeconds : ttlLimits.defaultTtlSeconds
    const untilSeconds = untilMs === undefined ? requestedTtlSeconds : Math.floor((untilMs - nowMs) / 1000)
    const ttlSeconds = Math.min(requestedTtlSeconds, maxTtlSeconds, untilSeconds)
    const maxAtMs = Math.min(nowMs + maxTtlSeconds * 1000, untilMs ?? Number.POSITIVE_INFINITY)
    const lease: Lease = {
      id: `${path}/${randomName(ID_LENGTH)}`,
      mount,
      path,
      rest,
      tokenHash,
      issuedAtMs: nowMs,
      expiresAtMs: nowMs + ttlSeconds * 1000,
      maxAtMs,
      ttlSeconds,
      renewable: order.renewable,
      internal: { ...order.internal },
    }
    const pathHash = this.hashOf(path)
    const text = leasePaths.text(mount, pathHash)
    const puts = [
      { path: leasePaths.id(this.hashOf(lease.id)), value: leases.bytes(lease) },
      { path: text, value: Buffer.from(path) },
    ]
    if (this.#saltPut) puts.push({ path: this.#saltPut.path, value: Buffer.from(this.#saltPut.value) })
    this.#issuing.set(text, (this.#issuing.get(text) ?? 0) + 1)
    const done = () => {
      const left = (this.#issuing.get(text) ?? 1) - 1
      if (left > 0) this.#issuing.set(text, left)
      else this.#issuing.delete(text)
      this.#saltPut &&= this.storage.get(leasePaths.salt) ? undefined : this.#saltPut
    }
    const raw = this.#indexOf(lease).map(emptyPut)
    return { lease, part: { storage: this.storage, batch: { puts, deletes: [] }, raw }, done }
  }

  /** As it is durable. */
  find(id: string): Lease | undefined {
    return this.#read(this.storage.get(leasePaths.id(this.hashOf(id))))
  }

  /** Once everything that is queued is durable. */
  pendingByHash(hash: string): Lease | undefined {
    return this.#read(this.storage.pending(leasePaths.id(hash)))
  }

  /** Writes a changed lease down; `before` must be what is pending. */
  async change(before: Lease, lease: Lease): Promise<void> {
    const { batch, raw } = this.changed(before, lease)
    await this.storage.commit(batch, raw)
  }

  /** What changes a lease; `before` must be what is pending when it is committed. */
  changed(before: Lease, lease: Lease): Part {
    const [old, index] = [this.#indexOf(before), this.#indexOf(lease)]
    const puts = [{ path: leasePaths.id(this.hashOf(lease.id)), value: leases.bytes(lease) }]
    const deletes = old.filter((path) => !index.includes(path))
    const raw = index.filter((path) => !old.includes(path)).map(emptyPut)
    return { storage: this.storage, batch: { puts, deletes }, raw }
  }

  /** What removes a lease, to be committed with what its engine returns. */
  removal(lease: Lease): Part {
    const deletes = [leasePaths.id(this.hashOf(lease.id)), ...this.#indexOf(lease)]
    return { storage: this.storage, batch: { puts: [], deletes } }
  }

  /** Forgets the text of a path once no lease of it is left. */
  async forgetText({ mount, path }: Lease): Promise<void> {
    const pathHash = this.hashOf(path)
    const text = leasePaths.text(mount, pathHash)
    // What is queued does not show in a list, so a lease that is being given out counts, too. No `await` up to the commit.
    if (this.#issuing.has(text)) return
    if (this.storage.paths(leasePaths.of(mount, pathHash), { limit: 1 }).length > 0) return
    await this.storage.commit({ puts: [], deletes: [text] })
  }

  /** Hashes of the leases of an owner, at most `limit`, those behind `after`. */
  ofOwner(owner: string, after: string, limit: number): string[] {
    return this.storage.list(leasePaths.token(owner), { after, limit })
  }

  /** Those of a mount, at most `limit` behind the path `after`. */
  ofMount(mount: string, after: string, limit: number): { readonly path: string; readonly hash: string }[] {
    const paths = this.storage.paths(leasePaths.of(mount), { after, limit })
    return paths.map((path) => ({ path, hash: path.slice(path.lastIndexOf('/') + 1) }))
  }

  /** Mounts that have leases. */
  mounts(): string[] {
    return this.storage.list(leasePaths.expiries).map((name) => name.slice(0, -1))
  }

  /** Leases of a mount that are due, the oldest first, at most `limit` behind the path `after`. */
  due(mount: string, nowMs: number, after: string, limit: number): { readonly path: string; readonly hash: string }[] {
    const prefix = leasePaths.expiry(mount)
    const found = this.storage.paths(prefix, { after, limit }).map((path) => {
      const [atMs, hash = ''] = path.slice(prefix.length).split('/')
      return { path, hash, atMs: Number(atMs) }
    })
    return found.filter(({ atMs }) => atMs <= nowMs)
  }

  /** Each request path that leases were given for, and where they are. */
  *texts(): Generator<{ readonly path: string; readonly folder: string }> {
    for (const { after, page } of this.#pages(leasePaths.texts)) {
      void after
      for (const name of page) {
        const [, mount = '', pathHash = ''] = name.split('/')
        const text = this.storage.get(name)
        if (text) yield { path: text.toString('utf8'), folder: leasePaths.of(mount, pathHash) }
      }
    }
  }

  /** Hashes of the leases whose ID begins with a prefix, page by page. */
  *under(prefix: string): Generator<string> {
    for (const { folder, path } of this.texts()) {
      // The letters of an ID may be a part of the prefix.
      const isWhole = `${path}/`.startsWith(prefix)
      if (!isWhole && !prefix.startsWith(`${path}/`)) continue
      for (const { page } of this.#pages(folder)) {
        for (const name of page) {
          const hash = name.slice(folder.length)
          if (isWhole || this.pendingByHash(hash)?.id.startsWith(prefix)) yield hash
        }
      }
    }
  }

  /** Names directly below a prefix of IDs, which ends with a slash or is empty; folders with a slash. */
  *names(prefix: string): Steps<string[]> {
    const names = new Set<string>()
    for (const { folder, path } of this.texts()) {
      yield 1
      const whole = `${path}/`
      if (!whole.startsWith(prefix)) continue
      if (whole !== prefix) {
        names.add(whole.slice(prefix.length).split('/')[0] + '/')
        continue
      }
      for (const { page } of this.#pages(folder)) {
        for (const name of page) {
          const lease = this.pendingByHash(name.slice(folder.length))
          if (lease) names.add(lease.id.slice(prefix.length))
          yield 4
        }
      }
    }
    return [...names].sort()
  }

  /** The irrevocable leases, at most `limit`. */
  irrevocable(limit: number): Lease[] {
    const names = this.storage.paths(leasePaths.irrevocable, { limit })
    return names.flatMap((name) => this.pendingByHash(name.slice(leasePaths.irrevocable.length)) ?? [])
  }

  /** How many leases there are, and how many of them are irrevocable, in steps. */
  *counts(): Steps<{ leases: number; irrevocable: number }> {
    const counted = { leases: 0, irrevocable: 0 }
    for (const { page } of this.#pages(leasePaths.expiries)) {
      counted.leases += page.length
      yield page.length
    }
    for (const { page } of this.#pages(leasePaths.irrevocable)) {
      counted.irrevocable += page.length
      yield page.length
    }
    return counted
  }

  close(): void {
    this.#hash.close()
  }

  #read(bytes: Buffer | undefined): Lease | undefined {
    return bytes && leases.of(bytes)
  }

  *#pages(prefix: string): Generator<{ readonly page: string[]; readonly after: string }> {
    let after = ''
    for (;;) {
      const page = this.storage.paths(prefix, { after, limit: PAGE })
      if (page.length === 0) return
      after = page.at(-1) ?? ''
      yield { page, after }
      if (page.length < PAGE) return
    }
  }

  #indexOf(lease: Lease): string[] {
    const hash = this.hashOf(lease.id)
    const paths = [
      leasePaths.of(lease.mount, this.hashOf(lease.path)) + hash,
      leasePaths.due(lease.mount, dueAtMs(lease), hash),
    ]
    if (lease.tokenHash !== '') paths.push(leasePaths.token(lease.tokenHash) + hash)
    if (isIrrevocable(lease)) paths.push(leasePaths.irrevocable + hash)
    return paths
  }
}
