/** Policy rules for hosts and their allocations: parsing, and the rule that decides about a namespace. */
import { NAMESPACE_CAPABILITIES } from '../../platform/operation.ts'
import type { HclEntry } from '../../config/hcl.ts'
import { matchesGlob } from './policy-name.ts'
import type { NamedRule, RuleReader } from './rule-reader.ts'

export type CoarseAccess = 'read' | 'write' | 'deny'

const READ = [
  'list-jobs',
  'parse-job',
  'read-job',
  'csi-list-volume',
  'csi-read-volume',
  'read-job-scaling',
  'list-scaling-policies',
  'read-scaling-policy',
  'host-volume-read',
] as const
const SCALE = ['list-scaling-policies', 'read-scaling-policy', 'read-job-scaling', 'scale-job'] as const
const WRITE = [
  ...READ,
  'submit-job',
  'dispatch-job',
  'scale-job',
  'read-logs',
  'read-fs',
  'alloc-exec',
  'alloc-lifecycle',
  'csi-mount-volume',
  'csi-write-volume',
  'host-volume-create',
  'submit-recommendation',
] as const

/** Capabilities of the shorthands. `list` does not exist in Nomad: names of jobs only. */
const SHORTHANDS = { read: READ, write: WRITE, scale: SCALE, list: ['list-jobs'], deny: [] } as const
type Shorthand = keyof typeof SHORTHANDS
const SHORTHAND_NAMES = ['read', 'write', 'scale', 'list', 'deny'] as const satisfies readonly Shorthand[]

/** Valid capabilities of a namespace. Those that are not in `NAMESPACE_CAPABILITIES` are accepted and have no effect. */
const NAMESPACE_RULE_CAPABILITIES: readonly string[] = [
  ...new Set<string>([
    'deny',
    ...NAMESPACE_CAPABILITIES,
    ...WRITE,
    'alloc-node-exec',
    'sentinel-override',
    'csi-register-plugin',
    'host-volume-delete',
    'host-volume-register',
    'host-volume-write',
  ]),
]

export interface NamespaceRule {
  /** A name, or a pattern with `*` for any characters. */
  readonly pattern: string
  readonly denied: boolean
  readonly capabilities: ReadonlySet<string>
}

const PATTERN = /^[A-Za-z0-9*-]{1,128}$/

export function readNamespaceRule(entry: HclEntry, reader: RuleReader): NamespaceRule[] {
  return reader.named(entry).flatMap((rule) => {
    if (!PATTERN.test(rule.name)) {
      return reader.fault(rule.at, 'namespace: a name must have 1 to 128 letters, digits, "-" and "*"') ?? []
    }
    return [namespaceRule(rule, reader)]
  })
}

function namespaceRule(rule: NamedRule, reader: RuleReader): NamespaceRule {
  const capabilities = new Set<string>()
  let denied = false
  for (const entry of rule.entries) {
    if (entry.key === 'policy') {
      const shorthand = reader.word(entry, 'namespace', SHORTHAND_NAMES)
      if (shorthand === 'deny') denied = true
      for (const capability of shorthand ? SHORTHANDS[shorthand] : []) capabilities.add(capability)
    } else if (entry.key === 'capabilities') {
      for (const capability of reader.capabilities(
        entry,
        { kind: 'namespace', name: rule.name },
        NAMESPACE_RULE_CAPABILITIES,
      )) {
        if (capability === 'deny') denied = true
        else capabilities.add(capability)
      }
    } else if (entry.key === 'variables') {
      checkVariables(entry, reader)
    } else {
      reader.unknown(entry, 'namespace', ['policy', 'capabilities', 'variables'])
    }
  }
  return { pattern: rule.name, denied, capabilities: denied ? new Set() : capabilities }
}

const VARIABLE_CAPABILITIES = ['list', 'read', 'write', 'destroy', 'deny'] as const

/** Validates `variables { path "a/*" { capabilities = ["read"] } }`, which has no effect: there are no variables. */
function checkVariables(entry: HclEntry, reader: RuleReader): void {
  for (const paths of reader.rule(entry)) {
    for (const path of paths) {
      if (path.key !== 'path') {
        reader.unknown(path, 'variables', ['path'])
        continue
      }
      for (const { entries, name } of reader.named(path)) {
        for (const each of entries) {
          if (each.key === 'capabilities') reader.capabilities(each, { kind: 'path', name }, VARIABLE_CAPABILITIES)
          else reader.unknown(each, 'variables', ['capabilities'])
        }
      }
    }
  }
}

/** Parses `node { policy = "read" }` and rules of the same form. JSON may have a list of them. */
export function readCoarseRule(entry: HclEntry, reader: RuleReader): CoarseAccess[] {
  return reader.rule(entry).flatMap((entries) => {
    const found: CoarseAccess[] = []
    for (const each of entries) {
      if (each.key === 'policy') {
        const access = reader.word(each, entry.key, ['read', 'write', 'deny'] as const)
        if (access) found.push(access)
      } else if (each.key === 'capabilities' && entry.key === 'operator') {
        reader.texts(each, entry.key)
      } else {
        reader.unknown(each, entry.key, ['policy'])
      }
    }
    if (entries.length === 0) reader.fault(entry.keyAt, `${entry.key}: expected policy = "read", "write" or "deny"`)
    return found
  })
}

const VOLUME_CAPABILITIES = ['deny', 'mount-readonly', 'mount-readwrite'] as const
const POOL_CAPABILITIES = ['deny', 'delete', 'read', 'write'] as const

/** Validates rules that have no effect here. False if the entry is not one of them. */
export function readNamedRule(entry: HclEntry, reader: RuleReader): boolean {
  if (entry.key === 'plugin') {
    for (const entries of reader.rule(entry)) {
      for (const each of entries) {
        if (each.key === 'policy') reader.word(each, 'plugin', ['deny', 'read', 'list'] as const)
        else reader.unknown(each, 'plugin', ['policy'])
      }
    }
    return true
  }
  if (entry.key !== 'host_volume' && entry.key !== 'node_pool') return false
  const { key: kind } = entry
  const capabilities: readonly string[] = kind === 'host_volume' ? VOLUME_CAPABILITIES : POOL_CAPABILITIES
  for (const { entries, name } of reader.named(entry)) {
    for (const each of entries) {
      if (each.key === 'policy') reader.word(each, entry.key, ['deny', 'read', 'write'] as const)
      else if (each.key === 'capabilities') reader.capabilities(each, { kind, name }, capabilities)
      else reader.unknown(each, entry.key, ['policy', 'capabilities'])
    }
  }
  return true
}

/** Capabilities in a namespace: of the rules with its exact name or, if there are none, with the most specific pattern. */
export function matchingGrants(rules: readonly NamespaceRule[], namespace: string): ReadonlySet<string> {
  const exact = rules.filter((rule) => rule.pattern === namespace)
  if (exact.length > 0) return unite(exact)
  let closest: NamespaceRule[] = []
  let mostLiteral = -1
  for (const rule of rules) {
    if (!matchesGlob(namespace, rule.pattern)) continue
    const literal = rule.pattern.replaceAll('*', '').length
    if (literal > mostLiteral) closest = []
    if (literal >= mostLiteral) closest.push(rule)
    mostLiteral = Math.max(mostLiteral, literal)
  }
  return unite(closest)
}

function unite(rules: readonly NamespaceRule[]): ReadonlySet<string> {
  if (rules.some((rule) => rule.denied)) return new Set()
  return new Set(rules.flatMap((rule) => [...rule.capabilities]))
}
