/** The stored roster of a server, which it has after a kill. */
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'

/** Whether the stored roster of the server with this data directory has the nodes and allocations. */
export function isSaved(dataDir: string, ids: { nodes: readonly string[]; allocations?: readonly string[] }): boolean {
  const database = new DatabaseSync(join(dataDir, 'server/roster.db'), { readOnly: true })
  try {
    const has = (table: string) => {
      const row = database.prepare(`SELECT 1 FROM ${table} WHERE id = ?`)
      return (id: string) => row.get(id) !== undefined
    }
    return ids.nodes.every(has('node')) && (ids.allocations ?? []).every(has('allocation'))
  } finally {
    database.close()
  }
}
