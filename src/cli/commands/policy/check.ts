/** `outpost policy check`: evaluates a policy file for a request without a server. */
import { readFileSync } from 'node:fs'
import { messageOf } from '../../../platform/errors.ts'
import type { PolicyAnswer, PolicyNote, PolicyQuestion } from '../../../secrets/policies/policy-answer.ts'
import { type CommandIo, defineCommand } from '../../framework/define-command.ts'
import { didYouMean, flag, text, texts, UsageError } from '../../framework/options.ts'
import { escapeLine } from '../../framework/terminal-escapes.ts'

const VERBS = ['read', 'list', 'scan', 'create', 'update', 'patch', 'delete'] as const
type PolicyVerb = (typeof VERBS)[number]
const WARNINGS_MAX = 50

export const command = defineCommand({
  name: 'policy check',
  summary: 'Check whether a policy allows a request',
  details: [
    `VERB is one of ${VERBS.join(', ')}.`,
    '"create" writes to a path that does not exist yet, "update" to one that exists.',
    '',
    'Prints the decision, the deciding rule with its position, and why other matching rules do not decide.',
    'Prints warnings about the file to stderr: a rule that can never decide, a * in the middle of a path, a',
    'path of a versioned mount without data/.',
    '',
    'Exit code 0: allowed; 1: denied; 2: the command line or a policy file is invalid.',
    '',
    'Example: outpost policy check app.hcl secret/data/app/db read',
  ].join('\n'),
  options: {
    with: texts('FILE', 'Additional policy of the caller'),
    data: texts('NAME=VALUE', 'Request parameter; VALUE is JSON or a string'),
    'wrap-ttl': text({
      placeholder: 'SECONDS',
      help: 'Wrap TTL of the request',
      fallback: undefined,
      check: (value) => (/^\d{1,9}$/.test(value) ? undefined : 'must be a number of seconds'),
    }),
    entity: texts('FACT=VALUE', 'Property of the entity: id or name or metadata.KEY'),
    all: flag('Show rules that do not match'),
  },
  operands: {
    shown: 'FILE PATH VERB',
    min: 3,
    max: 3,
  },
  async run(values, [file = '', path = '', verb = ''], io) {
    const operation = verbOf(verb)
    const documents = [file, ...values.with].map((name) => ({ name, text: readPolicy(name) }))
    const question: PolicyQuestion = {
      operation,
      path: path.replace(/^\/*(?:v1\/+)?/, ''),
      data: Object.fromEntries(values.data.map((pair) => dataOf(pair))),
      wrapTtlSeconds: values['wrap-ttl'] === undefined ? undefined : Number(values['wrap-ttl']),
      entityFacts: new Map(values.entity.map((pair) => split(pair, '-entity name=alice'))),
    }
    // Loaded here because completion loads every command file.
    const { answerPolicy, noteLine, parsePolicies } = await import('../../../secrets/policies/policy-answer.ts')
    const { faults, sources } = parsePolicies(documents)
    if (faults.length > 0) {
      for (const fault of faults) io.err(`${escapeLine(noteLine(fault))}\n`)
      return 2
    }
    const answer = answerPolicy(sources, question, Date.now())
    print(answer, { io, noteLine, all: values.all })
    return answer.allowed ? 0 : 1
  },
})

function verbOf(given: string): PolicyVerb {
  const verb = VERBS.find((each) => each === given.toLowerCase())
  if (verb) return verb
  throw new UsageError(
    `unknown verb ${JSON.stringify(given)}${didYouMean(given, [...VERBS])}, one of: ${VERBS.join(', ')}`,
  )
}

function readPolicy(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    throw new UsageError(`cannot read the policy: ${messageOf(error)}`, { cause: error })
  }
}

function split(pair: string, example: string): readonly [string, string] {
  const at = pair.indexOf('=')
  if (at <= 0) throw new UsageError(`expected NAME=VALUE as in ${example}, got ${JSON.stringify(pair)}`)
  return [pair.slice(0, at), pair.slice(at + 1)]
}

function dataOf(pair: string): readonly [string, unknown] {
  const [name, value] = split(pair, '-data ttl=1h')
  try {
    const parsed: unknown = JSON.parse(value)
    return [name, parsed]
  } catch {
    return [name, value]
  }
}

interface AnswerOutput {
  readonly io: CommandIo
  readonly noteLine: (note: PolicyNote) => string
  readonly all: boolean
}

function print(answer: PolicyAnswer, { all, io, noteLine }: AnswerOutput): void {
  const { hint, reasons, unmatched, verdict, warnings } = answer
  const indented = (notes: readonly PolicyNote[]) => notes.map((note) => `  ${noteLine(note)}`)
  const hints = hint === undefined ? [] : [`  ${hint}`]
  for (const line of [verdict, ...indented(reasons), ...hints, ...(all ? indented(unmatched) : [])])
    io.out(`${escapeLine(line)}\n`)
  if (!all && unmatched.length > 0) {
    const rules = unmatched.length === 1 ? '1 rule does' : `${unmatched.length} rules do`
    io.out(`  ${rules} not match (-all shows why)\n`)
  }
  for (const warning of warnings.slice(0, WARNINGS_MAX)) io.err(`warning: ${escapeLine(noteLine(warning))}\n`)
  const unshown = warnings.length - WARNINGS_MAX
  if (unshown > 0) io.err(`warning: and ${unshown} more\n`)
}
