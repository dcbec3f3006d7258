/** The thread that copies the entries of one moment into a file, see `snapshot.ts`. It ends with the copy. */
import { parentPort, workerData } from 'node:worker_threads'
import { messageOf } from '../kit/errors.ts'
import { openForReading } from './database.ts'
import { type Copied, copyEntries } from './snapshot-records.ts'

export interface CopyOrder {
  readonly path: string
  /** Of an empty file; descriptors belong to the process, not to a thread. */
  readonly fd: number
}

export type CopyReport = { readonly copied: Copied } | { readonly failure: string }

function copy({ path, fd }: CopyOrder): CopyReport {
  const database = openForReading(path)
  try {
    return { copied: copyEntries(database, fd, Date.now()) }
  } catch (error) {
    return { failure: messageOf(error) }
  } finally {
    database.close()
  }
}

const port = parentPort
if (!port) throw new Error('this file is a thread, see snapshot.ts')
port.postMessage(copy(workerData as CopyOrder))
