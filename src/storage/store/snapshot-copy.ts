/** Copies the entries of one moment into a file, in a thread (`store-thread.ts`), see `snapshot.ts`. */
import { messageOf } from '../../platform/errors.ts'
import { openForReading } from '../sqlite/database.ts'
import { type Copied, copyEntries } from '../snapshot/format/snapshot-records.ts'

export interface CopyTask {
  readonly task: 'copy'
  readonly path: string
  /** Of an empty file; descriptors belong to the process, not to a thread. */
  readonly fd: number
}

export type CopyReport = { readonly copied: Copied } | { readonly failure: string }

export function copySnapshot({ path, fd }: CopyTask): CopyReport {
  const database = openForReading(path)
  try {
    return { copied: copyEntries(database, fd, Date.now()) }
  } catch (error) {
    return { failure: messageOf(error) }
  } finally {
    database.close()
  }
}
