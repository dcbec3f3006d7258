/** Makes the real store fail on demand: a batch that puts an entry under a poisoned path fails within its transaction. */
import { DatabaseSync } from 'node:sqlite'

/** From now on, until the returned function is called, whatever is put under a path that matches (LIKE) fails. */
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
