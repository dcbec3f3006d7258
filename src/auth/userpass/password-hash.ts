/**
 * Password hashes: scrypt (RFC 7914), stored with parameters and salt, so that later versions can raise the cost for new
 * passwords.
 *
 * A hash takes some ten milliseconds of CPU and 16 MiB. It runs on worker threads of a lower priority than the rest of the
 * process (`platform/worker-pool.ts`), not on libuv's thread pool, which reads files for all other requests. At most two hashes run at a
 * time. The others are queued, round-robin by caller address, for at most 15 s. A request that finds the queue full, or waits
 * longer, gets 503 with `Retry-After`.
 */
import { randomBytes, timingSafeEqual } from 'node:crypto'
import { availableParallelism } from 'node:os'
import * as v from 'valibot'
import { Fault, messageOf, Refusal } from '../../platform/errors.ts'
import { WorkerPool, WorkerTaskError } from '../../platform/worker-pool.ts'
import type { HashRequest } from './hash-thread.ts'

const SALT_BYTES = 16
const KEY_BYTES = 32
/** Takes about as long as bcrypt with the usual cost of 10. */
export const HASH_COST = 16_384
const PARAMETERS = { blockSize: 8, parallelization: 1 } as const
const MEMORY_MAX_BYTES = 64 << 20
/** Leaves one CPU for the event loop, if there are two. */
const WORKERS_MAX = Math.max(1, Math.min(2, availableParallelism() - 1))
/** A queued hash takes a few hundred bytes. One worker needs some 13 s for as many. */
const QUEUE_MAX = 256
const QUEUE_TIMEOUT_MS = 15_000
/** A hash takes less than a second unless the machine is overloaded. */
const TASK_TIMEOUT_MS = 60_000
const IDLE_TIMEOUT_MS = 60_000
/** V8's heap only. The memory of a hash is outside of it. */
const HEAP_MAX_MIB = 16

export const passwordHashSchema = v.object({
  algorithm: v.literal('scrypt'),
  cost: v.number(),
  blockSize: v.number(),
  parallelization: v.number(),
  salt: v.string(),
  key: v.string(),
})

export type PasswordHash = v.InferOutput<typeof passwordHashSchema>

/** The request that a password is hashed for. */
export interface HashCaller {
  /** Address or network: the unit of fairness between callers. */
  readonly address: string
  readonly signal: AbortSignal
  /** Called right before the hash, after the wait in the queue. What it throws rejects the hash. */
  readonly beforeHash?: () => void
}

const pool = new WorkerPool<HashRequest, Uint8Array>({
  name: 'password hashing',
  threadName: 'outpost-hash',
  url: new URL('./hash-thread.ts', import.meta.url),
  workersMax: WORKERS_MAX,
  queueMax: QUEUE_MAX,
  queueTimeoutMs: QUEUE_TIMEOUT_MS,
  taskTimeoutMs: TASK_TIMEOUT_MS,
  idleTimeoutMs: IDLE_TIMEOUT_MS,
  heapMaxMib: HEAP_MAX_MIB,
})

function overloaded(): Refusal {
  return new Refusal('unavailable', 'too many concurrent logins, try again later', { 'Retry-After': '2' }, 503)
}

/** Rejects with a Refusal (503) if too many hashes are queued, and with a Fault if the hash fails. */
export async function deriveKey(request: HashRequest, caller: HashCaller): Promise<Buffer> {
  const prepare = () => {
    caller.beforeHash?.()
    return { request }
  }
  try {
    return Buffer.from(await pool.run({ key: caller.address, signal: caller.signal, prepare }))
  } catch (error) {
    if (!(error instanceof WorkerTaskError)) throw error
    const { reason } = error
    if (reason === 'queue-full' || reason === 'queue-timeout' || reason === 'cancelled') throw overloaded()
    throw new Fault(`a password could not be hashed: ${messageOf(error)}`)
  }
}

/** `cost` is scrypt's N, a power of two. */
export async function hashPassword(password: string, cost: number, caller: HashCaller): Promise<PasswordHash> {
  const salt = randomBytes(SALT_BYTES)
  const parameters = { ...PARAMETERS, cost }
  const key = await deriveStoredKey(password, salt, parameters, caller)
  return { algorithm: 'scrypt', ...parameters, salt: salt.toString('base64'), key: key.toString('base64') }
}

export async function isPassword(password: string, stored: PasswordHash, caller: HashCaller): Promise<boolean> {
  const key = await deriveStoredKey(password, Buffer.from(stored.salt, 'base64'), stored, caller)
  const expected = Buffer.from(stored.key, 'base64')
  return key.length === expected.length && timingSafeEqual(key, expected)
}

/** The hash for logins of unknown users: the check takes the same time, and no password matches. */
export function unknownUserHash(cost = HASH_COST): PasswordHash {
  return {
    algorithm: 'scrypt',
    ...PARAMETERS,
    cost,
    salt: randomBytes(SALT_BYTES).toString('base64'),
    key: randomBytes(KEY_BYTES).toString('base64'),
  }
}

function deriveStoredKey(
  password: string,
  salt: Buffer,
  parameters: Pick<PasswordHash, 'cost' | 'blockSize' | 'parallelization'>,
  caller: HashCaller,
): Promise<Buffer> {
  const { blockSize, cost, parallelization } = parameters
  const scrypt = { keyBytes: KEY_BYTES, cost, blockSize, parallelization, memoryMaxBytes: MEMORY_MAX_BYTES }
  return deriveKey({ password, salt, ...scrypt }, caller)
}
