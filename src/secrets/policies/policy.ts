/**
 * Policies: documents that grant permissions.
 *
 * One language covers both groups of endpoints. A document, HCL or JSON, has any number of rules: `path` rules for the secrets core, and
 * `namespace`, `node`, `agent`, `operator` and further rules for hosts and their allocations. `parsePolicy` parses a document strictly.
 * `identityFrom` merges several documents into the `Identity` that authorizes operations. The rules are parsed in `host-rules.ts` and
 * `path-rules.ts`, with the reader in `rule-reader.ts`.
 *
 * Merging rules for hosts. For each subject (the node, the agent, a namespace pattern) the grants of all documents are united; if one
 * denies, the subject is denied. One pattern decides about a namespace: the one equal to its name or, if there is none, the matching
 * pattern with the most literal characters. A more specific pattern replaces a wider one and never adds to it. Equally specific patterns
 * are merged, so the order of rules and documents does not matter.
 *
 * Promises:
 * - What is not granted is denied. An empty document grants nothing.
 * - A document with an error is rejected as a whole, with the positions of all errors: an ignored rule could be one that denies.
 * - A decision has no side effects. Its cost is bounded by the length of the name times the length of the patterns; both are limited.
 * - `read` of a namespace includes neither logs nor files of tasks; `write` does.
 *
 * Assumes that errors are shown to the author of a document only. They contain names of rules and keys and unknown capabilities, and no
 * other values. Assumes that namespace names come from a manifest and can be any string.
 *
 * Limits. Rules that have no effect here (`quota`, `plugin`, `host_volume`, `node_pool`, a namespace's `variables`) are parsed and
 * validated, so documents that were written for Nomad are accepted, but they grant nothing. `acl.ts` decides about `path` rules.
 */
import type { Access, Identity } from '../../platform/operation.ts'
import { HclError, parseText } from '../../config/hcl.ts'
import type { HclEntry, ObjectNode } from '../../config/hcl.ts'
import { matchingGrants, readCoarseRule, readNamedRule, readNamespaceRule } from './host-rules.ts'
import type { CoarseAccess, NamespaceRule } from './host-rules.ts'
import { readPathRule } from './path-rules.ts'
import type { PathRule } from './path-rules.ts'
import { PolicyError, RuleReader } from './rule-reader.ts'
import type { PolicyFault } from './rule-reader.ts'

export { PolicyError }
export type { NamespaceRule, PathRule, PolicyFault }

/** Subjects with one access level. `server` grants a server access to hosts. */
const COARSE_SUBJECTS = ['node', 'agent', 'operator', 'quota', 'server'] as const
type CoarseSubject = (typeof COARSE_SUBJECTS)[number]

/** Cached namespaces of an identity: more than a caller uses at a time. */
const CACHED_NAMESPACES_MAX = 64

const SUBJECT_NAMES = ['path', 'namespace', ...COARSE_SUBJECTS, 'plugin', 'host_volume', 'node_pool']

export interface CoarseRule {
  readonly subject: CoarseSubject
  readonly access: CoarseAccess
}

/** A parsed document, with its rules in the order of the text. */
export interface Policy {
  /** The name in the document. Not used. */
  readonly name?: string
  readonly paths: readonly PathRule[]
  readonly namespaces: readonly NamespaceRule[]
  readonly coarse: readonly CoarseRule[]
}

/** Throws a PolicyError with the positions of all errors. */
export function parsePolicy(text: string): Policy {
  const reader = new RuleReader()
  const paths: PathRule[] = []
  const namespaces: NamespaceRule[] = []
  const coarse: CoarseRule[] = []
  let name: string | undefined
  for (const entry of parseTree(text).entries) {
    const subject = COARSE_SUBJECTS.find((known) => known === entry.key)
    if (subject) {
      coarse.push(...readCoarseRule(entry, reader).map((access) => ({ subject, access })))
    } else if (entry.key === 'path') {
      paths.push(...readPathRule(entry, reader))
    } else if (entry.key === 'namespace') {
      namespaces.push(...readNamespaceRule(entry, reader))
    } else if (entry.key === 'name') {
      name = reader.text(entry)
    } else if (!readNamedRule(entry, reader)) {
      reader.fault(entry.keyAt, unknownRule(entry))
    }
  }
  if (reader.faults.length > 0) {
    throw new PolicyError(reader.faults.toSorted((a, b) => a.line - b.line || a.column - b.column))
  }
  return { ...(name === undefined ? {} : { name }), paths, namespaces, coarse }
}

function unknownRule(entry: HclEntry): string {
  return `unknown rule ${JSON.stringify(entry.key)}: expected one of ${SUBJECT_NAMES.join(', ')}`
}

function parseTree(text: string): ObjectNode {
  try {
    return parseText(text)
  } catch (error) {
    if (error instanceof HclError) throw new PolicyError([{ ...error.at, message: error.message }])
    throw error
  }
}

/** The errors in the text of a policy. */
export function checkPolicy(text: string): readonly PolicyFault[] {
  try {
    parsePolicy(text)
    return []
  } catch (error) {
    if (error instanceof PolicyError) return error.faults
    throw error
  }
}

/** Merges policies into an identity. `accessor` is that of its token. */
export function identityFrom(policies: readonly Policy[], accessor: string): Identity {
  const access = (subject: CoarseSubject) => {
    const levels = policies.flatMap((policy) => policy.coarse.filter((rule) => rule.subject === subject))
    return strongestAccess(levels.map((rule) => rule.access))
  }
  const [node, agent, server] = [access('node'), access('agent'), access('server')]
  const rules = policies.flatMap((policy) => policy.namespaces)
  const known = new Map<string, ReadonlySet<string>>()
  const grantsIn = (namespace: string) => {
    const before = known.get(namespace)
    if (before) return before
    if (known.size >= CACHED_NAMESPACES_MAX) known.clear()
    const grants = matchingGrants(rules, namespace)
    known.set(namespace, grants)
    return grants
  }
  return Object.freeze<Identity>({
    accessor,
    // Access to `server` includes read access to the node, unless the node is denied.
    allowsNode: (wanted) => covers(node, wanted) || (wanted === 'read' && node !== 'deny' && covers(server, 'read')),
    allowsAgent: (wanted) => covers(agent, wanted),
    allowsNamespace: (namespace, capability) => grantsIn(namespace).has(capability),
  })
}

/** Deny overrides write, write overrides read. Undefined without a rule. */
function strongestAccess(levels: readonly CoarseAccess[]): CoarseAccess | undefined {
  return (['deny', 'write', 'read'] as const).find((level) => levels.includes(level))
}

function covers(granted: CoarseAccess | undefined, wanted: Access): boolean {
  return granted === 'write' || (granted === 'read' && wanted === 'read')
}

/** The identity of the policy `root` and of tokens of the type `management`: it is allowed everything. */
export const rootIdentity: Identity = Object.freeze<Identity>({
  accessor: 'root',
  allowsNode: () => true,
  allowsAgent: () => true,
  allowsNamespace: () => true,
})

/** The identity of callers without a token, if no anonymous policy is configured: it is allowed nothing. */
export const anonymousIdentity: Identity = Object.freeze<Identity>({
  accessor: 'anonymous',
  allowsNode: () => false,
  allowsAgent: () => false,
  allowsNamespace: () => false,
})
