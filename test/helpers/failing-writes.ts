/** Makes commits of the real store fail on demand, within their transaction. */
import { DatabaseSync } from 'node:sqlite'

/** Until the returned function is called, each write to a path that matches `like` (SQL LIKE) fails. */
export function failWrites(databasePath: string, like: string): () => void {
  const run = (sql: string) => {
    const database = new DatabaseSync(databasePath)
    database.exec(sql)
    database.close()
  }
  run(`CREATE TRIGGER poison BEFORE INSERT ON entries WHEN new.path LIKE '${like}'
       BEGIN SELECT RAISE(ABORT, 'poisoned'); END`)
  return () => run('DROP TRIGGER poison')
}
