/**
 * A thread of a store. It does one thing at a time, and then the next (`store-threads.ts`): it is the writer of a database,
 * which the first message names, until that one is closed; or it does a task that reads all entries of one moment. A
 * database whose writer it cannot be ends the thread.
 */
import { parentPort, receiveMessageOnPort } from 'node:worker_threads'
import { type TreeTask, tellEntriesTree } from '../merkle/entries-tree.ts'
import { DatabaseWriter, type Order, type WriterPort, type WriterSettings } from './database-writer.ts'
import { type CopyTask, copySnapshot } from './snapshot-copy.ts'

const port = parentPort
if (!port) throw new Error('this file is a thread, see store.ts')
const orders = port
let writer: DatabaseWriter | undefined

const writerPort: WriterPort = {
  tell: (report) => orders.postMessage(report, []),
  arrived() {
    const received: { message: Order } | undefined = receiveMessageOnPort(orders)
    return received?.message
  },
}

orders.on('message', (message: Order | WriterSettings | TreeTask | CopyTask) => {
  if ('task' in message) perform(message)
  else if (!('kind' in message)) writer = new DatabaseWriter(message, writerPort)
  else take(message)
})

function take(order: Order): void {
  writer?.take(order)
  // The thread may wait long for what it does next: what a closed writer holds is let go of.
  if (writer?.isOpen === false) writer = undefined
}

function perform(task: TreeTask | CopyTask): void {
  if (task.task === 'copy') orders.postMessage(copySnapshot(task), [])
  else
    tellEntriesTree(task, (report) => orders.postMessage(report, report.kind === 'tree' ? [report.hashes.buffer] : []))
}
