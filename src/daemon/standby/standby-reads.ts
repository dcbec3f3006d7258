/**
 * Reads of secrets by a standby from its own entries.
 *
 * The standby has a second core, which can only read: its store refuses commits. It follows the commit stream: before a group is applied
 * its entries are added to the entry set, so each read is still compared with what the active server wrote. Changes of secrets need nothing
 * else; after a change of mounts, policies, tokens or settings the core is opened again before the next read.
 *
 * A read is current: after the request has arrived, the standby requests the newest row of the active server (`read-index.ts`), and reads
 * when it has applied that row. If it has applied later ones by then, it responds when the active server has applied them too: a read there
 * must not return an older state afterwards. A client that states how old the entries may be (`Cache-Control: max-age`), or which state it requires
 * (`X-Vault-Index`), is served without that request if the last one was made less than a second ago. Tokens, policies, audit devices and
 * quotas are as old as the entries, so the client does not decide how old they may be.
 *
 * Everything else is forwarded: requests that change state, such as reads that issue leases, tokens with limited uses, wrapped responses
 * and second factors; all requests while an audit device or a rate limit quota is enabled; and each read that fails here.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { Barrier } from '../../storage/barrier/barrier.ts'
import { type CoreOptions, SecretsCore } from '../../secrets/core.ts'
import { secretsOperations } from '../../secrets/request/handle-request.ts'
import { READ_VERBS } from '../../secrets/request/core-endpoints.ts'
import type { Batch } from '../../storage/sqlite/batch.ts'
import { ReadOnlyStore } from '../../storage/store/store-interface.ts'
import type { LoggedGroup } from '../../storage/store/commit-log.ts'
import { decodedBatches } from '../../storage/store/group-message.ts'
import type { SqliteStore } from '../../storage/store/store.ts'
import type { Seal } from '../../storage/seal/seal.ts'
import { messageOf } from '../../platform/errors.ts'
import { Condition } from '../../platform/mutex.ts'
import type { Logger } from '../../platform/log.ts'
import { type AnyOperation, type Call, WholeAnswer } from '../../platform/operation.ts'
import type { RawInput } from '../../platform/schema.ts'
import { requiredAge, requiredRow, type ReadIndex } from './read-index.ts'

/** Tokens and policies are never older than this, even if the client accepts older ones. */
const AGE_MAX_MS = 1000
/** Time for the row that a read requires to be applied, here and at the active server. */
const APPLIED_MS = 500
/** Pause between requests while the active server applies a group. */
const VISIBLE_POLL_MS = 2
/** Entries outside the mounts that change often and do not concern the read core. */
const UNREAD = new Set(['core/head', 'core/encryptions'])
const AUDIT_DEVICES = 'core/audit/'
/** A wrapped response and a second factor change state. */
const FORWARDED_HEADERS = ['x_vault_wrap_ttl', 'x_vault_mfa', 'x_vault_namespace']
/** Parameters of requests that wait for changes. */
const WAITING = new Set(['cursor', 'stream', 'wait'])

export interface StandbyReadsOptions extends Pick<CoreOptions, 'engines' | 'own'> {
  readonly store: SqliteStore
  readonly seal: Seal
  readonly version: string
  readonly clusterName: string
  readonly logger: Logger
  /** A copy of the root key, which the caller overwrites. Throws while the server is sealed. */
  readonly rootKey: () => Buffer
  readonly readIndex: ReadIndex
  /** Applies messages of the commit stream as they arrive, for a moment. */
  readonly skipBatchDelay: () => void
  /** The newest known time of the active server's clock; 0 while unknown. */
  readonly activeMs: () => number
}

interface ReadCore {
  readonly core: SecretsCore
  readonly barrier: Barrier
  readonly operations: ReadonlyMap<string, AnyOperation>
  /** Every request is audited by the active server. */
  hasAuditDevices: boolean
}

export class StandbyReads {
  readonly #options: StandbyReadsOptions
  #open: ReadCore | undefined
  /** The core must be opened again before the next read. */
  #isStale = false
  /** Changes with each application of entries, and when the core is closed. */
  #version = 0
  readonly #applied = new Condition()
  /** When the entries were known to be current, by the monotonic clock. */
  #currentAtMs = Number.NEGATIVE_INFINITY

  constructor(options: StandbyReadsOptions) {
    this.#options = options
    options.store.member.onApplying = (groups) => this.#applying(groups)
  }

  get isOpen(): boolean {
    return this.#open !== undefined
  }

  /** Opens the core on the entries of the store, which must be verified. Throws if it cannot. */
  open(): void {
    const { clusterName, engines, logger, own, rootKey, seal, store, version } = this.#options
    this.close()
    const barrier = new Barrier(new ReadOnlyStore(store))
    const key = rootKey()
    try {
      barrier.unseal(key)
    } finally {
      key.fill(0)
    }
    const core = new SecretsCore({
      barrier,
      seal,
      engines,
      own,
      version,
      clusterName,
      logger: logger.named('reads'),
      isIsolated: true,
      isReplica: true,
    })
    core.activate()
    const operations = new Map(secretsOperations(core, READ_VERBS).map((operation) => [operation.name, operation]))
    this.#open = { core, barrier, operations, hasAuditDevices: hasAuditDevices(core) }
    this.#isStale = false
  }

  close(): void {
    this.#version++
    const open = this.#open
    this.#open = undefined
    open?.core.suspend()
    open?.barrier.seal()
  }

  /** Called before groups are applied; the result is called in the turn in which reads see them. */
  #applying(groups: readonly LoggedGroup[]): (isDone: boolean) => void {
    const open = this.#open
    const batches = open ? decodedBatches(groups) : []
    const finish = open?.barrier.follow(batches)
    return (isDone) => {
      this.#version++
      // Opened on the entries before these groups.
      if (this.#open !== open) return this.close()
      if (!open) return
      if (!isDone || !finish?.()) {
        this.#options.logger.warn(
          'reads are forwarded: the entries of this standby do not match the head of the entry set',
        )
        return this.close()
      }
      // Not earlier: a read during the application would open the core again on the old tokens and policies.
      if (batches.some((batch) => changesCore(open.core, batch))) this.#isStale = true
      this.#applied.notifyAll()
    }
  }

  /** The response, or undefined for a request that must be forwarded. Never rejects. */
  async answer(name: string, call: Call): Promise<WholeAnswer | undefined> {
    try {
      const operation = this.#answerable(name, call)
      const version = this.#version
      const visible = operation && (await this.#whenCurrent(call.raw))
      if (visible === undefined) return undefined
      const current = version === this.#version ? operation : this.#answerable(name, call)
      const answer = await current?.run(call.raw, call, undefined)
      if (!(answer instanceof WholeAnswer) || answer.status >= 500) return undefined
      return (await this.#isVisible(visible)) ? answer : undefined
    } catch {
      return undefined
    }
  }

  /** The operation of a request that this standby can serve. */
  #answerable(name: string, call: Call): AnyOperation | undefined {
    const open = this.#current()
    const activeMs = this.#options.activeMs()
    open?.core.advanceClock(activeMs)
    // A clock that is far behind does not follow: what has expired would be valid here.
    const isOnTime = open && activeMs > 0 && open.core.now() >= activeMs
    return isOnTime && !open.hasAuditDevices && canAnswer(open.core, call) ? open.operations.get(name) : undefined
  }

  /** Whether the token is valid as far as this standby knows. True while it knows none. */
  takesLongBody(token: string | undefined, remote: string | undefined): boolean {
    return this.#judged((core) => core.knows(token, remote))
  }

  /** True for a token that is not known here: it may be newer than the entries of this standby. */
  usesAreLimited(token: string): boolean {
    return this.#judged((core) => (tokenIn(core, token)?.usesLeft ?? 1) !== 0)
  }

  /** True while this standby cannot judge. */
  #judged(judge: (core: SecretsCore) => boolean): boolean {
    try {
      const core = this.#current()?.core
      return core?.isActive !== true || judge(core)
    } catch {
      return true
    }
  }

  /** The core, opened again if it is stale. */
  #current(): ReadCore | undefined {
    if (this.#open && this.#isStale) this.#reopen()
    return this.#open
  }

  #reopen(): void {
    try {
      const open = this.#open
      open?.core.suspend()
      open?.core.activate()
      if (open) open.hasAuditDevices = hasAuditDevices(open.core)
      this.#isStale = false
    } catch (error) {
      this.#options.logger.warn('reads are forwarded: the read-only core cannot be opened', { error: messageOf(error) })
      this.close()
    }
  }

  /**
   * Resolves when the entries are as new as the request requires, to the newest row that is known to be visible at the active server, or
   * Infinity if the response may be older or newer than its reads; to undefined if that takes too long.
   */
  async #whenCurrent(raw: RawInput): Promise<number | undefined> {
    const { readIndex, store } = this.#options
    const required = requiredRow(raw, store.clusterId)
    const ageMs = Math.min(requiredAge(raw) ?? 0, AGE_MAX_MS)
    const isWithin = (ms: number) => performance.now() - this.#currentAtMs <= ms
    if (required !== undefined && (await this.#hasApplied(required)) && isWithin(AGE_MAX_MS)) return Infinity
    if (ageMs > 0 && isWithin(ageMs)) return Infinity
    const confirmed = await readIndex.request()
    if (!confirmed || !(await this.#hasApplied(confirmed.newest))) return undefined
    this.#currentAtMs = Math.max(this.#currentAtMs, confirmed.requestedAtMs)
    return confirmed.visible
  }

  /** Resolves when all rows that a read has included are visible at the active server; to false if that takes too long. */
  async #isVisible(visible: number): Promise<boolean> {
    const { readIndex, store } = this.#options
    if (visible === Infinity) return true
    const included = store.position().sequence
    const endMs = performance.now() + APPLIED_MS
    let known = visible
    while (known < included) {
      if (performance.now() > endMs) return false
      const confirmed = await readIndex.request()
      if (!confirmed) return false
      known = confirmed.visible
      if (known < included) await sleep(VISIBLE_POLL_MS)
    }
    return true
  }

  async #hasApplied(row: number): Promise<boolean> {
    const { skipBatchDelay, store } = this.#options
    if (store.visibleRow >= row) return true
    skipBatchDelay()
    const endMs = performance.now() + APPLIED_MS
    while (store.visibleRow < row) if (!(await this.#applied.wait(endMs - performance.now()))) return false
    return true
  }
}

/** Whether a valid token has a limited number of uses. */
export function hasLimitedUses(core: SecretsCore, token: string): boolean {
  const entry = tokenIn(core, token)
  return entry !== undefined && entry.usesLeft !== 0
}

function tokenIn(core: SecretsCore, token: string) {
  return core.open.tokens.find(token, core.now())
}

/** Whether a batch changes something that the core keeps in memory. */
function changesCore(core: SecretsCore, { deletes, puts }: Batch): boolean {
  const changes = (path: string) => !UNREAD.has(path) && !isSecret(core, path)
  return puts.some(({ path }) => changes(path)) || deletes.some(changes)
}

/** Whether an entry belongs to a mount of the key-value engine, whose entries are read for each request. */
function isSecret(core: SecretsCore, path: string): boolean {
  const [, uuid] = /^logical\/([^/]+)\//.exec(path) ?? []
  return uuid !== undefined && core.isActive && core.open.mounts.byUuid(uuid)?.record.type === 'kv'
}

function hasAuditDevices(core: SecretsCore): boolean {
  return core.open.storage.list(AUDIT_DEVICES, { limit: 1 }).length > 0
}

function canAnswer(core: SecretsCore, { raw, remote, token }: Call): boolean {
  if (!core.isActive || token === undefined || core.quotas) return false
  const { headers, params, query } = raw
  if (FORWARDED_HEADERS.some((header) => headers[header])) return false
  // The core joins slashes: the path may belong to another mount.
  if (params['path']?.includes('//')) return false
  if (query.some(([parameter]) => WAITING.has(parameter) || parameter === 'help')) return false
  const resolved = core.find(params['path'] ?? '')
  if (resolved?.mount.record.type !== 'kv') return false
  return core.knows(token, remote) && !hasLimitedUses(core, token)
}
