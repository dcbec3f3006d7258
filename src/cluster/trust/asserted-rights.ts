/**
 * Rights of a caller as a server asserts them to a node: what the operations of a node ask an identity, asked in advance.
 * A few numbers, not policies: the node judges with them as it would with the caller's own identity, and cannot learn more
 * about the caller from them.
 */
import { type Identity, NAMESPACE_CAPABILITIES } from '../../platform/operation.ts'
import { isCount, isText, listOf } from '../nats/decoded.ts'

const READ = 1
const WRITE = 2

const TEXT_MAX = 8192
const BITS_MAX = 2 ** 31
const ASSERTED_NAMESPACES_MAX = 16

export interface AssertedRights {
  /** Public name of the token. */
  readonly accessor: string
  readonly node: number
  readonly agent: number
  /** Name of the namespace and bits of its capabilities, for the namespaces that the call is about. */
  readonly namespaces: readonly (readonly [name: string, bits: number])[]
}

/** The places are those that `rightsIn` reads. */
export function partsOfRights({ accessor, agent, namespaces, node }: AssertedRights): readonly unknown[] {
  return [accessor, node, agent, namespaces]
}

/** Undefined for what is no rights. */
export function rightsIn(value: unknown): AssertedRights | undefined {
  const parts = listOf(value, 4)
  if (!parts) return undefined
  const [accessor, node, agent, namespaces] = parts
  if (!isText(accessor, TEXT_MAX) || !areBits(node) || !areBits(agent) || !areNamespaces(namespaces)) return undefined
  return { accessor, node, agent, namespaces }
}

function areNamespaces(value: unknown): value is AssertedRights['namespaces'] {
  return Array.isArray(value) && value.length <= ASSERTED_NAMESPACES_MAX && value.every(isNamespace)
}

function isNamespace(value: unknown): boolean {
  const pair = listOf(value, 2)
  return pair !== undefined && isText(pair[0], TEXT_MAX) && areBits(pair[1])
}

function areBits(value: unknown): value is number {
  return isCount(value) && value <= BITS_MAX
}

/** What an identity was asked before. Identities do not change: other policies make another identity. */
interface Asked {
  readonly coarse: Omit<AssertedRights, 'namespaces'>
  readonly bitsByNamespace: Map<string, number>
}

const asked = new WeakMap<Identity, Asked>()
/** More than the namespaces that a caller uses at a time. */
const NAMESPACES_MAX = 64

export function rightsOf(identity: Identity, namespaces: readonly string[]): AssertedRights {
  let known = asked.get(identity)
  if (!known) {
    const node = accessBits((access) => identity.allowsNode(access))
    const agent = accessBits((access) => identity.allowsAgent(access))
    known = { coarse: { accessor: identity.accessor, node, agent }, bitsByNamespace: new Map() }
    asked.set(identity, known)
  }
  const { bitsByNamespace, coarse } = known
  return { ...coarse, namespaces: namespaces.map((name) => [name, bitsIn(name, identity, bitsByNamespace)]) }
}

function bitsIn(namespace: string, identity: Identity, known: Map<string, number>): number {
  const before = known.get(namespace)
  if (before !== undefined) return before
  if (known.size >= NAMESPACES_MAX) known.clear()
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

/** The identity that has these rights and no others. */
export function identityWith({ accessor, agent, namespaces, node }: AssertedRights): Identity {
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
