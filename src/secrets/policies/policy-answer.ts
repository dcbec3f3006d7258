/** What `outpost policy check` shows: the decision about a request and its reasons, as lines with places in files. */
import type { AccessRequest, Decision, RuleOrigin } from './acl.ts'
import { explain } from './policy-explain.ts'
import { doubts } from './policy-lint.ts'
import type { EntityFacts } from './policy-template.ts'
import { parsePolicy, PolicyError } from './policy.ts'
import type { Policy } from './policy.ts'
import { usualCanonical } from './usual-mounts.ts'

export interface PolicyDocument {
  readonly file: string
  readonly text: string
}

export interface PolicyQuestion extends AccessRequest {
  /** `id`, `name` and `metadata.KEY`; empty: the caller has no entity. */
  readonly entityFacts: ReadonlyMap<string, string>
}

export interface PolicyAnswer {
  readonly allowed: boolean
  readonly verdict: string
  /** The rules that decided, then those that match, or nearly do, and did not. */
  readonly reasons: readonly string[]
  readonly unmatched: readonly string[]
  /** What is probably not meant. */
  readonly doubts: readonly string[]
  /** What is wrong with the documents; then nothing else is said. */
  readonly faults: readonly string[]
}

export function answerPolicy(
  documents: readonly PolicyDocument[],
  question: PolicyQuestion,
  nowMs: number,
): PolicyAnswer {
  const faults: string[] = []
  const sources: { name: string; policy: Policy }[] = []
  for (const { file, text } of documents) {
    try {
      sources.push({ name: file, policy: parsePolicy(text) })
    } catch (error) {
      if (!(error instanceof PolicyError)) throw error
      faults.push(...error.faults.map(({ column, line, message }) => `${file}:${line}:${column}: ${message}`))
    }
  }
  if (faults.length > 0) return { allowed: false, verdict: '', reasons: [], unmatched: [], doubts: [], faults }
  const { decision, deciding, meant, others, path } = explain(sources, question, nowMs, {
    entity: entityOf(question.entityFacts),
    canonical: usualCanonical,
  })
  const what = `${question.operation} ${JSON.stringify(path)}`
  const lines = (near: boolean) =>
    others.filter((each) => each.near === near).map(({ origin, why }) => lineOf(origin, why))
  return {
    allowed: decision.allowed,
    verdict: `${decision.allowed ? 'allowed' : 'denied'}: ${what}${consequence(decision)}`,
    reasons: [
      ...deciding.map((origin) => lineOf(origin, roleOf(decision, question.operation))),
      ...lines(true),
      ...(meant === undefined ? [] : [`  ${JSON.stringify(meant)} would be allowed: is it a versioned store (v2)?`]),
    ],
    unmatched: lines(false),
    doubts: sources.flatMap(({ name, policy }) =>
      doubts(policy, nowMs).map(({ at, message }) => `${name}:${at.line}:${at.column}: ${message}`),
    ),
    faults: [],
  }
}

function lineOf({ at, path, policy }: RuleOrigin, why: string): string {
  return `  ${policy}:${at.line}:${at.column}: path ${JSON.stringify(path)}: ${why}`
}

function consequence({ allowed, limit, reason, sudo }: Decision): string {
  if (!allowed) return reason === 'no rule' ? ', no rule matches' : ''
  const also = [
    ...(sudo ? ['with sudo'] : []),
    ...(limit === undefined ? [] : [limit === 0 ? 'all names' : `at most ${limit} names at once`]),
  ]
  return also.length > 0 ? `, ${also.join(', ')}` : ''
}

function roleOf({ mfaMethods, parameter, reason }: Decision, operation: string): string {
  const name = parameter === undefined ? '' : ` ${JSON.stringify(parameter)}`
  if (reason === 'granted') return `decides, it grants ${operation}`
  if (reason === 'deny') return 'decides, it denies'
  if (reason === 'not granted') return `decides, it does not grant ${operation}`
  if (reason === 'template')
    return 'decides, it restricts and its template has no valid value, so it denies what is below'
  if (reason === 'wrapping') return 'decides, it wants the answer wrapped, within its bounds'
  if (reason === 'limit') return 'decides, it does not let so many names be listed at once'
  if (reason === 'second factor') {
    return `decides, it grants ${operation} with a code of ${mfaMethods.join(', ')} in the header X-Vault-MFA`
  }
  if (reason === 'parameter missing') return `decides, it requires the parameter${name}`
  if (reason === 'parameter denied') return `decides, it denies the parameter${name} or its value`
  return `decides, it does not allow the parameter${name} or its value`
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
