/** How the table of policies is written down: `policy-table.ts` and its parts. */

export interface TableCase {
  /** What the rows show, with the section of the language's description: grammar 1, merging 2, order 3, verbs 4, templates 5. */
  readonly shows: string
  /** Each is a policy of its own, all of them the caller's. */
  readonly policies: readonly string[]
  /** The caller has the entity of `ALICE` (`policy-table-templates.ts`). */
  readonly entity?: boolean
  readonly rows: readonly TableRow[]
}

export interface TableRow {
  readonly verb: 'read' | 'list' | 'scan' | 'create' | 'update' | 'patch' | 'delete' | 'help' | 'caps'
  readonly path: string
  /** `allow` or `deny`; for `caps` the names. */
  readonly outcome: string
  readonly data?: Readonly<Record<string, unknown>>
  readonly wrap?: number
  readonly gives?: number
  readonly sudo?: boolean
}

export function path(name: string, rest: string): string {
  return `path "${name}" { ${rest} }`
}

/** `grant('kv/a', 'read list')`, with further settings of the rule. */
export function grant(name: string, capabilities: string, more = ''): string {
  const list = capabilities
    .split(' ')
    .filter(Boolean)
    .map((each) => `"${each}"`)
  return path(name, `capabilities = [${list.join(', ')}] ${more}`)
}

function rowsOf(text: string): TableRow[] {
  const lines = text.split('\n').map((line) => line.trim())
  return lines.filter(Boolean).map((line) => {
    const [, verb = '', name = '', outcome = '', more] = /^(\S+) (\S+) (\S+)(?: (\{.*\}))?$/.exec(line) ?? []
    if (!outcome) throw new Error(`not a row: ${line}`)
    return { verb, path: name, outcome, ...(more ? JSON.parse(more) : {}) } as TableRow
  })
}

export function shows(what: string, policies: readonly string[], rows: string, entity = false): TableCase {
  return { shows: what, policies, rows: rowsOf(rows), entity }
}
