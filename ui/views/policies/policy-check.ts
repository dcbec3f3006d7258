/** Texts of the form beside a policy, and of the answer about it. */
import type { PolicyDocument, PolicyNote, PolicyQuestion, PolicyVerb } from './policy-types.ts'

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

/** The body of a check. Lines after one that is not a pair are left out; the form shows the fault. */
export function questionOf(policies: readonly PolicyDocument[], form: CheckForm): PolicyQuestion {
  const parameters = [...pairsOf(form.parameters).pairs].map(([name, text]) => [name, valueOf(text)] as const)
  return {
    policies,
    operation: form.verb,
    path: pathOfRequest(form.path),
    parameters: Object.fromEntries(parameters),
    entity: Object.fromEntries(pairsOf(form.entity).pairs),
  }
}

/** The place of a note: the position, with the policy if it is not the edited one. */
export function placeOf({ column, line, policy }: PolicyNote): string {
  const position = `line ${line}, column ${column}`
  return policy === THIS_POLICY ? position : `${policy}, ${position}`
}
