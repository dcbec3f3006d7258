/** The thread that hashes passwords, one at a time. */
import { scryptSync } from 'node:crypto'
import { readlinkSync } from 'node:fs'
import { getPriority, setPriority } from 'node:os'
import { parentPort } from 'node:worker_threads'
import { messageOf } from '../../kit/errors.ts'

export interface HashOrder {
  readonly password: string
  readonly salt: Uint8Array
  readonly keyBytes: number
  readonly cost: number
  readonly blockSize: number
  readonly parallelization: number
  /** Bytes that a hash may take. */
  readonly memoryMax: number
}

export type HashAnswer = { readonly key: Uint8Array } | { readonly failure: string }

/** Steps of nice(2) below the process. */
const LOWER = 10
const LOWEST = 19

/** On Linux a priority is a thread's own, and this link names the thread that reads it. */
function lowerPriority(): void {
  try {
    const thread = Number(readlinkSync('/proc/thread-self').split('/').at(-1))
    setPriority(thread, Math.min(LOWEST, getPriority(thread) + LOWER))
  } catch {
    // Without /proc it runs as the rest does.
  }
}

function answerTo(order: HashOrder): HashAnswer {
  const { blockSize, cost, keyBytes, memoryMax, parallelization, password, salt } = order
  try {
    return { key: scryptSync(password, salt, keyBytes, { cost, blockSize, parallelization, maxmem: memoryMax }) }
  } catch (error) {
    return { failure: messageOf(error) }
  }
}

lowerPriority()
parentPort?.on('message', (order: HashOrder) => parentPort?.postMessage(answerTo(order), []))
