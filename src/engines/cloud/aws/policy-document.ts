/** IAM policy documents: JSON text, stored as written without white space between tokens. */
import { isObject, type JsonObject } from '../../framework/fields.ts'

/** Limit of AWS for session policies, and for inline policies of a user. */
export const DOCUMENT_LENGTH_MAX = 2048

/** Removes white space outside of strings. Undefined for a text that is not a JSON object. */
export function compactJson(text: string): string | undefined {
  try {
    if (!isObject(JSON.parse(text))) return undefined
  } catch {
    return undefined
  }
  return text.replace(/"(?:[^"\\]|\\.)*"|\s+/g, (part) => (part.startsWith('"') ? part : ''))
}

const VERSIONS: readonly unknown[] = [undefined, '2012-10-17', '2008-10-17']
const MEMBERS = new Set(['Sid', 'Effect', 'Action', 'NotAction', 'Resource', 'NotResource', 'Condition'])
const ACTION = /^(?:\*|[a-z0-9-]+:[\w*?]+)$/i
const RESOURCE = /^(?:\*|arn:\S.*)$/

/** Why IAM would reject a document as policy of a user or session; undefined if no fault is found. */
export function documentFault(text: string): string | undefined {
  const whole = objectOf(text)
  if (!whole) return 'it is not a JSON object'
  if (text.length > DOCUMENT_LENGTH_MAX)
    return `it has ${text.length} characters, the limit of AWS is ${DOCUMENT_LENGTH_MAX}`
  if (!VERSIONS.includes(whole['Version'])) return 'Version must be 2012-10-17'
  const statements = isObject(whole['Statement']) ? [whole['Statement']] : whole['Statement']
  if (!Array.isArray(statements) || statements.length === 0) return 'it has no Statement'
  for (const [at, statement] of statements.entries()) {
    const fault = isObject(statement) ? statementFault(statement) : 'it is not an object'
    if (fault !== undefined) return `Statement ${at + 1}: ${fault}`
  }
  return undefined
}

function objectOf(text: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return isObject(value) ? value : undefined
  } catch {
    return undefined
  }
}

function statementFault(statement: JsonObject): string | undefined {
  const odd = Object.keys(statement).find((name) => !MEMBERS.has(name))
  if (odd !== undefined) return `${JSON.stringify(odd.slice(0, 40))} is not allowed in a policy of a user or session`
  if (statement['Effect'] !== 'Allow' && statement['Effect'] !== 'Deny') return 'Effect must be Allow or Deny'
  return (
    listFault(statement, 'Action', ACTION, 'service:Action') ?? listFault(statement, 'Resource', RESOURCE, 'an ARN')
  )
}

/** Exactly one of `name` and `Not…`, with strings of one format. */
function listFault(statement: JsonObject, name: string, form: RegExp, what: string): string | undefined {
  const given = [statement[name], statement[`Not${name}`]].filter((each) => each !== undefined)
  if (given.length !== 1) return `it needs exactly one of ${name} and Not${name}`
  const texts: unknown[] = given.flat()
  if (texts.length === 0) return `${name} is empty`
  const wrong = texts.find((each) => typeof each !== 'string' || !form.test(each))
  return wrong === undefined ? undefined : `${JSON.stringify(wrong).slice(0, 80)} is neither ${what} nor *`
}

export class PolicyMergeError extends Error {
  override readonly name = 'PolicyMergeError'
}

/** A document with the statements of all, without empty documents. Throws a PolicyMergeError. */
export function mergedPolicies(documents: readonly string[]): string {
  const statements: unknown[] = []
  for (const document of documents) {
    if (document.trim() === '') continue
    let parsed: unknown
    try {
      parsed = JSON.parse(document)
    } catch {
      throw new PolicyMergeError('a policy document is not JSON')
    }
    const { Statement } = isObject(parsed) ? (parsed as { Statement?: unknown }) : {}
    if (isObject(Statement)) statements.push(Statement)
    else if (Array.isArray(Statement)) statements.push(...(Statement as unknown[]))
    else throw new PolicyMergeError('a policy document has no Statement')
  }
  return JSON.stringify({ Version: '2012-10-17', Statement: statements })
}
