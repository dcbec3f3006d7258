/** Reads the entries of a database that another connection writes. */
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { Fault } from '../../platform/errors.ts'
import type { Entry } from './entry-cache.ts'
import { entryCrc } from './entry-crc.ts'

export interface PageOptions {
  readonly after?: string
  readonly limit?: number
}

/** A path part sorts below this one: `/` is 0x2f. */
const BEHIND_SLASH = '0'
const TAIL_BYTES = 16

export class EntryReader {
  readonly #get: StatementSync
  readonly #next: StatementSync
  readonly #paths: StatementSync
  readonly #tails: StatementSync

  constructor(database: DatabaseSync) {
    this.#get = database.prepare('SELECT value, sequence, crc FROM entries WHERE path = ?')
    this.#next = database.prepare('SELECT path FROM entries WHERE path >= ? AND path < ? ORDER BY path LIMIT 1')
    this.#paths = database.prepare('SELECT path FROM entries WHERE path >= ? AND path < ? ORDER BY path LIMIT ?')
    this.#tails = database.prepare(
      `SELECT path, substr(value, -${TAIL_BYTES}) AS tail FROM entries WHERE path > ? ORDER BY path LIMIT ?`,
    )
  }

  /** Undefined where there is none. */
  get(path: string): Entry | 'damaged' | undefined {
    const row = this.#get.get(path)
    if (!row) return undefined
    const { value, crc } = row
    const sequence = Number(row['sequence'])
    if (!(value instanceof Uint8Array) || entryCrc(path, sequence, value) !== crc) return 'damaged'
    return { value, sequence }
  }

  list(prefix: string, { after = '', limit = Number.MAX_SAFE_INTEGER }: PageOptions): string[] {
    checkPrefix(prefix)
    const names: string[] = []
    const end = behind(prefix)
    let from = after === '' ? prefix : behind(prefix + after)
    while (names.length < limit) {
      const found = this.#next.get(from, end)?.['path']
      if (typeof found !== 'string') break
      const rest = found.slice(prefix.length)
      const slash = rest.indexOf('/')
      const name = slash < 0 ? rest : rest.slice(0, slash + 1)
      names.push(name)
      from = behind(prefix + name)
    }
    return names
  }

  paths(prefix: string, { after = '', limit = Number.MAX_SAFE_INTEGER }: PageOptions): string[] {
    checkPrefix(prefix)
    const from = after === '' ? prefix : `${after}\0`
    return this.#paths.all(from, behind(prefix), limit).map(({ path }) => String(path))
  }

  tails(after: string, limit: number): { path: string; tail: Uint8Array }[] {
    return this.#tails.all(after, limit).map(({ path, tail }) => {
      return { path: String(path), tail: tail instanceof Uint8Array ? tail : new Uint8Array() }
    })
  }
}

function checkPrefix(prefix: string): void {
  if (prefix !== '' && !prefix.endsWith('/')) throw new Fault('a prefix that is listed ends with a slash')
}

/** The first text that sorts behind everything that a name below a prefix can be: a folder's whole content with it. */
function behind(path: string): string {
  if (path === '') return '\u{10ffff}'
  return path.endsWith('/') ? `${path.slice(0, -1)}${BEHIND_SLASH}` : `${path}\0`
}
