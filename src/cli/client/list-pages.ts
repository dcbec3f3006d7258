/** Reads a list of a server page by page, so that no answer grows with the size of the fleet. */
import type { AgentTarget } from './agent-target.ts'
import { CommandError } from '../framework/command-shape.ts'
import { openResponse, type Query, requestText, requireSuccess, responseText } from './http-client.ts'

const PER_PAGE = 1000

/** All records, in the server's order. Throws CommandError. */
export async function listRecords(target: AgentTarget, path: string, query: Query = {}): Promise<unknown[]> {
  const records: unknown[] = []
  let next: string | undefined
  do {
    const response = await openResponse(target, { path, query: { ...query, per_page: PER_PAGE, next_token: next } })
    await requireSuccess(response, target)
    const page = parsed(await responseText(response, target))
    if (!Array.isArray(page)) {
      throw new CommandError(`${target.url.origin} did not answer with a list, is it an outpost agent or server?`)
    }
    for (const record of page as unknown[]) records.push(record)
    const token = response.headers['x-nomad-nexttoken']
    next = typeof token === 'string' && token !== '' ? token : undefined
  } while (next !== undefined)
  if (records.length === 0 && query['namespace'] === '*') await requireToken(target, path)
  return records
}

/**
 * With all namespaces, a server leaves out what the caller may not see, so without a token the list is empty and no error.
 * Throws CommandError if a token is needed and none was sent.
 */
async function requireToken(target: AgentTarget, path: string): Promise<void> {
  if (target.token === undefined) await requestText(target, { path, query: { namespace: 'default', per_page: 1 } })
}

/** Undefined for what is not JSON. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** `A == "x" and B == "y"` in the server's filter language; undefined without conditions. */
export function filterOf(conditions: readonly (string | undefined)[]): string | undefined {
  const given = conditions.filter((condition) => condition !== undefined)
  return given.length === 0 ? undefined : given.map((each) => (given.length > 1 ? `(${each})` : each)).join(' and ')
}

/** A condition on one field; undefined without a value. */
export function equals(field: string, value: string | undefined): string | undefined {
  return value === undefined ? undefined : `${field} == ${JSON.stringify(value)}`
}
