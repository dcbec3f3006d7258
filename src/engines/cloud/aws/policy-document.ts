/** Policy documents of IAM: JSON text, kept as it was written but for white space between its parts. */
import { isObject, type JsonObject } from '../../framework/fields.ts'

/** Characters that AWS takes of a session's policy, and of what a user has inline. */
export const DOCUMENT_LENGTH_MAX = 2048

/** JSON text without white space outside of strings; undefined for what is no JSON object. */
export function compacted(text: string): string | undefined {
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

/** Why IAM would not take a document as the policy of a user or a session; undefined where nothing is seen. */
export function documentFault(text: string): string | undefined {
  const whole = objectOf(text)
  if (!whole) return 'it is no JSON object'
  if (text.length > DOCUMENT_LENGTH_MAX) return `it has ${text.length} characters, AWS takes ${DOCUMENT_LENGTH_MAX}`
  if (!VERSIONS.includes(whole['Version'])) return 'Version is 2012-10-17'
  const statements = isObject(whole['Statement']) ? [whole['Statement']] : whole['Statement']
  if (!Array.isArray(statements) || statements.length === 0) return 'it has no Statement'
  for (const [at, statement] of statements.entries()) {
    const fault = isObject(statement) ? statementFault(statement) : 'it is no object'
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
  if (odd !== undefined) return `${JSON.stringify(odd.slice(0, 40))} has no place in a policy of a user or a session`
  if (statement['Effect'] !== 'Allow' && statement['Effect'] !== 'Deny') return 'Effect is Allow or Deny'
  return (
    listFault(statement, 'Action', ACTION, 'service:Action') ?? listFault(statement, 'Resource', RESOURCE, 'an ARN')
  )
}

/** One of `name` and `Not…`, with texts of one form. */
function listFault(statement: JsonObject, name: string, form: RegExp, what: string): string | undefined {
  const given = [statement[name], statement[`Not${name}`]].filter((each) => each !== undefined)
  if (given.length !== 1) return `it needs ${name} or Not${name}, and one of them only`
  const texts: unknown[] = given.flat()
  if (texts.length === 0) return `${name} names nothing`
  const wrong = texts.find((each) => typeof each !== 'string' || !form.test(each))
  return wrong === undefined ? undefined : `${JSON.stringify(wrong).slice(0, 80)} is not ${what} nor *`
}

/** A policy that cannot be merged. */
export class PolicyFault extends Error {
  override readonly name = 'PolicyFault'
}

/** One document with the statements of all. Throws a PolicyFault. Empty documents are left out. */
export function merged(documents: readonly string[]): string {
  const statements: unknown[] = []
  for (const document of documents) {
    if (document.trim() === '') continue
    let parsed: unknown
    try {
      parsed = JSON.parse(document)
    } catch {
      throw new PolicyFault('a policy document is not JSON')
    }
    const { Statement } = isObject(parsed) ? (parsed as { Statement?: unknown }) : {}
    if (isObject(Statement)) statements.push(Statement)
    else if (Array.isArray(Statement)) statements.push(...(Statement as unknown[]))
    else throw new PolicyFault('a policy document has no Statement')
  }
  return JSON.stringify({ Version: '2012-10-17', Statement: statements })
}
