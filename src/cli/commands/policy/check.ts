/** `outpost policy check`: what a policy says about a request, and why. Asks nobody: it reads the file. */
import { readFileSync } from 'node:fs'
import { messageOf } from '../../../platform/errors.ts'
import type { PolicyAnswer, PolicyQuestion } from '../../../secrets/policies/policy-answer.ts'
import { type CommandIo, defineCommand } from '../../framework/command-shape.ts'
import { flag, text, texts, UsageError } from '../../framework/options.ts'
import { shownName } from '../../framework/shown.ts'
import { didYouMean } from '../../framework/suggestion.ts'

const VERBS = ['read', 'list', 'scan', 'create', 'update', 'patch', 'delete'] as const
type Verb = (typeof VERBS)[number]
const WARNINGS_MAX = 50

export const command = defineCommand({
  name: 'policy check',
  summary: 'Say whether a policy allows a request, and which rule decides',
  details: [
    `VERB is one of ${VERBS.join(', ')}.`,
    '"create" writes what is not there, "update" what is.',
    '',
    'The decision and the rule that made it, with its place in the file, go to stdout, and why each other',
    'rule that matches, or nearly does, did not decide. Doubts about the file go to stderr: a rule that can',
    'never decide, a * in the middle, a path of a versioned store without data/.',
    '',
    'Exit code 0: allowed; 1: denied; 2: the command line is wrong, or a file cannot be read as a policy.',
    '',
    'Example: outpost policy check app.hcl secret/data/app/db read',
  ].join('\n'),
  options: {
    with: texts('FILE', 'A further policy of the same caller'),
    data: texts('NAME=VALUE', 'A parameter of the request; VALUE is JSON, or text where it is none'),
    'wrap-ttl': text({
      placeholder: 'SECONDS',
      help: 'How long the answer is to stay wrapped',
      fallback: undefined,
      check: (value) => (/^\d{1,9}$/.test(value) ? undefined : 'must be a number of seconds'),
    }),
    entity: texts('FACT=VALUE', "A fact about the caller's entity: id, name or metadata.KEY"),
    all: flag('Show the rules that do not match, too'),
  },
  operands: {
    shown: 'FILE PATH VERB',
    min: 3,
    max: 3,
    missing: 'give a file, a path and a verb, as in: outpost policy check app.hcl secret/data/app/db read',
  },
  async run(values, [file = '', path = '', verb = ''], io) {
    const operation = verbOf(verb)
    const documents = [file, ...values.with].map((name) => ({ file: name, text: readPolicy(name) }))
    const question: PolicyQuestion = {
      operation,
      path: path.replace(/^\/*(?:v1\/+)?/, ''),
      data: Object.fromEntries(values.data.map((pair) => dataOf(pair))),
      wrapTtlSeconds: values['wrap-ttl'] === undefined ? undefined : Number(values['wrap-ttl']),
      entityFacts: new Map(values.entity.map((pair) => split(pair, '-entity name=alice'))),
    }
    // Loaded only now: completion looks at every command and needs no policies.
    const { answerPolicy } = await import('../../../secrets/policies/policy-answer.ts')
    const answer = answerPolicy(documents, question, Date.now())
    if (answer.faults.length > 0) {
      for (const fault of answer.faults) io.err(`${shownName(fault)}\n`)
      return 2
    }
    print(answer, io, values.all)
    return answer.allowed ? 0 : 1
  },
})

function verbOf(given: string): Verb {
  const found = VERBS.find((each) => each === given.toLowerCase())
  if (found) return found
  throw new UsageError(
    `unknown verb ${JSON.stringify(given)}${didYouMean(given, [...VERBS])}, give one of ${VERBS.join(', ')}`,
  )
}

function readPolicy(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    throw new UsageError(`the policy cannot be read: ${messageOf(error)}`, { cause: error })
  }
}

function split(pair: string, example: string): readonly [string, string] {
  const at = pair.indexOf('=')
  if (at <= 0) throw new UsageError(`${JSON.stringify(pair)} has no name and value, give them as in ${example}`)
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

function print(answer: PolicyAnswer, io: CommandIo, all: boolean): void {
  for (const line of [answer.verdict, ...answer.reasons, ...(all ? answer.unmatched : [])])
    io.out(`${shownName(line)}\n`)
  if (!all && answer.unmatched.length > 0) {
    const rules = answer.unmatched.length === 1 ? 'one rule does' : `${answer.unmatched.length} rules do`
    io.out(`  ${rules} not match (-all shows why)\n`)
  }
  for (const warning of answer.warnings.slice(0, WARNINGS_MAX)) io.err(`warning: ${shownName(warning)}\n`)
  const unshown = answer.warnings.length - WARNINGS_MAX
  if (unshown > 0) io.err(`warning: and ${unshown} more\n`)
}
