/** Worker thread of `password-hash.ts`: derives keys from passwords, one at a time, with a lower priority than the process. */
import { scryptSync } from 'node:crypto'
import { lowerThreadPriority, serveTasks } from '../../platform/worker-task.ts'

export interface HashRequest {
  readonly password: string
  readonly salt: Uint8Array
  readonly keyBytes: number
  /** scrypt's N, r and p. */
  readonly cost: number
  readonly blockSize: number
  readonly parallelization: number
  /** Upper limit of the memory of one hash. */
  readonly memoryMaxBytes: number
}

const PRIORITY_STEPS = 10

lowerThreadPriority(PRIORITY_STEPS)
serveTasks(
  ({ blockSize, cost, keyBytes, memoryMaxBytes, parallelization, password, salt }: HashRequest): Uint8Array => {
    return scryptSync(password, salt, keyBytes, { cost, blockSize, parallelization, maxmem: memoryMaxBytes })
  },
)
