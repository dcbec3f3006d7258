/**
 * Passwords as they are kept: scrypt, with its parameters and a salt beside the hash, so that later versions can ask more of new
 * ones. It runs on threads of its own (`hash-threads.ts`), never on the event loop.
 *
 * A hash costs some ten milliseconds of a processor and 16 MiB. So few run at a time, the others wait in turn, by the address of
 * their callers: one that sends very many waits for itself and not before others. What would wait too long is refused (503,
 * Retry-After).
 */
import { randomBytes, timingSafeEqual } from 'node:crypto'
import { availableParallelism } from 'node:os'
import * as v from 'valibot'
import { Refusal } from '../../kit/errors.ts'
import { derivedKey } from './hash-threads.ts'

const SALT_BYTES = 16
const KEY_BYTES = 32
/** About what bcrypt costs with its usual cost of 10. */
export const HASH_COST = 16_384
const PARAMETERS = { blockSize: 8, parallelization: 1 } as const
const MEMORY_MAX = 64 << 20
/** One processor is left to the event loop, where there is another. */
const RUNNING_MAX = Math.max(1, Math.min(2, availableParallelism() - 1))
/** Some seconds of work; a waiting one is a few hundred bytes. */
const WAITING_MAX = 256
const WAITING_OF_ONE_MAX = 16

export const passwordHashSchema = v.object({
  algorithm: v.literal('scrypt'),
  cost: v.number(),
  blockSize: v.number(),
  parallelization: v.number(),
  salt: v.string(),
  key: v.string(),
})

export type PasswordHash = v.InferOutput<typeof passwordHashSchema>

interface Waiting {
  readonly start: () => void
  readonly refuse: (error: Error) => void
}

/** Who waits for a thread, by address, each in turn. */
export class HashQueue {
  readonly #runningMax: number
  #running = 0
  #waiting = 0
  readonly #byAddress = new Map<string, Waiting[]>()

  constructor(runningMax = RUNNING_MAX) {
    this.#runningMax = runningMax
  }

  /** Rejects with a Refusal (503) where too many wait. */
  async run<T>(address: string, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    if (this.#running >= this.#runningMax) await this.#turn(address)
    else this.#running++
    try {
      if (signal.aborted) throw overloaded()
      return await work()
    } finally {
      this.#next()
    }
  }

  #turn(address: string): Promise<void> {
    const own = this.#byAddress.get(address) ?? []
    if (own.length >= WAITING_OF_ONE_MAX) throw overloaded()
    if (this.#waiting >= WAITING_MAX && !this.#displace(own.length + 1)) throw overloaded()
    return new Promise((start, refuse) => {
      own.push({ start, refuse })
      this.#byAddress.set(address, own)
      this.#waiting++
    })
  }

  /** Makes room for an address that has less waiting: at the cost of the one that has most. */
  #displace(less: number): boolean {
    const [most] = [...this.#byAddress.values()].sort((a, b) => b.length - a.length)
    if (!most || most.length <= less) return false
    this.#waiting--
    most.pop()?.refuse(overloaded())
    return true
  }

  #next(): void {
    const [first] = this.#byAddress
    if (!first) return void this.#running--
    const [address, own] = first
    const next = own.shift()
    this.#waiting--
    // Behind all the others.
    this.#byAddress.delete(address)
    if (own.length > 0) this.#byAddress.set(address, own)
    next?.start()
  }
}

function overloaded(): Refusal {
  return new Refusal('unavailable', 'too many logins at the moment', { 'Retry-After': '2' }, 503)
}

/** `cost` is scrypt's N, a power of two. */
export async function hashed(password: string, cost = HASH_COST): Promise<PasswordHash> {
  const salt = randomBytes(SALT_BYTES)
  const parameters = { ...PARAMETERS, cost }
  const key = await derived(password, salt, parameters)
  return { algorithm: 'scrypt', ...parameters, salt: salt.toString('base64'), key: key.toString('base64') }
}

export async function isPassword(password: string, kept: PasswordHash): Promise<boolean> {
  const key = await derived(password, Buffer.from(kept.salt, 'base64'), kept)
  const wanted = Buffer.from(kept.key, 'base64')
  return key.length === wanted.length && timingSafeEqual(key, wanted)
}

/** Stands in for the hash of a user that is not there: it costs the same, and no password has it. */
export function absentUsersHash(cost = HASH_COST): PasswordHash {
  return {
    algorithm: 'scrypt',
    ...PARAMETERS,
    cost,
    salt: randomBytes(SALT_BYTES).toString('base64'),
    key: randomBytes(KEY_BYTES).toString('base64'),
  }
}

function derived(
  password: string,
  salt: Buffer,
  parameters: Pick<PasswordHash, 'cost' | 'blockSize' | 'parallelization'>,
): Promise<Buffer> {
  const { blockSize, cost, parallelization } = parameters
  return derivedKey({ password, salt, keyBytes: KEY_BYTES, cost, blockSize, parallelization, memoryMax: MEMORY_MAX })
}
