/** Random operations on a few secrets, so that they conflict, and the request of each. */
import type { Random } from './frames.ts'
import type { KvManyOperation, KvOperation, KvPart } from './kv-model.ts'

type Json = Record<string, unknown>

const NAMES = ['a', 'b', 'a/b', 'a/c', 'd/e/f', 'd/e/g', 'ü/€', '\u{1f600}', 'x y', 'p%q', 'a.b', 'd'] as const
/** Free names as targets of copies and moves. */
const MOVED = ['m', 'm/n', 'd/e/m', 'o/p/q', 'o/p/r'] as const
const FOLDERS = ['', 'a/', 'd/', 'd/e/', 'ü/', 'none/'] as const
const MEMBERS = ['x', 'y', 'z', 'ü'] as const

function value(random: Random, depth: number): unknown {
  const kind = random.between(0, depth > 0 ? 7 : 4)
  if (kind === 0) return random.between(-5, 1e6)
  if (kind === 1) return 'text'.repeat(random.between(0, 40))
  if (kind === 2) return random.chance(0.5)
  if (kind === 3) return [random.between(0, 9), 'list']
  if (kind === 4) return null
  return members(random, depth - 1)
}

function members(random: Random, depth: number): Json {
  const names = MEMBERS.filter(() => random.chance(0.6))
  return Object.fromEntries(names.map((name) => [name, value(random, depth)]))
}

function settings(random: Random, isPatch: boolean): Json {
  const custom: Json = {
    owner: `o${random.between(0, 3)}`,
    ...(isPatch && random.chance(0.5) ? { owner: null, more: 'm' } : {}),
  }
  const all: Json = {
    max_versions: random.pick([0, 0, 1, 2, 3, 5, 12]),
    cas_required: random.chance(0.2),
    delete_version_after: random.pick([0, 0, 5, 60, 7200]),
    custom_metadata: isPatch || random.chance(0.7) ? custom : {},
  }
  const chosen = Object.entries(all).filter(() => random.chance(0.5))
  return chosen.length === 0 ? { max_versions: 4 } : Object.fromEntries(chosen)
}

function versions(random: Random): number[] {
  return Array.from({ length: random.between(0, 3) }, () => random.between(0, 14))
}

/** One part of a transaction: changes or reads one secret. */
function randomPart(random: Random, current: (name: string) => number): KvPart {
  const name = random.pick(NAMES)
  const cas = random.chance(0.2) ? { cas: random.pick([current(name), current(name), current(name), 0]) } : {}
  const dice = random.between(0, 9)
  if (dice < 4) return { kind: 'put', name, data: members(random, 2), ...cas }
  if (dice === 4) return { kind: 'patch', name, data: members(random, 2), ...cas }
  if (dice === 5)
    return { kind: random.pick(['delete', 'undelete', 'destroy']), name, versions: [0, ...versions(random)] }
  if (dice === 6) return { kind: 'delete newest', name }
  if (dice === 7) return { kind: 'check', name, cas: current(name) }
  return { kind: 'remove', name }
}

/** Changes several secrets at once. */
export function randomMany(random: Random, current: (name: string) => number): KvManyOperation {
  const dice = random.between(0, 9)
  if (dice < 5) {
    const parts = Array.from({ length: random.between(1, random.pick([2, 4, 12])) }, () => randomPart(random, current))
    return { kind: 'transaction', parts }
  }
  if (dice < 8) {
    const from = random.pick(random.chance(0.4) ? MOVED : NAMES)
    const to = random.pick(random.chance(0.7) ? MOVED : NAMES)
    return { kind: random.pick(['copy', 'move', 'move']), name: from, to }
  }
  const secrets = Array.from({ length: random.between(1, 6) }, () => {
    const custom = random.chance(0.3)
      ? { custom_metadata: random.pick([{}, { owner: `o${random.between(0, 2)}` }]) }
      : {}
    return [random.pick(['x', 'y', 'b', 'c', 'e/f']), { data: members(random, 1), ...custom }] as const
  })
  return { kind: 'import', name: random.pick(['', 'a/', 'd/', 'd/e/']), secrets: Object.fromEntries(secrets) }
}

/** About as many reads as writes; `current` returns the version of a secret, so that cas is often correct. */
export function randomOperation(random: Random, current: (name: string) => number): KvOperation {
  if (random.chance(0.1)) return randomMany(random, current)
  const name = random.pick(NAMES)
  const dice = random.between(0, 99)
  const cas = random.pick([undefined, undefined, current(name), current(name), 0, random.between(-1, 12)])
  const withCas = cas === undefined ? {} : { cas }
  if (dice < 28) return { kind: 'put', name, data: members(random, 2), ...withCas }
  if (dice < 38) return { kind: 'patch', name, data: members(random, 2), ...withCas }
  if (dice < 43) return { kind: 'delete newest', name }
  if (dice < 53) return { kind: random.pick(['delete', 'undelete', 'destroy']), name, versions: versions(random) }
  if (dice < 58) return { kind: 'metadata', name, settings: settings(random, false) }
  if (dice < 62) return { kind: 'patch metadata', name, settings: settings(random, true) }
  if (dice < 65) return { kind: 'remove', name: random.pick(random.chance(0.4) ? MOVED : NAMES) }
  if (dice < 66)
    return {
      kind: 'config',
      settings: {
        max_versions: random.pick([0, 2, 4]),
        cas_required: random.chance(0.1),
        delete_version_after: random.pick([0, 0, -1, 30]),
      },
    }
  if (dice < 80) return { kind: 'read', name, version: random.pick([0, 0, random.between(0, 14)]) }
  if (dice < 85) return { kind: 'subkeys', name, version: 0 }
  if (dice < 93) return { kind: 'read metadata', name }
  return { kind: random.pick(['list', 'scan']), name: random.pick(FOLDERS) }
}

export interface KvRequest {
  readonly method: string
  readonly path: string
  readonly body?: unknown
}

export function isRead({ kind }: KvOperation): boolean {
  return kind === 'read' || kind === 'subkeys' || kind === 'read metadata' || kind === 'list' || kind === 'scan'
}

function partOf(part: KvPart): Record<string, unknown> {
  const { kind, name, ...rest } = part
  return { op: kind === 'delete newest' ? 'delete' : kind, path: name, ...rest }
}

/** The request below a mount at `secret/`. */
export function requestOf(operation: KvOperation): KvRequest {
  if (operation.kind === 'config') {
    const { settings: given } = operation
    return { method: 'POST', path: 'secret/config', body: given }
  }
  if (operation.kind === 'transaction') {
    return { method: 'POST', path: 'secret/transaction', body: { operations: operation.parts.map(partOf) } }
  }
  const name = encodeURIComponent(operation.name).replaceAll('%2F', '/')
  switch (operation.kind) {
    case 'put':
    case 'patch': {
      const { cas, data, kind } = operation
      const body = { data, ...(cas !== undefined && { options: { cas } }) }
      return { method: kind === 'put' ? 'POST' : 'PATCH', path: `secret/data/${name}`, body }
    }
    case 'delete newest':
      return { method: 'DELETE', path: `secret/data/${name}` }
    case 'remove':
      return { method: 'DELETE', path: `secret/metadata/${name}` }
    case 'metadata':
      return { method: 'POST', path: `secret/metadata/${name}`, body: operation.settings }
    case 'patch metadata':
      return { method: 'PATCH', path: `secret/metadata/${name}`, body: operation.settings }
    case 'read':
      return { method: 'GET', path: `secret/data/${name}?version=${operation.version}` }
    case 'subkeys':
      return { method: 'GET', path: `secret/subkeys/${name}?version=${operation.version}` }
    case 'read metadata':
      return { method: 'GET', path: `secret/metadata/${name}` }
    case 'list':
    case 'scan':
      return { method: operation.kind.toUpperCase(), path: `secret/metadata/${name}` }
    case 'copy':
    case 'move':
      return { method: 'POST', path: `secret/${operation.kind}/${name}`, body: { to: operation.to } }
    case 'import':
      return { method: 'POST', path: `secret/import/${name}`.replace(/\/$/, ''), body: { secrets: operation.secrets } }
    default:
      return { method: 'POST', path: `secret/${operation.kind}/${name}`, body: { versions: operation.versions } }
  }
}
