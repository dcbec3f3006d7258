/**
 * Stores policies, and compiles them for callers.
 *
 * Each policy is an entry, `sys/policy/<name>`. A policy with an expiry has a second one, `sys/policy-expiry/<name>`, so that a list does
 * not read all policies. Nothing is read when the core is unsealed. A policy is parsed, and a set of policies compiled, at first use. Both
 * are cached within limits, and dropped when a change of a policy is durable, before its author is answered. A name without a policy
 * grants nothing.
 *
 * `root` has no entry and grants everything. `response-wrapping` is the policy of wrapping tokens: it is not listed, cannot be changed, and
 * cannot be assigned by callers.
 */
import { LRUCache } from 'lru-cache'
import * as v from 'valibot'
import type { Put, Storage } from '../../storage/barrier/storage.ts'
import type { TextPosition } from '../../config/hcl.ts'
import { Rejection } from '../../engines/framework/engine.ts'
import { RECORD_COST, type SlicedWork } from '../../platform/sliced-work.ts'
import { Fault } from '../../platform/errors.ts'
import type { Identity } from '../../platform/operation.ts'
import { parseRecord } from '../../platform/stored-record.ts'
import { type Acl, type AclSource, compileAcl, rootAcl } from './acl.ts'
import { DEFAULT_POLICIES, FIXED_NAMES, HIDDEN_NAMES } from './policy-defaults.ts'
import { canonicalName, encodePolicyName, isPolicyName, POLICY_NAME_LENGTH_MAX } from './policy-name.ts'
import type { EntityFacts } from './policy-template.ts'
import { identityFrom, parsePolicy, type Policy, PolicyError, rootIdentity } from './policy.ts'

const PREFIX = 'sys/policy/'
const EXPIRY_PREFIX = 'sys/policy-expiry/'
/** Enough for about ten thousand rules. */
const TEXT_BYTES_MAX = 1 << 20
/** Sizes of the caches of parsed policies, in characters, and of compiled ones, in rules. */
const PARSED_CHARACTERS_MAX = 8 << 20
const COMPILED_RULES_MAX = 100_000
/** Expired policies that a write removes. */
const REMOVED_EXPIRED_MAX = 20
/** Time for which expired policies are kept, so that a clock that is wrong for hours removes no policy. */
const EXPIRED_KEPT_MS = 86_400_000

const recordSchema = v.object({
  name: v.string(),
  text: v.string(),
  version: v.number(),
  modifiedAtMs: v.number(),
  casRequired: v.boolean(),
  /** Absent for a policy that does not expire. */
  expiresAtMs: v.optional(v.number()),
  freeSlashes: v.boolean(),
  freeWildcards: v.boolean(),
})

export type PolicyRecord = v.InferOutput<typeof recordSchema>

/** EngineFields of a write. Absent fields keep their values, or have the defaults for a new policy. */
export interface PolicyChange {
  readonly text?: string | undefined
  readonly expiresAtMs?: number | undefined
  readonly casRequired?: boolean | undefined
  readonly freeSlashes?: boolean | undefined
  readonly freeWildcards?: boolean | undefined
}

/** A reference to an MFA method in a rule. */
export interface MfaMethodReference {
  /** Name or ID, as in the rule. */
  readonly method: string
  /** Path of the rule. */
  readonly path: string
  readonly at: TextPosition
}

interface ParsedPolicy {
  readonly record: PolicyRecord
  readonly policy: Policy
}

/** The policies of a set of names, compiled. */
interface CompiledPolicies {
  readonly names: readonly string[]
  readonly acl: Acl
  /** Used only if the ACL depends on the entity. */
  readonly byEntity: WeakMap<EntityFacts, Acl>
  readonly identity: (accessor: string) => Identity
  /** Set when one of the policies has changed, or the entry was evicted. */
  isDropped: boolean
}

export class PolicyStore {
  readonly #storage: Storage
  readonly #parsed = new LRUCache<string, ParsedPolicy>({
    maxSize: PARSED_CHARACTERS_MAX,
    sizeCalculation: ({ record }) => record.text.length + 1,
  })
  readonly #compiled = new LRUCache<string, CompiledPolicies>({
    maxSize: COMPILED_RULES_MAX,
    sizeCalculation: ({ acl, names }) => acl.rules.length + acl.barriers.length + names.length + 1,
    dispose: (compiled) => (compiled.isDropped = true),
  })
  /** By the array object in a token's entry, which is the same for most requests of a token. */
  readonly #byList = new WeakMap<readonly string[], CompiledPolicies>()

  /** `storage` is all of the barrier. */
  constructor(storage: Storage) {
    this.#storage = storage
  }

  /** The policies of a new core. */
  static initial(nowMs: number): Put[] {
    return Object.entries(DEFAULT_POLICIES).map(([name, text]) => recordPut(newRecord(name, text, nowMs)))
  }

  /** Undefined for an unknown or expired policy, and for `root`. */
  find(name: string, nowMs: number): PolicyRecord | undefined {
    return this.#find(canonicalName(name), nowMs)?.record
  }

  /** Whether a policy exists. `root` does. */
  has(name: string, nowMs: number): boolean {
    return canonicalName(name) === 'root' || this.find(name, nowMs) !== undefined
  }

  #find(name: string, nowMs: number): ParsedPolicy | undefined {
    const parsed = this.#load(name)
    return parsed && !hasExpired(parsed.record, nowMs) ? parsed : undefined
  }

  #load(name: string): ParsedPolicy | undefined {
    if (!isPolicyName(name)) return undefined
    const cached = this.#parsed.get(name)
    if (cached) return cached
    const bytes = this.#storage.get(PREFIX + encodePolicyName(name))
    const parsed = bytes && parseStored(bytes)
    if (parsed) this.#parsed.set(name, parsed)
    return parsed
  }

  /** Names with a prefix, sorted, without `root` and hidden ones. */
  names(prefix: string, nowMs: number): string[] {
    const expired = new Set(this.#expiredNames((path) => this.#storage.get(path), nowMs))
    const names = this.#storage.list(PREFIX).map(decodeURIComponent)
    return names.filter((name) => name.startsWith(prefix) && !expired.has(name) && !HIDDEN_NAMES.has(name)).sort()
  }

  /** The references to MFA methods in the rules of a policy; empty for an unknown policy. */
  mfaMethodsOf(name: string, nowMs: number): readonly MfaMethodReference[] {
    const rules = this.#find(name, nowMs)?.policy.paths ?? []
    return rules.flatMap(({ at, mfaMethods = [], path }) => mfaMethods.map((method) => ({ method, path, at })))
  }

  /** Sorted names of the policies with a rule that requires an MFA method, given by its ID and name. */
  *namesUsingMfaMethod(references: readonly string[], nowMs: number): SlicedWork<string[]> {
    const found: string[] = []
    for (const name of this.names('', nowMs)) {
      if (this.mfaMethodsOf(name, nowMs).some(({ method }) => references.includes(method))) found.push(name)
      yield RECORD_COST
    }
    return found
  }

  /** Names of the policies that have expired by `atMs`. `read` returns durable or pending entries. */
  #expiredNames(read: (path: string) => Buffer | undefined, atMs: number): string[] {
    const names = this.#storage.list(EXPIRY_PREFIX)
    const expired = names.filter((name) => Number(read(EXPIRY_PREFIX + name)?.toString('utf8')) <= atMs)
    return expired.map(decodeURIComponent)
  }

  /**
   * Resolves when the policy is durable. `cas` is the expected current version, 0 for none. With `patch` fields that are not given keep
   * their values. Throws a Rejection (400) and changes nothing if a check fails.
   */
  async write(
    given: string,
    change: PolicyChange,
    options: { nowMs: number; cas?: number; patch?: boolean },
  ): Promise<void> {
    const name = validateName(given)
    const { nowMs } = options
    if (FIXED_NAMES.has(name)) throw new Rejection(400, `cannot update "${name}" policy`)
    const before = this.#pending(name, nowMs)
    if (options.patch && !before) throw new Rejection(404)
    checkVersion(before, options.cas)
    const base = options.patch && before ? before : newRecord(name, '', nowMs)
    const version = (before?.version ?? 0) + 1
    const record = { ...changedRecord(base, change), version, modifiedAtMs: nowMs }
    checkText(record.text)
    const { expiresAtMs } = record
    const expiry = EXPIRY_PREFIX + encodePolicyName(name)
    const puts = [recordPut(record)]
    if (expiresAtMs !== undefined) puts.push({ path: expiry, value: Buffer.from(String(expiresAtMs)) })
    const removed = this.#expiredLongAgo(nowMs).filter((each) => each !== name)
    const deletes = [...removed.flatMap(entriesOf), ...(expiresAtMs === undefined ? [expiry] : [])]
    await this.#storage.commit({ puts, deletes })
    for (const each of [name, ...removed]) this.#drop(each)
  }

  /** Resolves when the policy does not exist. Throws a Rejection (400) for a policy that cannot be deleted. */
  async remove(given: string): Promise<void> {
    const name = validateName(given)
    if (name === 'default') throw new Rejection(400, 'cannot delete default policy')
    if (FIXED_NAMES.has(name)) throw new Rejection(400, `cannot delete "${name}" policy`)
    await this.#storage.commit({ puts: [], deletes: entriesOf(name) })
    this.#drop(name)
  }

  #pending(name: string, nowMs: number): PolicyRecord | undefined {
    const bytes = this.#storage.pending(PREFIX + encodePolicyName(name))
    const record = bytes && parseRecord(recordSchema, bytes, 'a policy')
    return record && hasExpired(record, nowMs) ? undefined : record
  }

  #expiredLongAgo(nowMs: number): string[] {
    const expired = this.#expiredNames((path) => this.#storage.pending(path), nowMs - EXPIRED_KEPT_MS)
    return expired.slice(0, REMOVED_EXPIRED_MAX)
  }

  #drop(name: string): void {
    this.#parsed.delete(name)
    for (const [key, { names }] of this.#compiled.entries()) if (names.includes(name)) this.#compiled.delete(key)
  }

  /** The ACL for paths of the secrets core. `entity` fills templates; ACLs are cached by this object. */
  acl(names: readonly string[], nowMs: number, entity?: EntityFacts): Acl {
    if (names.includes('root')) return rootAcl
    const compiled = this.#compile(names, nowMs)
    if (!entity || !compiled.acl.templated) return compiled.acl
    const cached = compiled.byEntity.get(entity)
    if (cached && isInForce(cached, nowMs)) return cached
    const acl = compileAcl(this.#sources(compiled.names), nowMs, entity)
    compiled.byEntity.set(entity, acl)
    return acl
  }

  /** The identity for operations on hosts. `accessor` is that of the token. */
  identity(names: readonly string[], nowMs: number, accessor: string): Identity {
    if (names.includes('root')) return { ...rootIdentity, accessor }
    return this.#compile(names, nowMs).identity(accessor)
  }

  #compile(given: readonly string[], nowMs: number): CompiledPolicies {
    const cached = this.#byList.get(given)
    if (cached && !cached.isDropped && isInForce(cached.acl, nowMs)) return cached
    const compiled = this.#compileNames(given, nowMs)
    this.#byList.set(given, compiled)
    return compiled
  }

  #compileNames(given: readonly string[], nowMs: number): CompiledPolicies {
    const names = [...new Set(given)].sort()
    // As JSON, because names can contain any separator.
    const key = JSON.stringify(names)
    const cached = this.#compiled.get(key)
    if (cached && isInForce(cached.acl, nowMs)) return cached
    const sources = this.#sources(names)
    const current = sources.filter(({ expiresAtMs = Number.POSITIVE_INFINITY }) => expiresAtMs > nowMs)
    const compiled: CompiledPolicies = {
      names,
      acl: compileAcl(sources, nowMs),
      byEntity: new WeakMap(),
      identity: (accessor) =>
        identityFrom(
          current.map(({ policy }) => policy),
          accessor,
        ),
      isDropped: false,
    }
    this.#compiled.set(key, compiled)
    return compiled
  }

  #sources(names: readonly string[]): AclSource[] {
    return names.flatMap((name) => {
      const parsed = this.#load(name)
      if (!parsed) return []
      const { expiresAtMs, freeSlashes, freeWildcards } = parsed.record
      const expiry = expiresAtMs === undefined ? {} : { expiresAtMs }
      return [{ name, policy: parsed.policy, freeSlashes, freeWildcards, ...expiry }]
    })
  }
}

function validateName(given: string): string {
  const name = canonicalName(given)
  if (name === '') throw new Rejection(400, 'missing policy name')
  if (name.length > POLICY_NAME_LENGTH_MAX)
    throw new Rejection(400, `policy name is longer than ${POLICY_NAME_LENGTH_MAX} characters`)
  if (!isPolicyName(name))
    throw new Rejection(400, 'policy name has unprintable characters or is too long when encoded')
  return name
}

function entriesOf(name: string): string[] {
  return [PREFIX + encodePolicyName(name), EXPIRY_PREFIX + encodePolicyName(name)]
}

function hasExpired({ expiresAtMs }: PolicyRecord, nowMs: number): boolean {
  return expiresAtMs !== undefined && expiresAtMs <= nowMs
}

function isInForce({ validFromMs, validUntilMs }: Acl, nowMs: number): boolean {
  return nowMs >= validFromMs && nowMs < validUntilMs
}

function checkVersion(before: PolicyRecord | undefined, cas: number | undefined): void {
  if (cas === undefined) {
    if (before?.casRequired) throw new Rejection(400, 'check-and-set parameter required for this call')
    return
  }
  // -1 means the same as 0: there must be no policy.
  if (Math.max(cas, 0) !== (before?.version ?? 0)) {
    throw new Rejection(400, 'check-and-set parameter did not match the current version')
  }
}

function checkText(text: string): void {
  if (text === '') throw new Rejection(400, "'policy' parameter not supplied or empty")
  if (Buffer.byteLength(text) > TEXT_BYTES_MAX) {
    throw new Rejection(400, `failed to parse policy: longer than ${TEXT_BYTES_MAX} bytes, split it`)
  }
  try {
    parsePolicy(text)
  } catch (error) {
    if (!(error instanceof PolicyError)) throw error
    throw new Rejection(400, `failed to parse policy: ${error.message}`)
  }
}

function newRecord(name: string, text: string, nowMs: number): PolicyRecord {
  return { name, text, version: 1, modifiedAtMs: nowMs, casRequired: false, freeSlashes: false, freeWildcards: false }
}

function changedRecord(before: PolicyRecord, change: PolicyChange): PolicyRecord {
  const expiresAtMs = change.expiresAtMs ?? before.expiresAtMs
  return {
    ...before,
    text: change.text ?? before.text,
    casRequired: change.casRequired ?? before.casRequired,
    freeSlashes: change.freeSlashes ?? before.freeSlashes,
    freeWildcards: change.freeWildcards ?? before.freeWildcards,
    ...(expiresAtMs === undefined ? {} : { expiresAtMs }),
  }
}

function recordPut(record: PolicyRecord): Put {
  return { path: PREFIX + encodePolicyName(record.name), value: Buffer.from(JSON.stringify(record)) }
}

function parseStored(bytes: Buffer): ParsedPolicy {
  const record = parseRecord(recordSchema, bytes, 'a policy')
  try {
    return { record, policy: parsePolicy(record.text) }
  } catch (error) {
    if (!(error instanceof PolicyError)) throw error
    // Fail closed: an unreadable rule could be one that denies.
    throw new Fault(`the stored policy ${JSON.stringify(record.name)} has errors: ${error.message}`)
  }
}
