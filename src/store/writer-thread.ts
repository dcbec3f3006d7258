/**
 * The thread of the writer. It serves one database at a time: the first message names it, and when that one was closed
 * another may follow, because to start a thread takes more than to open a database (`writer-threads.ts`). A database that
 * cannot be opened ends the thread.
 */
import { parentPort, receiveMessageOnPort } from 'node:worker_threads'
import { DatabaseWriter, type Order, type WriterPort, type WriterSettings } from './database-writer.ts'

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

orders.on('message', (message: Order | WriterSettings) => {
  if (!('kind' in message)) writer = new DatabaseWriter(message, writerPort)
  else writer?.take(message)
})
