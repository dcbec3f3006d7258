/** Policy documents of IAM: JSON text, kept as it was written but for white space between its parts. */
import { isObject } from '../fields.ts'

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
