/**
 * Permissions of a caller as a server asserts them to a node: the answers to all questions that operations of a node ask an
 * identity. They are a few numbers and not policies, so the node learns nothing else about the caller.
 */
import { type Identity, NAMESPACE_CAPABILITIES } from '../../platform/operation.ts'
import { isCount, isText, listOf } from '../nats/message-pack.ts'

const READ = 1
const WRITE = 2

const TEXT_MAX = 8192
const BITS_MAX = 2 ** 31
const ASSERTED_NAMESPACES_MAX = 16

export interface AssertedPermissions {
  /** Accessor of the token. */
  readonly accessor: string
  readonly node: number
  readonly agent: number
  /** Name and capability bits of each namespace that the call concerns. */
  readonly namespaces: readonly (readonly [name: string, bits: number])[]
}

/** In the order that `decodePermissions` expects. */
export function encodePermissions({ accessor, agent, namespaces, node }: AssertedPermissions): readonly unknown[] {
  return [accessor, node, agent, namespaces]
}

/** Undefined for a malformed value. */
export function decodePermissions(value: unknown): AssertedPermissions | undefined {
  const parts = listOf(value, 4)
  if (!parts) return undefined
  const [accessor, node, agent, namespaces] = parts
  if (!isText(accessor, TEXT_MAX) || !areBits(node) || !areBits(agent) || !areNamespaces(namespaces)) return undefined
  return { accessor, node, agent, namespaces }
}

function areNamespaces(value: unknown): value is AssertedPermissions['namespaces'] {
  return Array.isArray(value) && value.length <= ASSERTED_NAMESPACES_MAX && value.every(isNamespace)
}

function isNamespace(value: unknown): boolean {
  const pair = listOf(value, 2)
  return pair !== undefined && isText(pair[0], TEXT_MAX) && areBits(pair[1])
}

function areBits(value: unknown): value is number {
  return isCount(value) && value <= BITS_MAX
}

/** Cached by identity, which is immutable: changed policies make a new identity. */
interface CachedPermissions {
  readonly coarse: Omit<AssertedPermissions, 'namespaces'>
  readonly bitsByNamespace: Map<string, number>
}

const cache = new WeakMap<Identity, CachedPermissions>()
/** Cached namespaces of an identity. */
const CACHED_NAMESPACES_MAX = 64

/** The permissions of an identity, in these namespaces only. */
export function assertPermissions(identity: Identity, namespaces: readonly string[]): AssertedPermissions {
  let known = cache.get(identity)
  if (!known) {
    const node = accessBits((access) => identity.allowsNode(access))
    const agent = accessBits((access) => identity.allowsAgent(access))
    known = { coarse: { accessor: identity.accessor, node, agent }, bitsByNamespace: new Map() }
    cache.set(identity, known)
  }
  const { bitsByNamespace, coarse } = known
  return { ...coarse, namespaces: namespaces.map((name) => [name, bitsIn(name, identity, bitsByNamespace)]) }
}

function bitsIn(namespace: string, identity: Identity, known: Map<string, number>): number {
  const cached = known.get(namespace)
  if (cached !== undefined) return cached
  if (known.size >= CACHED_NAMESPACES_MAX) known.clear()
  const bits = capabilityBits(identity, namespace)
  known.set(namespace, bits)
  return bits
}

function accessBits(allows: (access: 'read' | 'write') => boolean): number {
  return (allows('read') ? READ : 0) | (allows('write') ? WRITE : 0)
}

function capabilityBits(identity: Identity, namespace: string): number {
  let all = 0
  for (const [at, capability] of NAMESPACE_CAPABILITIES.entries()) {
    if (identity.allowsNamespace(namespace, capability)) all |= 1 << at
  }
  return all
}

/** An identity with exactly these permissions. */
export function identityWith({ accessor, agent, namespaces, node }: AssertedPermissions): Identity {
  const bitOf = { read: READ, write: WRITE }
  const byName = new Map(namespaces)
  return {
    accessor,
    allowsNode: (access) => (node & bitOf[access]) !== 0,
    allowsAgent: (access) => (agent & bitOf[access]) !== 0,
    allowsNamespace: (name, capability) =>
      ((byName.get(name) ?? 0) & (1 << NAMESPACE_CAPABILITIES.indexOf(capability))) !== 0,
  }
}
