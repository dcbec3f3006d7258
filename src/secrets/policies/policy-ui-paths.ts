/**
 * `sys/internal/ui/policy-check` and `policy-format`: what `outpost policy check` and `outpost policy fmt` do, for editors of policies.
 * They read no stored policy and no mount, and change nothing, so they serve each caller with a valid token. The limits bound the time
 * of a request with hostile texts to a tenth of a second.
 */
import { formatText } from '../../config/hcl-format.ts'
import { type Caller, denied, path, type Path, Rejection, type Reply } from '../../engines/framework/engine.ts'
import { type EngineField, FieldError, isObject, object, text, textMap } from '../../engines/framework/fields.ts'
import {
  answerPolicy,
  type ParsedPolicies,
  parsePolicies,
  type PolicyDocument,
  type PolicyNote,
} from './policy-answer.ts'
import { POLICY_NAME_LENGTH_MAX } from './policy-name.ts'
import type { Parameters } from './path-rules.ts'
import { checkPolicy } from './policy.ts'

/** Of a hostile text, this takes less than a tenth of a second of the event loop, for any holder of a token. */
const BODY_CHARACTERS_MAX = 32 << 10
const POLICIES_MAX = 100
/** The explanation of a decision names each rule. */
const RULES_MAX = 500
const PATH_CHARACTERS_MAX = 8192
/** A template inserts a value for each of its expressions. */
const FACT_CHARACTERS_MAX = 512
/** Each part of a parameter is compared with each value of the rules. */
const COMPARISONS_MAX = 2_000_000
/** A text without a single valid rule has a fault in each line. */
const NOTES_MAX = 50

const OPERATIONS = ['read', 'list', 'scan', 'create', 'update', 'patch', 'delete'] as const

const CHECK_FIELDS = {
  policies: policyList('Policies of the caller: a list of objects with `name` and `policy`, a document in HCL or JSON'),
  path: text('Path of the request without `/v1/`', { fallback: '' }),
  operation: text(`Operation of the request: one of ${OPERATIONS.join(', ')}`, { fallback: 'read' }),
  parameters: object('Parameters of the request'),
  entity: textMap('Properties of the entity of the caller: `id`, `name` and `metadata.KEY`'),
}

export function policyUiPaths(): Path[] {
  return [
    path({
      pattern: 'internal/ui/policy-check',
      summary: 'Check whether policies allow a request, and which rule decides',
      tokenOptional: true,
      bodyCharactersMax: BODY_CHARACTERS_MAX,
      fields: CHECK_FIELDS,
      update({ entity = new Map(), operation, parameters, path: requestPath, policies }, { caller, nowMs }) {
        requireToken(caller)
        const data = parameters ?? {}
        requireShort(requestPath, entity)
        const parsed = parsePolicies(policies)
        const { faults, sources } = parsed
        if (faults.length > 0) return noteReply({ allowed: false, verdict: '', reasons: [], unmatched: [] }, { faults })
        requireBounded(parsed, data)
        const question = { operation: operationOf(operation), path: requestPath, data, entityFacts: entity }
        const { warnings, ...answer } = answerPolicy(sources, question, nowMs)
        return noteReply(answer, { faults, warnings })
      },
    }),
    path({
      pattern: 'internal/ui/policy-format',
      summary: 'Format a policy document',
      tokenOptional: true,
      bodyCharactersMax: BODY_CHARACTERS_MAX,
      fields: { policy: text('Policy document in HCL or JSON', { fallback: '' }) },
      update({ policy }, { caller }) {
        requireToken(caller)
        const found = checkPolicy(policy)
        const faults = found.map(({ message, ...at }) => ({ policy: '', ...at, text: message }))
        if (faults.length > 0) return noteReply({ policy }, { faults })
        const formatted = formatText(policy)
        if (formatted !== undefined) return noteReply({ policy: formatted }, { faults })
        return {
          data: { policy, faults },
          warnings: ['the policy cannot be formatted without a change of its meaning, it was not changed'],
        }
      },
    }),
  ]
}

/** The policies of the caller are not evaluated, as on the other paths of user interfaces. */
function requireToken({ tokenHash }: Caller): void {
  if (tokenHash === '') throw denied()
}

function policyList(description: string): EngineField<readonly PolicyDocument[]> {
  return {
    kind: 'array',
    description,
    fallback: [],
    read(value) {
      if (!Array.isArray(value)) throw new FieldError('expected a list of objects with name and policy')
      if (value.length > POLICIES_MAX) throw new FieldError(`expected at most ${POLICIES_MAX} policies`)
      return value.map(documentOf)
    },
  }
}

function documentOf(given: unknown): PolicyDocument {
  const { name = '', policy } = isObject(given) ? given : {}
  if (typeof name !== 'string' || typeof policy !== 'string') {
    throw new FieldError('expected objects with the strings name and policy')
  }
  if (name.length > POLICY_NAME_LENGTH_MAX) {
    throw new FieldError(`expected names of at most ${POLICY_NAME_LENGTH_MAX} characters`)
  }
  return { name, text: policy }
}

function operationOf(given: string): (typeof OPERATIONS)[number] {
  const operation = OPERATIONS.find((each) => each === given)
  if (operation) return operation
  throw new Rejection(400, `unknown operation: expected one of ${OPERATIONS.join(', ')}`)
}

function requireShort(requestPath: string, entity: ReadonlyMap<string, string>): void {
  if (requestPath.length > PATH_CHARACTERS_MAX) {
    throw new Rejection(400, `the path is longer than ${PATH_CHARACTERS_MAX} characters`)
  }
  if ([...entity.values()].some((value) => value.length > FACT_CHARACTERS_MAX)) {
    throw new Rejection(400, `a property of the entity is longer than ${FACT_CHARACTERS_MAX} characters`)
  }
}

function requireBounded({ sources }: ParsedPolicies, data: object): void {
  const rules = sources.flatMap(({ policy }) => policy.paths)
  if (rules.length > RULES_MAX) {
    throw new Rejection(400, `more than ${RULES_MAX} rules: use \`outpost policy check\``)
  }
  const values = rules.reduce(
    (sum, { allowedParameters, deniedParameters }) => sum + valuesIn(allowedParameters) + valuesIn(deniedParameters),
    0,
  )
  if (values * JSON.stringify(data).length > COMPARISONS_MAX) {
    throw new Rejection(400, 'the parameters are too long for the values in the rules: use `outpost policy check`')
  }
}

function valuesIn(parameters: Parameters = new Map()): number {
  let sum = 0
  for (const values of parameters.values()) for (const value of values) sum += Array.isArray(value) ? value.length : 1
  return sum
}

function noteReply(
  answer: Readonly<Record<string, unknown>>,
  notes: Readonly<Record<string, readonly PolicyNote[]>>,
): Reply {
  const omitted = Object.entries(notes).flatMap(([kind, { length }]) =>
    length > NOTES_MAX ? [`${length} ${kind}, of which the first ${NOTES_MAX} are listed`] : [],
  )
  const listed = Object.entries(notes).map(([kind, each]) => [kind, each.slice(0, NOTES_MAX)] as const)
  return { data: { ...answer, ...Object.fromEntries(listed) }, ...(omitted.length > 0 && { warnings: omitted }) }
}
