/**
 * Rights of a caller as a server asserts them to a node: what the operations of a node ask an identity, asked in advance.
 * A few numbers, not policies: the node judges with them as it would with the caller's own identity, and cannot learn more
 * about the caller from them.
 */
import * as v from 'valibot'
import type { Identity, NamespaceCapability } from '../kit/operation.ts'

/** The place of a capability is its bit on the wire: append only. */
const CAPABILITIES = [
  'list-jobs',
  'read-job',
  'submit-job',
  'read-logs',
  'read-fs',
  'alloc-lifecycle',
  'gc-allocation',
] as const satisfies readonly NamespaceCapability[]

const READ = 1
const WRITE = 2

const text = v.pipe(v.string(), v.maxLength(8192))
const bits = v.pipe(v.number(), v.safeInteger(), v.minValue(0), v.maxValue(2 ** 31))

export const rightsSchema = v.object({
  /** Public name of the token. */
  accessor: text,
  node: bits,
  agent: bits,
  /** Name of the namespace and bits of its capabilities, for the namespaces that the call is about. */
  namespaces: v.pipe(v.array(v.tuple([text, bits])), v.maxLength(16)),
})

export type AssertedRights = v.InferOutput<typeof rightsSchema>

export function rightsOf(identity: Identity, namespaces: readonly string[]): AssertedRights {
  return {
    accessor: identity.accessor,
    node: accessBits((access) => identity.allowsNode(access)),
    agent: accessBits((access) => identity.allowsAgent(access)),
    namespaces: namespaces.map((name) => [name, capabilityBits(identity, name)]),
  }
}

function accessBits(allows: (access: 'read' | 'write') => boolean): number {
  return (allows('read') ? READ : 0) | (allows('write') ? WRITE : 0)
}

function capabilityBits(identity: Identity, namespace: string): number {
  let all = 0
  for (const [at, capability] of CAPABILITIES.entries()) {
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
    allowsNamespace: (name, capability) => ((byName.get(name) ?? 0) & (1 << CAPABILITIES.indexOf(capability))) !== 0,
  }
}
