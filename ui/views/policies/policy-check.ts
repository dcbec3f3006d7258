/** Texts of the form beside a policy, and of the answer about it. */
import type { AnswerPolicy, PolicyAnswer, PolicyDocument, PolicyVerb } from './policy-types.ts'

/** The name of the edited policy in positions. Names of policies have no spaces. */
export const THIS_POLICY = 'this policy'

export interface CheckForm {
  readonly path: string
  readonly verb: PolicyVerb
  /** A line `NAME=VALUE` for each; VALUE is JSON or a string. */
  readonly parameters: string
  /** A line `NAME=VALUE` for each: id, name or metadata.KEY. */
  readonly entity: string
}

export interface Pairs {
  readonly pairs: ReadonlyMap<string, string>
  /** The first line that is not NAME=VALUE. */
  readonly fault: string | undefined
}

export function pairsOf(text: string): Pairs {
  const pairs = new Map<string, string>()
  for (const line of text.split('\n').map((each) => each.trim())) {
    if (line === '') continue
    const at = line.indexOf('=')
    if (at <= 0) return { pairs, fault: `Expected NAME=VALUE, got "${line}".` }
    pairs.set(line.slice(0, at).trim(), line.slice(at + 1).trim())
  }
  return { pairs, fault: undefined }
}

function valueOf(text: string): unknown {
  try {
    const parsed: unknown = JSON.parse(text)
    return parsed
  } catch {
    return text
  }
}

/** As the path of `outpost policy check`. */
export function pathOfRequest(given: string): string {
  return given.trim().replace(/^\/*(?:v1\/+)?/, '')
}

export function checkPolicies(
  answerPolicy: AnswerPolicy,
  documents: readonly PolicyDocument[],
  { entity, parameters, path, verb }: CheckForm,
): PolicyAnswer {
  const data = Object.fromEntries([...pairsOf(parameters).pairs].map(([name, text]) => [name, valueOf(text)]))
  const question = {
    operation: verb,
    path: pathOfRequest(path),
    data,
    wrapTtlSeconds: undefined,
    entityFacts: pairsOf(entity).pairs,
  }
  return answerPolicy(documents, question, Date.now())
}

export interface PlacedLine {
  /** The document, with the line if it has a position. */
  readonly place: string
  readonly line: number | undefined
  /** Whether it is about the edited policy. */
  readonly isOwn: boolean
  readonly text: string
}

/** Splits `FILE:LINE:COLUMN: text`. */
export function placedLine(given: string): PlacedLine {
  const found = /^(.*?):(\d+):(\d+): ([\s\S]*)$/.exec(given.trim())
  if (!found) return { place: '', line: undefined, isOwn: false, text: given.trim() }
  const [, file = '', line = '', column = '', text = ''] = found
  const isOwn = file === THIS_POLICY
  const position = `line ${line}, column ${column}`
  return { place: isOwn ? position : `${file}, ${position}`, line: Number(line), isOwn, text }
}
