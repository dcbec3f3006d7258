/** Lines that audit devices have written. */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { checkChain } from '../../src/cli/commands/audit/chain-check.ts'

export interface AuditLine {
  readonly type: string
  readonly error?: string
  readonly auth?: Readonly<Record<string, unknown>>
  readonly request: Readonly<Record<string, unknown>> & { readonly data?: Record<string, unknown> }
  readonly response?: { readonly data?: Record<string, unknown>; readonly auth?: Record<string, unknown> }
  readonly chain: {
    readonly sequence: number
    readonly previous: string
    readonly event?: string
    readonly mac?: string
  }
}

export function auditLinesOf(text: string): AuditLine[] {
  const lines = text.split('\n').filter((line) => line !== '')
  return lines.map((line) => JSON.parse(line.slice(line.indexOf('{'))) as AuditLine)
}

export function auditLinesIn(...files: readonly string[]): AuditLine[] {
  return files.flatMap((file) => auditLinesOf(readFileSync(file, 'utf8')))
}

/**
 * Fails unless each line is complete and has the hash of the previous one, over all files; resolves with the last
 * number.
 */
export async function assertWhole(...files: readonly string[]): Promise<number> {
  const from = auditLinesIn(...files).at(0)?.chain.sequence
  const { fault, last, torn } = await checkChain(files, { from })
  assert.deepEqual({ fault, torn }, { fault: undefined, torn: [] })
  return last?.sequence ?? 0
}

/** Fails unless the requests for each of these paths have both lines. */
export function assertBothLines(lines: readonly AuditLine[], paths: readonly string[]): void {
  const seen = new Set(lines.map(({ request, type }) => `${type} ${String(request?.['path'])}`))
  const missing = paths.flatMap((path) => [`request ${path}`, `response ${path}`].filter((each) => !seen.has(each)))
  assert.deepEqual(missing, [], `of ${paths.length} requests that were answered`)
}
