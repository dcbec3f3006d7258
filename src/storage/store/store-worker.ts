/**
 * A worker thread of a store (`store-worker-cache.ts`). It is either the writer of a database, from the message with the settings until
 * the database is closed, or it runs a task that reads all entries of one point in time. An error on opening the database ends the
 * thread.
 */
import { parentPort, receiveMessageOnPort } from 'node:worker_threads'
import { type TreeTask, reportEntriesTree } from '../merkle/entries-tree.ts'
import { DatabaseWriter, type WriterOrder, type WriterPort, type WriterSettings } from './writer-thread.ts'
import { type SnapshotCopyTask, copySnapshot } from './snapshot-entries.ts'

const port = parentPort
if (!port) throw new Error('this file runs in a worker thread, see store.ts')
const orders = port
let writer: DatabaseWriter | undefined

const writerPort: WriterPort = {
  report: (report) => orders.postMessage(report, []),
  nextOrder() {
    const received: { message: WriterOrder } | undefined = receiveMessageOnPort(orders)
    return received?.message
  },
}

orders.on('message', (message: WriterOrder | WriterSettings | TreeTask | SnapshotCopyTask) => {
  if ('task' in message) perform(message)
  else if (!('kind' in message)) writer = new DatabaseWriter(message, writerPort)
  else execute(message)
})

function execute(order: WriterOrder): void {
  writer?.execute(order)
  // The idle thread must not keep the memory of a closed writer.
  if (writer?.isOpen === false) writer = undefined
}

function perform(task: TreeTask | SnapshotCopyTask): void {
  if (task.task === 'copy') orders.postMessage(copySnapshot(task), [])
  else
    reportEntriesTree(task, (report) =>
      orders.postMessage(report, report.kind === 'tree' ? [report.hashes.buffer] : []),
    )
}
