/**
 * The policies that are kept, and what they amount to for a caller.
 *
 * Each policy is an entry of its own, `sys/policy/<name>`; one that is to end has a second, `sys/policy-expiry/<name>`, so
 * that a list need not read them all. Nothing is read at the start. A policy is parsed when it is first asked for, and an
 * ACL compiled when its set of names is; both are kept, within bounds, and forgotten when a policy's entry has changed,
 * after the change is durable and before its author is told. A name without a policy grants nothing, until there is one.
 *
 * `root` is no entry: it grants everything. `response-wrapping` is the policy of wrapping tokens; nobody sees it in lists,
 * gives it to a token or changes it.
 */
import { LRUCache } from 'lru-cache'
import * as v from 'valibot'
import type { Put, Storage } from '../../storage/barrier/storage.ts'
import type { TextPosition } from '../../config/hcl.ts'
import { Rejection } from '../../engines/framework/engine.ts'
import { UNPRINTABLE } from '../../engines/framework/fields.ts'
import { RECORD_COST, type SlicedWork } from '../../platform/sliced-work.ts'
import { Fault } from '../../platform/errors.ts'
import type { Identity } from '../../platform/operation.ts'
import { compileAcl, rootAcl } from './acl.ts'
import type { Acl, AclSource } from './acl.ts'
import { DEFAULT_POLICIES, FIXED_NAMES, HIDDEN_NAMES } from './policy-defaults.ts'
import { canonicalName } from './policy-name.ts'
import type { EntityFacts } from './policy-template.ts'
import { identityFrom, parsePolicy, PolicyError, root } from './policy.ts'
import type { Policy } from './policy.ts'

const PREFIX = 'sys/policy/'
const EXPIRY_PREFIX = 'sys/policy-expiry/'
/** A policy of this length has some ten thousand rules; whoever needs more needs another policy. */
const TEXT_BYTES_MAX = 1 << 20
const NAME_LENGTH_MAX = 512
/** As it stands in the path of its entry, where a letter may take nine characters. */
const ENCODED_LENGTH_MAX = 3072
/** Characters of policies that are kept parsed, and rules that are kept compiled. */
const PARSED_CHARACTERS_MAX = 8 << 20
const COMPILED_RULES_MAX = 100_000
const SWEPT_AT_ONCE = 20
const SWEPT_AFTER_MS = 86_400_000

const recordSchema = v.object({
  name: v.string(),
  text: v.string(),
  version: v.number(),
  modifiedAtMs: v.number(),
  casRequired: v.boolean(),
  /** Absent: it does not end. */
  expiresAtMs: v.optional(v.number()),
  freeSlashes: v.boolean(),
  freeWildcards: v.boolean(),
})

/** What is kept of a policy. */
export type PolicyRecord = v.InferOutput<typeof recordSchema>

/** What a writer says; what is absent is left as it is, or is the default in a policy that begins anew. */
export interface PolicyChange {
  readonly text?: string | undefined
  readonly expiresAtMs?: number | undefined
  readonly casRequired?: boolean | undefined
  readonly freeSlashes?: boolean | undefined
  readonly freeWildcards?: boolean | undefined
}

/** What a rule says of an MFA method. */
export interface NamedMfaMethod {
  /** Its name or ID, as the rule has it. */
  readonly method: string
  /** Of the rule. */
  readonly path: string
  readonly at: TextPosition
}

interface Kept {
  readonly record: PolicyRecord
  readonly policy: Policy
}

/** What a set of names amounts to. */
interface Compiled {
  readonly names: readonly string[]
  readonly acl: Acl
  /** Only where templates tell callers apart. */
  readonly byEntity: WeakMap<EntityFacts, Acl>
  readonly identity: (accessor: string) => Identity
  /** Set when a policy of these names has changed, or when there was no room for it. */
  isDropped: boolean
}

export class PolicyStore {
  readonly #storage: Storage
  readonly #kept = new LRUCache<string, Kept>({
    maxSize: PARSED_CHARACTERS_MAX,
    sizeCalculation: ({ record }) => record.text.length + 1,
  })
  readonly #compiled = new LRUCache<string, Compiled>({
    maxSize: COMPILED_RULES_MAX,
    sizeCalculation: ({ acl, names }) => acl.rules.length + acl.barriers.length + names.length + 1,
    dispose: (compiled) => (compiled.isDropped = true),
  })
  /** By the list itself that a token keeps its names in: most requests bring one that was seen before. */
  readonly #byList = new WeakMap<readonly string[], Compiled>()

  /** `storage` is all of the barrier. */
  constructor(storage: Storage) {
    this.#storage = storage
  }

  /** What a fresh core has of policies. */
  static initial(nowMs: number): Put[] {
    return Object.entries(DEFAULT_POLICIES).map(([name, text]) => putOf(newRecord(name, text, nowMs)))
  }

  /** The policy of a name; undefined where there is none (any more). `root` is none. */
  find(name: string, nowMs: number): PolicyRecord | undefined {
    return this.#find(canonicalName(name), nowMs)?.record
  }

  /** Whether a token with this policy would have any: `root` is one. */
  has(name: string, nowMs: number): boolean {
    return canonicalName(name) === 'root' || this.find(name, nowMs) !== undefined
  }

  #find(name: string, nowMs: number): Kept | undefined {
    const kept = this.#load(name)
    return kept && !hasEnded(kept.record, nowMs) ? kept : undefined
  }

  #load(name: string): Kept | undefined {
    if (!isPolicyName(name)) return undefined
    const known = this.#kept.get(name)
    if (known) return known
    const bytes = this.#storage.get(PREFIX + encodeName(name))
    const kept = bytes && parseKept(bytes)
    if (kept) this.#kept.set(name, kept)
    return kept
  }

  /** Names below a prefix, in order, without those that nobody may use; `root` is not among them. */
  names(prefix: string, nowMs: number): string[] {
    const ended = new Set(this.#endings((path) => this.#storage.get(path), nowMs))
    const names = this.#storage.list(PREFIX).map(decodeURIComponent)
    return names.filter((name) => name.startsWith(prefix) && !ended.has(name) && !HIDDEN_NAMES.has(name)).sort()
  }

  /** MFA methods that the rules of a policy name, each with its rule; empty where there is no such policy. */
  mfaMethodsOf(name: string, nowMs: number): readonly NamedMfaMethod[] {
    const rules = this.#find(name, nowMs)?.policy.paths ?? []
    return rules.flatMap(({ at, mfaMethods = [], path }) => mfaMethods.map((method) => ({ method, path, at })))
  }

  /** Names of the policies with a rule that asks for a code of an MFA method, given by its ID and its name; in order. */
  *namingMfaMethod(references: readonly string[], nowMs: number): SlicedWork<string[]> {
    const found: string[] = []
    for (const name of this.names('', nowMs)) {
      if (this.mfaMethodsOf(name, nowMs).some(({ method }) => references.includes(method))) found.push(name)
      yield RECORD_COST
    }
    return found
  }

  /** Names of policies that had ended at a moment, as `read` sees their entries. */
  #endings(read: (path: string) => Buffer | undefined, atMs: number): string[] {
    const names = this.#storage.list(EXPIRY_PREFIX)
    const ended = names.filter((name) => Number(read(EXPIRY_PREFIX + name)?.toString('utf8')) <= atMs)
    return ended.map(decodeURIComponent)
  }

  /**
   * Writes a policy; resolves when it is durable. `cas` is the version that is meant, 0 for none; `patch` leaves what is not
   * given as it is. Throws a Rejection (400) and changes nothing for what cannot be.
   */
  async write(
    given: string,
    change: PolicyChange,
    how: { nowMs: number; cas?: number; patch?: boolean },
  ): Promise<void> {
    const name = checkedName(given)
    const { nowMs } = how
    if (FIXED_NAMES.has(name)) throw new Rejection(400, `cannot update "${name}" policy`)
    const before = this.#pending(name, nowMs)
    if (how.patch && !before) throw new Rejection(404)
    checkVersion(before, how.cas)
    const base = how.patch && before ? before : newRecord(name, '', nowMs)
    const version = (before?.version ?? 0) + 1
    const record = { ...changed(base, change), version, modifiedAtMs: nowMs }
    checkText(record.text)
    const { expiresAtMs } = record
    const expiry = EXPIRY_PREFIX + encodeName(name)
    const puts = [putOf(record)]
    if (expiresAtMs !== undefined) puts.push({ path: expiry, value: Buffer.from(String(expiresAtMs)) })
    const swept = this.#swept(nowMs).filter((each) => each !== name)
    const deletes = [...swept.flatMap(entriesOf), ...(expiresAtMs === undefined ? [expiry] : [])]
    await this.#storage.commit({ puts, deletes })
    for (const each of [name, ...swept]) this.#forget(each)
  }

  /** Resolves when the policy is gone, also where there was none. Throws a Rejection (400) for one that must stay. */
  async remove(given: string): Promise<void> {
    const name = checkedName(given)
    if (name === 'default') throw new Rejection(400, 'cannot delete default policy')
    if (FIXED_NAMES.has(name)) throw new Rejection(400, `cannot delete "${name}" policy`)
    await this.#storage.commit({ puts: [], deletes: entriesOf(name) })
    this.#forget(name)
  }

  #pending(name: string, nowMs: number): PolicyRecord | undefined {
    const bytes = this.#storage.pending(PREFIX + encodeName(name))
    const record = bytes && parseRecord(bytes)
    return record && hasEnded(record, nowMs) ? undefined : record
  }

  /** Policies that ended long ago, to go with the next change. A clock that was wrong for hours takes none of them. */
  #swept(nowMs: number): string[] {
    const ended = this.#endings((path) => this.#storage.pending(path), nowMs - SWEPT_AFTER_MS)
    return ended.slice(0, SWEPT_AT_ONCE)
  }

  #forget(name: string): void {
    this.#kept.delete(name)
    for (const [key, { names }] of this.#compiled.entries()) if (names.includes(name)) this.#compiled.delete(key)
  }

  /** What callers with these policies may do in the secrets core. `entity` fills templates; its object tells callers apart. */
  acl(names: readonly string[], nowMs: number, entity?: EntityFacts): Acl {
    if (names.includes('root')) return rootAcl
    const compiled = this.#compile(names, nowMs)
    if (!entity || !compiled.acl.templated) return compiled.acl
    const known = compiled.byEntity.get(entity)
    if (known && holds(known, nowMs)) return known
    const acl = compileAcl(this.#sources(compiled.names), nowMs, entity)
    compiled.byEntity.set(entity, acl)
    return acl
  }

  /** What callers with these policies may do on hosts. `accessor` is the public name of the token. */
  identity(names: readonly string[], nowMs: number, accessor: string): Identity {
    if (names.includes('root')) return { ...root, accessor }
    return this.#compile(names, nowMs).identity(accessor)
  }

  #compile(given: readonly string[], nowMs: number): Compiled {
    const seen = this.#byList.get(given)
    if (seen && !seen.isDropped && holds(seen.acl, nowMs)) return seen
    const compiled = this.#compileNames(given, nowMs)
    this.#byList.set(given, compiled)
    return compiled
  }

  #compileNames(given: readonly string[], nowMs: number): Compiled {
    const names = [...new Set(given)].sort()
    // No two lists have the same key, whatever characters are in their names.
    const key = JSON.stringify(names)
    const known = this.#compiled.get(key)
    if (known && holds(known.acl, nowMs)) return known
    const sources = this.#sources(names)
    const current = sources.filter(({ expiresAtMs = Number.POSITIVE_INFINITY }) => expiresAtMs > nowMs)
    const compiled: Compiled = {
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
      const kept = this.#load(name)
      if (!kept) return []
      const { expiresAtMs, freeSlashes, freeWildcards } = kept.record
      const ending = expiresAtMs === undefined ? {} : { expiresAtMs }
      return [{ name, policy: kept.policy, freeSlashes, freeWildcards, ...ending }]
    })
  }
}

/** Whether there could be a policy of this name. Those that come in a body are not as well behaved as those in a path. */
export function isPolicyName(name: string): boolean {
  if (name === '' || name.length > NAME_LENGTH_MAX || !name.isWellFormed()) return false
  return !UNPRINTABLE.test(name) && encodeName(name).length <= ENCODED_LENGTH_MAX
}

function checkedName(given: string): string {
  const name = canonicalName(given)
  if (name === '') throw new Rejection(400, 'policy name must be given')
  if (name.length > NAME_LENGTH_MAX)
    throw new Rejection(400, `policy name is longer than ${NAME_LENGTH_MAX} characters`)
  if (!isPolicyName(name)) throw new Rejection(400, 'policy name has characters that cannot be, or too many rare ones')
  return name
}

/** One segment, so that a name with slashes is no folder. */
function encodeName(name: string): string {
  return encodeURIComponent(name)
}

function entriesOf(name: string): string[] {
  return [PREFIX + encodeName(name), EXPIRY_PREFIX + encodeName(name)]
}

function hasEnded({ expiresAtMs }: PolicyRecord, nowMs: number): boolean {
  return expiresAtMs !== undefined && expiresAtMs <= nowMs
}

function holds({ validFromMs, validUntilMs }: Acl, nowMs: number): boolean {
  return nowMs >= validFromMs && nowMs < validUntilMs
}

function checkVersion(before: PolicyRecord | undefined, cas: number | undefined): void {
  if (cas === undefined) {
    if (before?.casRequired) throw new Rejection(400, 'check-and-set parameter required for this call')
    return
  }
  // -1 says that there must be none, as 0 does.
  if (Math.max(cas, 0) !== (before?.version ?? 0)) {
    throw new Rejection(400, 'check-and-set parameter did not match the current version')
  }
}

function checkText(text: string): void {
  if (text === '') throw new Rejection(400, "'policy' parameter not supplied or empty")
  if (Buffer.byteLength(text) > TEXT_BYTES_MAX) {
    throw new Rejection(400, `failed to parse policy: it is longer than ${TEXT_BYTES_MAX} bytes, divide it`)
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

function changed(before: PolicyRecord, change: PolicyChange): PolicyRecord {
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

function putOf(record: PolicyRecord): Put {
  return { path: PREFIX + encodeName(record.name), value: Buffer.from(JSON.stringify(record)) }
}

function parseRecord(bytes: Buffer): PolicyRecord {
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), recordSchema), bytes.toString('utf8'))
  if (!parsed.success) throw new Fault('the entry of a policy is damaged')
  return parsed.output
}

function parseKept(bytes: Buffer): Kept {
  const record = parseRecord(bytes)
  try {
    return { record, policy: parsePolicy(record.text) }
  } catch (error) {
    if (!(error instanceof PolicyError)) throw error
    // Nobody may go on without a rule that perhaps denies.
    throw new Fault(`the policy ${JSON.stringify(record.name)} cannot be read: ${error.message}`)
  }
}
