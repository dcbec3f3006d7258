/**
 * The answer of `outpost policy check` and of `sys/internal/ui/policy-check`: the decision about a request with its reasons, each with a
 * position in a document.
 */
import { type Canonical, canonicalAt, PathTable } from '../../engines/framework/path-table.ts'
import { path as enginePath, type Path } from '../../engines/framework/engine.ts'
import { inPath, type EngineField } from '../../engines/framework/fields.ts'
import type { NameFold } from '../../engines/framework/name-fold.ts'
import type { AccessRequest, Decision, RuleOrigin } from './acl.ts'
import { explain } from './policy-explain.ts'
import { lintPolicy } from './policy-lint.ts'
import type { EntityFacts } from './policy-template.ts'
import { parsePolicy, type Policy, PolicyError } from './policy.ts'

export interface PolicyDocument {
  readonly name: string
  readonly text: string
}

export interface PolicyQuestion extends AccessRequest {
  /** `id`, `name` and `metadata.KEY`; empty for a caller without an entity. */
  readonly entityFacts: ReadonlyMap<string, string>
}

/** A text about a position in a document. */
export interface PolicyNote {
  readonly policy: string
  readonly line: number
  readonly column: number
  readonly text: string
}

export interface PolicyAnswer {
  readonly allowed: boolean
  readonly verdict: string
  /** The deciding rules, then the other rules that match or nearly match. */
  readonly reasons: readonly PolicyNote[]
  /** Present if the path in a versioned store would be allowed. */
  readonly hint?: string
  readonly unmatched: readonly PolicyNote[]
  readonly warnings: readonly PolicyNote[]
}

interface PolicySource {
  readonly name: string
  readonly policy: Policy
}

export interface ParsedPolicies {
  readonly sources: readonly PolicySource[]
  /** Errors in the documents. */
  readonly faults: readonly PolicyNote[]
}

export function parsePolicies(documents: readonly PolicyDocument[]): ParsedPolicies {
  const faults: PolicyNote[] = []
  const sources: PolicySource[] = []
  for (const { name, text } of documents) {
    try {
      sources.push({ name, policy: parsePolicy(text) })
    } catch (error) {
      if (!(error instanceof PolicyError)) throw error
      for (const { message, ...at } of error.faults) faults.push(noteOf(name, at, message))
    }
  }
  return { sources, faults }
}

export function answerPolicy(sources: readonly PolicySource[], question: PolicyQuestion, nowMs: number): PolicyAnswer {
  const { decision, deciding, others, path, versionedPath } = explain(sources, question, nowMs, {
    entity: entityOf(question.entityFacts),
    canonical: defaultCanonical,
  })
  const request = `${question.operation} ${JSON.stringify(path)}`
  const notes = (isNear: boolean) =>
    others.filter((each) => each.isNear === isNear).map(({ origin, reason }) => ruleNote(origin, reason))
  return {
    allowed: decision.allowed,
    verdict: `${decision.allowed ? 'allowed' : 'denied'}: ${request}${consequence(decision)}`,
    reasons: [...deciding.map((origin) => ruleNote(origin, roleOf(decision, question.operation))), ...notes(true)],
    ...(versionedPath !== undefined && {
      hint: `${JSON.stringify(versionedPath)} would be allowed: is the mount versioned (v2)?`,
    }),
    unmatched: notes(false),
    warnings: sources.flatMap(({ name, policy }) =>
      lintPolicy(policy, nowMs).map(({ at, message }) => noteOf(name, at, message)),
    ),
  }
}

/** As compilers print positions, such as `app.hcl:3:6: path "x": decides, denies`. */
export function noteLine({ column, line, policy, text }: PolicyNote): string {
  return `${policy}:${line}:${column}: ${text}`
}

function noteOf(policy: string, { column, line }: RuleOrigin['at'], text: string): PolicyNote {
  return { policy, line, column, text }
}

function ruleNote({ at, path, policy }: RuleOrigin, reason: string): PolicyNote {
  return noteOf(policy, at, `path ${JSON.stringify(path)}: ${reason}`)
}

function consequence({ allowed, limit, reason, sudo }: Decision): string {
  if (!allowed) return reason === 'no rule' ? ', no rule matches' : ''
  const details = [
    ...(sudo ? ['with sudo'] : []),
    ...(limit === undefined ? [] : [limit === 0 ? 'all names' : `at most ${limit} names in one request`]),
  ]
  return details.length > 0 ? `, ${details.join(', ')}` : ''
}

function roleOf({ mfaMethods, parameter, reason }: Decision, operation: string): string {
  const name = parameter === undefined ? '' : ` ${JSON.stringify(parameter)}`
  if (reason === 'granted') return `decides, grants ${operation}`
  if (reason === 'deny') return 'decides, denies'
  if (reason === 'not granted') return `decides, does not grant ${operation}`
  if (reason === 'template')
    return 'decides, denies all paths below, because it is a restriction and its template has no valid value'
  if (reason === 'wrapping') return 'decides, requires a wrapped response with a TTL within its limits'
  if (reason === 'limit') return 'decides, its pagination_limit is below the requested limit'
  if (reason === 'second factor') {
    return `decides, grants ${operation} with an MFA code of ${mfaMethods.join(', ')} in the header X-Vault-MFA`
  }
  if (reason === 'parameter missing') return `decides, requires the parameter${name}`
  if (reason === 'parameter denied') return `decides, denies the parameter${name} or its value`
  return `decides, does not allow the parameter${name} or its value`
}

function entityOf(facts: ReadonlyMap<string, string>): EntityFacts | undefined {
  if (facts.size === 0) return undefined
  const metadata = [...facts].flatMap(([name, value]) => {
    return name.startsWith('metadata.') ? [[name.slice('metadata.'.length), value] as const] : []
  })
  return {
    id: facts.get('id') ?? '',
    name: facts.get('name') ?? '',
    metadata: Object.fromEntries(metadata),
    aliases: [],
    groups: [],
  }
}

/** Path parameters and body fields that fold, for engines at their default mounts. A test compares them with the engines. */
const DEFAULT_MOUNT_FOLDS: Readonly<Record<string, Readonly<Record<string, NameFold>>>> = {
  'auth/userpass/users/:username': { username: 'case', groups: 'case and spaces' },
  'auth/userpass/users/:username/:setting': { username: 'case' },
  'auth/userpass/login/:username': { username: 'case' },
  'auth/approle/role/:role_name': { role_name: 'case', groups: 'case and spaces' },
  'auth/approle/role/:role_name/:setting': { role_name: 'case', groups: 'case and spaces' },
  'auth/approle/role/:role_name/:of/:action': { role_name: 'case' },
  'identity/entity': { name: 'case' },
  'identity/entity/id/:id': { name: 'case' },
  'identity/entity/name/:name': { name: 'case' },
  'identity/group': { name: 'case' },
  'identity/group/id/:id': { name: 'case' },
  'identity/group/name/:name': { name: 'case' },
  'identity/group-alias': { name: 'case' },
  'identity/group-alias/id/:id': { name: 'case' },
  'identity/lookup/entity': { name: 'case' },
  'identity/lookup/group': { name: 'case', alias_name: 'case' },
  'sys/config/auditing/request-headers/:header': { header: 'case' },
  'sys/config/ui/headers/:header': { header: 'case' },
  'sys/locked-users/:mount_accessor/unlock/:alias_identifier': { alias_identifier: 'case' },
  'sys/policies/acl/:name*': { name: 'case and spaces' },
  'sys/policies/detailed/acl/:prefix*': { prefix: 'case' },
  'sys/policy/:name*': { name: 'case and spaces' },
}

function foldingPath([pattern, folds]: readonly [string, Readonly<Record<string, NameFold>>]): Path {
  const fields: Record<string, EngineField<string>> = {}
  for (const [name, fold] of Object.entries(folds)) fields[name] = inPath('', { fold })
  return enginePath({ pattern, summary: '', fields })
}

let foldTable: PathTable | undefined

/** Canonicalizes paths of engines at their default mounts: without a server, the mounts are unknown. */
export const defaultCanonical: Canonical = (given) => {
  foldTable ??= new PathTable(Object.entries(DEFAULT_MOUNT_FOLDS).map(foldingPath))
  return canonicalAt(given, { mount: { paths: foldTable }, rest: given })
}
