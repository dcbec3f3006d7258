import type { Worker } from 'node:worker_threads'
import { Fault, messageOf } from '../../../platform/errors.ts'
import type { WriterSettings } from '../database-writer.ts'
import { acquireStoreWorker } from '../store-worker-cache.ts'

/** Resolves once the database is open. Rejects with a Fault for the operator. */
export async function startWriter(settings: WriterSettings): Promise<Worker> {
  const worker = acquireStoreWorker()
  await new Promise<void>((resolve, reject) => {
    worker.once('message', () => resolve())
    worker.once('error', (error) => reject(new Fault(messageOf(error), { cause: error })))
    worker.once('exit', () => reject(new Fault(`the writer of ${settings.path} exited`)))
    worker.postMessage(settings, [])
  })
  return worker
}
