/**
 * Policies: who may do what.
 *
 * One language serves both families of endpoints. A document, HCL or JSON, holds any number of rules: `path` rules for
 * the secrets core, and `namespace`, `node`, `agent`, `operator` and further rules for hosts and their allocations.
 * `parsePolicy` reads a document once, strictly; `identityFrom` unites several documents into the `Identity` that
 * operations ask. The rules' readers are in `host-rules.ts` and `path-rules.ts`; what they share is in `rule-reader.ts`.
 *
 * How rules of hosts are united. For each subject (the node, the agent, a namespace pattern) the grants of all
 * documents are added up; if any of them denies, the subject is denied, whatever else is granted. A namespace is
 * judged by one pattern only: the one equal to its name, else the matching pattern with the most literal characters.
 * So a closer pattern replaces a wider one, in both directions, and never adds to it. Patterns that match equally well
 * are united like documents, so that no order of rules or documents changes an answer.
 *
 * Promises:
 * - What is not granted is refused. An empty document grants nothing.
 * - A document with a fault is refused as a whole, with every fault and its place: a rule that was dropped
 *   silently could be the one that denies.
 * - Judging is free of side effects and its cost does not depend on the caller's input beyond the name's length
 *   times the patterns' (both are bounded).
 * - `read` of a namespace includes neither logs nor files of tasks; `write` does.
 *
 * Assumes that a document's author is trusted with its own text only: messages may show the names of rules and
 * keys and a capability that is unknown, never other values. Assumes that namespace names come from a manifest and may be any string.
 *
 * What can go wrong: rules that this program does not act on (`quota`, `plugin`, `host_volume`, `node_pool`, a
 * namespace's `variables`) are read and checked, so that documents written for the compatible system are taken as they
 * are, but they grant nothing here. Which `path` rule decides about a request: `acl.ts`.
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

/** The subjects that are granted as a whole. `server` stands for the right of servers towards hosts. */
const COARSE_SUBJECTS = ['node', 'agent', 'operator', 'quota', 'server'] as const
type CoarseSubject = (typeof COARSE_SUBJECTS)[number]

/** Namespaces whose grants an identity remembers: more than a caller uses at a time. */
const NAMESPACES_MAX = 64

const SUBJECT_NAMES = ['path', 'namespace', ...COARSE_SUBJECTS, 'plugin', 'host_volume', 'node_pool']

export interface CoarseRule {
  readonly subject: CoarseSubject
  readonly access: CoarseAccess
}

/** A document as it was understood. Rules stand in the order of the text. */
export interface Policy {
  /** The name that the document gives itself, which nothing here relies on. */
  readonly name?: string
  readonly paths: readonly PathRule[]
  readonly namespaces: readonly NamespaceRule[]
  readonly coarse: readonly CoarseRule[]
}

/**
 * Reads a policy.
 * @throws PolicyError with every fault and its place in the text.
 */
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

/** What is wrong with a policy's text, with places counted from 1; empty when it is right. */
export function checkPolicy(text: string): readonly PolicyFault[] {
  try {
    parsePolicy(text)
    return []
  } catch (error) {
    if (error instanceof PolicyError) return error.faults
    throw error
  }
}

/** The identity that some policies amount to. `accessor` is the public name of its token. */
export function identityFrom(policies: readonly Policy[], accessor: string): Identity {
  const access = (subject: CoarseSubject) => {
    const levels = policies.flatMap((policy) => policy.coarse.filter((rule) => rule.subject === subject))
    return strongest(levels.map((rule) => rule.access))
  }
  const [node, agent, server] = [access('node'), access('agent'), access('server')]
  const rules = policies.flatMap((policy) => policy.namespaces)
  const known = new Map<string, ReadonlySet<string>>()
  const grantsIn = (namespace: string) => {
    const before = known.get(namespace)
    if (before) return before
    if (known.size >= NAMESPACES_MAX) known.clear()
    const grants = matchingGrants(rules, namespace)
    known.set(namespace, grants)
    return grants
  }
  return Object.freeze<Identity>({
    accessor,
    // A server that may read or change servers' state may read its hosts too; a denied node stays denied.
    allowsNode: (wanted) => covers(node, wanted) || (wanted === 'read' && node !== 'deny' && covers(server, 'read')),
    allowsAgent: (wanted) => covers(agent, wanted),
    allowsNamespace: (namespace, capability) => grantsIn(namespace).has(capability),
  })
}

/** Deny beats write, write beats read; undefined when there is no rule at all. */
function strongest(levels: readonly CoarseAccess[]): CoarseAccess | undefined {
  return (['deny', 'write', 'read'] as const).find((level) => levels.includes(level))
}

function covers(granted: CoarseAccess | undefined, wanted: Access): boolean {
  return granted === 'write' || (granted === 'read' && wanted === 'read')
}

/** May do everything: what the policy `root` and tokens of the type `management` stand for. */
export const root: Identity = Object.freeze<Identity>({
  accessor: 'root',
  allowsNode: () => true,
  allowsAgent: () => true,
  allowsNamespace: () => true,
})

/** May do nothing: a caller without a token where no policy for such callers is configured. */
export const nobody: Identity = Object.freeze<Identity>({
  accessor: 'anonymous',
  allowsNode: () => false,
  allowsAgent: () => false,
  allowsNamespace: () => false,
})
