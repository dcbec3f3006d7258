/**
 * Stores leases. Each lease is an entry, found by the keyed hash of its ID, with index entries by issuing path, owner and expiry.
 *
 * A lease, its index and the engine's batch are one commit, and the answer with the lease waits for it. Nothing is read when the
 * core is unsealed, so the start does not depend on the number of leases.
 */
import { randomBytes } from 'node:crypto'
import type { CommitPart, Put, Storage } from '../../storage/barrier/storage.ts'
import type { LeaseRequest } from '../../engines/framework/engine.ts'
import { CachedCodec } from '../../engines/framework/records.ts'
import { KeyedHash } from '../../platform/keyed-hash.ts'
import { RECORD_COST, type SlicedWork } from '../../platform/sliced-work.ts'
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

/** Cost of reading an index entry, in units of `RECORD_COST`. */
const PATH_COST = 1
const SALT_BYTES = 32
const ID_LENGTH = 24
/** Paths read in one step. */
const PAGE_PATHS = 500

const leaseCodec = new CachedCodec(parseLease, encodeLease)

/** A lease to be issued. */
export interface LeaseIssue {
  /** UUID of the mount. */
  readonly mount: string
  /** Path of the request, the mount's path included. */
  readonly path: string
  /** Path of the request below the mount. */
  readonly rest: string
  /** Owner, see `Lease.tokenHash`. */
  readonly tokenHash: string
  readonly order: LeaseRequest
  readonly ttlLimits: TtlLimits
  /** Expiry of the caller's token, if the token is not stored. */
  readonly untilMs?: number | undefined
  readonly nowMs: number
}

/** An index entry of a lease. */
export interface LeaseLink {
  readonly path: string
  readonly hash: string
}

export class LeaseStore {
  readonly storage: Storage
  readonly #hash: KeyedHash
  /** A new salt, which is written with every commit until it is durable. */
  #saltPut: Put | undefined
  /** Issuing paths in commits that are not durable yet, with their number: they must not be removed. */
  readonly #issuing = new Map<string, number>()

  /** `storage` is all of the barrier. */
  constructor(storage: Storage) {
    this.storage = storage.below(LEASES_PREFIX)
    const stored = this.storage.pending(leasePaths.salt)
    const salt = stored ?? randomBytes(SALT_BYTES)
    if (!stored) this.#saltPut = { path: leasePaths.salt, value: salt }
    this.#hash = new KeyedHash(salt)
  }

  hashOf(text: string): string {
    return this.#hash.digest(text, 'base64url')
  }

  /** A new lease and its part of a commit. `done` must be called when the commit is durable or has failed. */
  issue({ mount, nowMs, order, path, rest, tokenHash, ttlLimits, untilMs }: LeaseIssue): {
    lease: Lease
    part: CommitPart
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
    const issuingPath = leasePaths.issuingPath(mount, pathHash)
    const puts = [
      { path: leasePaths.id(this.hashOf(lease.id)), value: leaseCodec.bytes(lease) },
      { path: issuingPath, value: Buffer.from(path) },
    ]
    if (this.#saltPut) puts.push({ path: this.#saltPut.path, value: Buffer.from(this.#saltPut.value) })
    this.#issuing.set(issuingPath, (this.#issuing.get(issuingPath) ?? 0) + 1)
    const done = () => {
      const left = (this.#issuing.get(issuingPath) ?? 1) - 1
      if (left > 0) this.#issuing.set(issuingPath, left)
      else this.#issuing.delete(issuingPath)
      this.#saltPut &&= this.storage.get(leasePaths.salt) ? undefined : this.#saltPut
    }
    const raw = this.#indexOf(lease).map(emptyPut)
    return { lease, part: { storage: this.storage, batch: { puts, deletes: [] }, raw }, done }
  }

  /** The durable lease. */
  find(id: string): Lease | undefined {
    return this.#read(this.storage.get(leasePaths.id(this.hashOf(id))))
  }

  /** The lease with all queued changes. */
  pendingByHash(hash: string): Lease | undefined {
    return this.#read(this.storage.pending(leasePaths.id(hash)))
  }

  /** Commits a changed lease. `before` must be the pending lease. */
  async change(before: Lease, lease: Lease): Promise<void> {
    const { batch, raw } = this.changePart(before, lease)
    await this.storage.commit(batch, raw)
  }

  /** The part of a commit that changes a lease. `before` must be the pending lease. */
  changePart(before: Lease, lease: Lease): CommitPart {
    const [old, index] = [this.#indexOf(before), this.#indexOf(lease)]
    const puts = [{ path: leasePaths.id(this.hashOf(lease.id)), value: leaseCodec.bytes(lease) }]
    const deletes = old.filter((path) => !index.includes(path))
    const raw = index.filter((path) => !old.includes(path)).map(emptyPut)
    return { storage: this.storage, batch: { puts, deletes }, raw }
  }

  /** The part of a commit that removes a lease. */
  removalPart(lease: Lease): CommitPart {
    const deletes = [leasePaths.id(this.hashOf(lease.id)), ...this.#indexOf(lease)]
    return { storage: this.storage, batch: { puts: [], deletes } }
  }

  /** Removes an issuing path without leases. */
  async removeUnusedPath({ mount, path }: Lease): Promise<void> {
    const pathHash = this.hashOf(path)
    const issuingPath = leasePaths.issuingPath(mount, pathHash)
    // Lists show durable entries only, so leases that are being issued are checked too. No `await` until the commit is queued.
    if (this.#issuing.has(issuingPath)) return
    if (this.storage.paths(leasePaths.of(mount, pathHash), { limit: 1 }).length > 0) return
    await this.storage.commit({ puts: [], deletes: [issuingPath] })
  }

  /** Hashes of the leases of an owner after `after`, at most `limit`. */
  ofOwner(owner: string, after: string, limit: number): string[] {
    return this.storage.list(leasePaths.owner(owner), { after, limit })
  }

  /** Leases of a mount after the index path `after`, at most `limit`. */
  ofMount(mount: string, after: string, limit: number): LeaseLink[] {
    const paths = this.storage.paths(leasePaths.of(mount), { after, limit })
    return paths.map((path) => ({ path, hash: path.slice(path.lastIndexOf('/') + 1) }))
  }

  /** UUIDs of the mounts that have leases. */
  mounts(): string[] {
    return this.storage.list(leasePaths.expiries).map((name) => name.slice(0, -1))
  }

  /** Due leases of a mount after the index path `after`, oldest first, at most `limit`. */
  due(mount: string, nowMs: number, after: string, limit: number): LeaseLink[] {
    const prefix = leasePaths.expiry(mount)
    const links = this.storage.paths(prefix, { after, limit }).map((path) => {
      const [atMs, hash = ''] = path.slice(prefix.length).split('/')
      return { path, hash, atMs: Number(atMs) }
    })
    return links.filter(({ atMs }) => atMs <= nowMs)
  }

  /** Each issuing path, with the folder of its leases in the index. */
  *issuingPaths(): Generator<{ readonly path: string; readonly folder: string }> {
    for (const page of this.storage.pages(leasePaths.issuingPaths, PAGE_PATHS)) {
      for (const name of page) {
        const [, mount = '', pathHash = ''] = name.split('/')
        const path = this.storage.get(name)
        if (path) yield { path: path.toString('utf8'), folder: leasePaths.of(mount, pathHash) }
      }
    }
  }

  /** Hashes of the leases whose ID begins with a prefix. */
  *hashesUnder(prefix: string): Generator<string> {
    for (const { folder, path } of this.issuingPaths()) {
      // The prefix may end inside the last segment of an ID.
      const isWhole = `${path}/`.startsWith(prefix)
      if (!isWhole && !prefix.startsWith(`${path}/`)) continue
      for (const page of this.storage.pages(folder, PAGE_PATHS)) {
        for (const name of page) {
          const hash = name.slice(folder.length)
          if (isWhole || this.pendingByHash(hash)?.id.startsWith(prefix)) yield hash
        }
      }
    }
  }

  /** Names directly below a prefix of IDs, which ends with a slash or is empty. Folders end with a slash. */
  *names(prefix: string): SlicedWork<string[]> {
    const names = new Set<string>()
    for (const { folder, path } of this.issuingPaths()) {
      yield PATH_COST
      const whole = `${path}/`
      if (!whole.startsWith(prefix)) continue
      if (whole !== prefix) {
        names.add(whole.slice(prefix.length).split('/')[0] + '/')
        continue
      }
      for (const page of this.storage.pages(folder, PAGE_PATHS)) {
        for (const name of page) {
          const lease = this.pendingByHash(name.slice(folder.length))
          if (lease) names.add(lease.id.slice(prefix.length))
          yield RECORD_COST
        }
      }
    }
    return [...names].sort()
  }

  /** Irrevocable leases, at most `limit`. */
  irrevocable(limit: number): Lease[] {
    const names = this.storage.paths(leasePaths.irrevocable, { limit })
    return names.flatMap((name) => this.pendingByHash(name.slice(leasePaths.irrevocable.length)) ?? [])
  }

  /** The number of leases, and of the irrevocable ones. */
  *counts(): SlicedWork<{ leases: number; irrevocable: number }> {
    const counted = { leases: 0, irrevocable: 0 }
    for (const page of this.storage.pages(leasePaths.expiries, PAGE_PATHS)) {
      counted.leases += page.length
      yield page.length
    }
    for (const page of this.storage.pages(leasePaths.irrevocable, PAGE_PATHS)) {
      counted.irrevocable += page.length
      yield page.length
    }
    return counted
  }

  close(): void {
    this.#hash.close()
  }

  #read(bytes: Buffer | undefined): Lease | undefined {
    return bytes && leaseCodec.of(bytes)
  }

  #indexOf(lease: Lease): string[] {
    const hash = this.hashOf(lease.id)
    const paths = [
      leasePaths.of(lease.mount, this.hashOf(lease.path)) + hash,
      leasePaths.due(lease.mount, dueAtMs(lease), hash),
    ]
    if (lease.tokenHash !== '') paths.push(leasePaths.owner(lease.tokenHash) + hash)
    if (isIrrevocable(lease)) paths.push(leasePaths.irrevocable + hash)
    return paths
  }
}
