/**
 * A simple model of versioned secrets, which predicts every response. It has no store, no pages and no batches:
 * operations change plain objects one after another.
 */
type Json = Record<string, unknown>

export type KvOperation =
  | { readonly kind: 'put' | 'patch'; readonly name: string; readonly data: Json; readonly cas?: number }
  | { readonly kind: 'delete' | 'undelete' | 'destroy'; readonly name: string; readonly versions: readonly number[] }
  | { readonly kind: 'metadata' | 'patch metadata'; readonly name: string; readonly settings: Json }
  | { readonly kind: 'read' | 'subkeys'; readonly name: string; readonly version: number }
  | { readonly kind: 'delete newest' | 'remove' | 'read metadata' | 'list' | 'scan'; readonly name: string }
  | { readonly kind: 'config'; readonly settings: Json }
  | KvManyOperation

/** An operation that changes several secrets or none. */
export type KvManyOperation =
  | { readonly kind: 'transaction'; readonly parts: readonly KvPart[] }
  | { readonly kind: 'copy' | 'move'; readonly name: string; readonly to: string }
  | { readonly kind: 'import'; readonly name: string; readonly secrets: Readonly<Record<string, ImportedSecret>> }

export type KvPart =
  | { readonly kind: 'put' | 'patch'; readonly name: string; readonly data: Json; readonly cas?: number }
  | { readonly kind: 'delete' | 'undelete' | 'destroy'; readonly name: string; readonly versions: readonly number[] }
  | { readonly kind: 'delete newest' | 'remove'; readonly name: string }
  | { readonly kind: 'check'; readonly name: string; readonly cas: number }

export interface ImportedSecret {
  readonly data: Json
  readonly custom_metadata?: Json
}

export interface Expected {
  readonly status: number
  readonly data?: unknown
  readonly errors?: readonly string[]
}

interface Version {
  readonly data: unknown
  createdMs: number
  deletedMs: number
  destroyed: boolean
  createdBy: Json
  deletedBy: Json | null
}

interface Settings {
  max_versions: number
  cas_required: boolean
  /** Seconds. */
  delete_version_after: number
  custom_metadata: Json | null
}

interface Key extends Settings {
  current: number
  oldest: number
  metadataVersion: number
  createdMs: number
  updatedMs: number
  updatedBy: Json
  versions: Map<number, Version>
}

const REQUIRED = 'check-and-set parameter required for this call'
const MISMATCH = 'check-and-set parameter did not match the current version'
const time = (ms: number) => (ms === 0 ? '' : new Date(ms).toISOString())
const by = (operation: string) => ({ actor: 'root', operation })
const isObject = (value: unknown): value is Json => typeof value === 'object' && value !== null && !Array.isArray(value)
const NO_SETTINGS: Settings = { max_versions: 0, cas_required: false, delete_version_after: 0, custom_metadata: null }

export class KvModel {
  config: Settings = { ...NO_SETTINGS }
  keys = new Map<string, Key>()

  copy(): KvModel {
    const copy = new KvModel()
    Object.assign(copy, structuredClone({ config: this.config, keys: this.keys }))
    return copy
  }

  apply(operation: KvOperation, now: number): Expected {
    if (operation.kind === 'config') {
      Object.assign(this.config, operation.settings)
      return { status: 204 }
    }
    if (operation.kind === 'transaction') return this.#transaction(operation.parts, now)
    const key = this.keys.get(operation.name)
    switch (operation.kind) {
      case 'copy':
      case 'move':
        return this.#copy(operation, key)
      case 'import':
        return this.#import(operation.name, Object.entries(operation.secrets), now)
      case 'put':
      case 'patch':
        return this.#write(operation, key, now)
      case 'metadata':
      case 'patch metadata':
        return this.#settings(operation, key, now)
      case 'remove':
        this.keys.delete(operation.name)
        return { status: 204 }
      case 'read':
      case 'subkeys':
        return this.#read(operation, key, now)
      case 'read metadata':
        return key ? { status: 200, data: shown(key) } : { status: 404, errors: [] }
      case 'list':
      case 'scan':
        return this.#list(operation.name, operation.kind)
      case 'delete newest':
        if (key) this.#mark('delete', key, [key.current], now)
        return { status: 204 }
      default:
        if (operation.versions.length === 0) return { status: 400 }
        if (key) this.#mark(operation.kind, key, operation.versions, now)
        return { status: 204 }
    }
  }

  /** On a copy that replaces this model if all parts succeed. */
  #transaction(parts: readonly KvPart[], now: number): Expected {
    const after = this.copy()
    const results: unknown[] = []
    for (const part of parts) {
      const isOther = part.kind === 'check' && part.cas !== (after.keys.get(part.name)?.current ?? 0)
      const { data, status }: Expected =
        part.kind === 'check' ? { status: isOther ? 400 : 204 } : after.apply(part, now)
      if (status >= 400) return { status }
      results.push({ path: part.name, ...Object(data) })
    }
    Object.assign(this, { config: after.config, keys: after.keys })
    return { status: 200, data: { results } }
  }

  #copy({ kind, name, to }: { kind: 'copy' | 'move'; name: string; to: string }, key: Key | undefined): Expected {
    if (!key) return { status: 404 }
    if (this.keys.has(to)) return { status: 400 }
    this.keys.set(to, { ...structuredClone(key), updatedBy: by('create') })
    if (kind === 'move') this.keys.delete(name)
    return { status: 200, data: { path: to, current_version: key.current, versions: key.versions.size } }
  }

  #import(folder: string, secrets: readonly (readonly [string, ImportedSecret])[], now: number): Expected {
    const counts: Record<string, number> = { created: 0, updated: 0, metadata: 0, unchanged: 0 }
    const done: Record<string, string> = {}
    for (const [each, { custom_metadata: given, data }] of secrets) {
      const name = folder + each
      const known = this.keys.get(name)
      const live = known?.versions.get(known.current)
      const isSame = live && !isGone(live, now) && JSON.stringify(live.data) === JSON.stringify(data)
      if (!isSame) this.#write({ kind: 'put', name, data, cas: known?.current ?? 0 }, known, now)
      const key = this.keys.get(name)
      const custom = given && Object.keys(given).length > 0 ? given : null
      const isNew = given !== undefined && JSON.stringify(custom) !== JSON.stringify(known?.custom_metadata ?? null)
      if (key && isNew) {
        Object.assign(key, { custom_metadata: custom, updatedMs: now, updatedBy: by('update') })
        key.metadataVersion++
      }
      const what = !known ? 'created' : !isSame ? 'updated' : isNew ? 'metadata' : 'unchanged'
      done[name] = what
      counts[what] = (counts[what] ?? 0) + 1
    }
    return { status: 200, data: { ...counts, secrets: done, dry_run: false } }
  }

  #write(
    { kind, name, data, cas }: KvOperation & { kind: 'put' | 'patch' },
    known: Key | undefined,
    now: number,
  ): Expected {
    if (kind === 'patch' && !known) return { status: 404 }
    if (cas === undefined && (this.config.cas_required || known?.cas_required))
      return { status: 400, errors: [REQUIRED] }
    if (cas !== undefined && cas !== (known?.current ?? 0)) return { status: 400, errors: [MISMATCH] }
    const newest = known?.versions.get(known.current)
    if (kind === 'patch' && !newest) return { status: 404 }
    if (kind === 'patch' && newest && isGone(newest, now))
      return { status: 404, data: versionShown(known as Key, (known as Key).current) }
    const key = known ?? this.#fresh(name, now)
    key.current++
    key.versions.set(key.current, {
      data: kind === 'patch' ? merged(newest?.data, data) : data,
      createdMs: now,
      deletedMs: this.#deletion(key, now),
      destroyed: false,
      createdBy: by(known ? (kind === 'patch' ? 'patch' : 'update') : 'create'),
      deletedBy: null,
    })
    const most = key.max_versions || this.config.max_versions || 10
    if (key.current - key.oldest >= most) {
      key.oldest = key.current - most + 1
      for (const version of key.versions.keys()) if (version < key.oldest) key.versions.delete(version)
    }
    key.updatedMs = now
    key.updatedBy = key.versions.get(key.current)?.createdBy ?? {}
    return { status: 200, data: versionShown(key, key.current) }
  }

  #fresh(name: string, now: number): Key {
    const numbers = { current: 0, oldest: 0, metadataVersion: 0, createdMs: now, updatedMs: now }
    const key = { ...NO_SETTINGS, ...numbers, updatedBy: {}, versions: new Map<number, Version>() }
    this.keys.set(name, key)
    return key
  }

  #deletion(key: Settings, now: number): number {
    const [engine, own] = [this.config.delete_version_after, key.delete_version_after]
    if (engine < 0 || engine + own === 0) return 0
    return now + 1000 * (engine === 0 ? own : own === 0 ? engine : Math.min(engine, own))
  }

  #mark(kind: 'delete' | 'undelete' | 'destroy', key: Key, numbers: readonly number[], now: number): void {
    for (const number of numbers) {
      const version = key.versions.get(number)
      if (!version || version.destroyed) continue
      if (kind === 'delete' && isGone(version, now)) continue
      if (kind === 'undelete' && version.deletedMs === 0) continue
      if (kind === 'destroy') version.destroyed = true
      else version.deletedMs = kind === 'delete' ? now : this.#deletion(key, now)
      if (kind !== 'destroy') version.deletedBy = kind === 'delete' ? by('delete') : null
      key.updatedBy = by(kind)
    }
  }

  #settings(
    { kind, name, settings }: KvOperation & { settings: Json; name: string },
    known: Key | undefined,
    now: number,
  ): Expected {
    if (kind === 'patch metadata' && !known) return { status: 404 }
    const key = known ?? this.#fresh(name, now)
    const custom = settings['custom_metadata'] as Json | undefined
    const kept = kind === 'metadata' ? custom : (merged(key.custom_metadata ?? {}, custom ?? {}) as Json)
    Object.assign(key, settings)
    if (custom) key.custom_metadata = Object.keys(kept ?? {}).length === 0 ? null : (kept ?? null)
    key.metadataVersion++
    key.updatedMs = now
    key.updatedBy = by(known ? (kind === 'metadata' ? 'update' : 'patch') : 'create')
    return { status: settings['cas_required'] === false && this.config.cas_required ? 200 : 204 }
  }

  #read(
    { kind, version: asked }: { kind: 'read' | 'subkeys'; version: number },
    key: Key | undefined,
    now: number,
  ): Expected {
    const number = asked === 0 ? (key?.current ?? 0) : asked
    const version = key?.versions.get(number)
    if (!key || !version) return { status: 404, errors: [] }
    const metadata = versionShown(key, number)
    const gone = isGone(version, now)
    if (kind === 'subkeys')
      return { status: gone ? 404 : 200, data: { metadata, subkeys: gone ? null : leafless(version.data) } }
    return { status: gone ? 404 : 200, data: { data: gone ? null : version.data, metadata } }
  }

  #list(folder: string, kind: 'list' | 'scan'): Expected {
    const below = [...this.keys.keys()]
      .filter((name) => name.startsWith(folder))
      .map((name) => name.slice(folder.length))
    const names = kind === 'scan' ? below : below.map((name) => /^[^/]*\/?/.exec(name)?.[0] ?? '')
    const keys = [...new Set(names)].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))
    if (keys.length === 0) return kind === 'list' ? { status: 404, errors: [] } : { status: 200, data: {} }
    return { status: 200, data: { keys } }
  }

  /** All secrets as reads return them: the metadata of each and the data of its readable versions. */
  visible(now: number): Record<string, unknown> {
    const all = [...this.keys].map(([name, key]) => {
      const live = [...key.versions].filter(([, version]) => !isGone(version, now))
      return [name, { ...shown(key), live: Object.fromEntries(live.map(([number, { data }]) => [number, data])) }]
    })
    return Object.fromEntries(all) as Record<string, unknown>
  }
}

function isGone({ deletedMs, destroyed }: Version, now: number): boolean {
  return destroyed || (deletedMs !== 0 && deletedMs <= now)
}

function merged(target: unknown, patch: unknown): unknown {
  if (!isObject(patch)) return patch
  const out: Json = isObject(target) ? { ...target } : {}
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) delete out[name]
    else out[name] = merged(out[name], value)
  }
  return out
}

function leafless(value: unknown): unknown {
  if (!isObject(value)) return null
  const isLeaf = (each: unknown) => !isObject(each) || Object.keys(each).length === 0
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, isLeaf(each) ? null : leafless(each)]))
}

function versionShown(key: Key, number: number): Json {
  const { createdMs = 0, deletedMs = 0, destroyed = false } = key.versions.get(number) ?? {}
  const times = { created_time: time(createdMs), deletion_time: time(deletedMs) }
  return { ...times, custom_metadata: key.custom_metadata, destroyed, version: number }
}

function shown(key: Key): Json {
  const versions = [...key.versions].map(([number, each]) => {
    const times = { created_time: time(each.createdMs), deletion_time: time(each.deletedMs) }
    return [number, { ...times, destroyed: each.destroyed, created_by: each.createdBy, deleted_by: each.deletedBy }]
  })
  const [hours, minutes, seconds] = [
    key.delete_version_after / 3600,
    (key.delete_version_after % 3600) / 60,
    key.delete_version_after % 60,
  ].map(Math.floor)
  return {
    cas_required: key.cas_required,
    created_time: time(key.createdMs),
    current_metadata_version: key.metadataVersion,
    current_version: key.current,
    custom_metadata: key.custom_metadata,
    delete_version_after: hours
      ? `${hours}h${minutes}m${seconds}s`
      : minutes
        ? `${minutes}m${seconds}s`
        : `${seconds}s`,
    last_updated_by: key.updatedBy,
    max_versions: key.max_versions,
    metadata_cas_required: false,
    oldest_version: key.oldest,
    updated_time: time(key.updatedMs),
    versions: Object.fromEntries(versions),
  }
}
