/**
 * PGP keys to which key shares and tokens are encrypted, so that only the owner of a key can read them. A key that cannot encrypt, or has
 * expired, is refused when it is submitted, not at the end of the operation.
 *
 * The sender of a key is not authenticated, and a key can be crafted to take minutes of computation. So the length of its text is limited
 * here, and a worker thread (`pgp-thread.ts`) parses it with limits on its parts, time and memory, one task at a time. A task that
 * exceeds a limit is refused as a fault of its key.
 */
import { Fault, Refusal } from '../../platform/errors.ts'
import { WorkerPool, WorkerTaskError } from '../../platform/worker-pool.ts'
import type { PgpRequest, PgpResponse, PgpResult } from './pgp-thread.ts'

/** Limit of the text of one key; a usual key has some KiB. */
const KEY_TEXT_MAX = 64 << 10
const KEYS_TEXT_MAX = 1 << 20
/** Requests whose keys are being checked at the same time. */
const READERS_MAX = 16
/** Time limit for all keys of one request. */
const KEYS_TIMEOUT_MS = 60_000
/** Time limit of one task with the start of the thread. A usual key takes some milliseconds, loading the library some hundred. */
const TASK_TIMEOUT_MS = 20_000
const IDLE_TIMEOUT_MS = 10_000
const HEAP_MAX_MIB = 256
/** READERS_MAX limits the requests that check keys; each has one task queued at a time. */
const QUEUE_MAX = 256
const EXPORT_HINT = 'gpg --export --export-options export-minimal makes a short one'
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/

export interface PgpWorkerOptions {
  /** Time limit of one task, the start of the thread included. */
  readonly taskTimeoutMs?: number
  readonly idleTimeoutMs?: number
}

export class PgpWorker {
  readonly #pool: WorkerPool<PgpRequest, PgpResponse>

  constructor({ idleTimeoutMs = IDLE_TIMEOUT_MS, taskTimeoutMs = TASK_TIMEOUT_MS }: PgpWorkerOptions = {}) {
    this.#pool = new WorkerPool({
      name: 'PGP',
      threadName: 'outpost-pgp',
      url: new URL('./pgp-thread.ts', import.meta.url),
      workersMax: 1,
      queueMax: QUEUE_MAX,
      taskTimeoutMs,
      idleTimeoutMs,
      heapMaxMib: HEAP_MAX_MIB,
    })
  }

  /** Takes ownership of `plain`. Rejects with a Refusal when the key cannot be used or costs too much. */
  async run(request: PgpRequest): Promise<PgpResult> {
    const transfer = request.plain ? [request.plain.buffer as ArrayBuffer] : []
    const response = await this.#pool.run({ prepare: () => ({ request, transfer }) }).catch(refuseTask)
    if ('unusable' in response) throw refused(response.unusable)
    return response
  }
}

function refuseTask(error: unknown): never {
  if (!(error instanceof WorkerTaskError)) throw error
  if (error.reason === 'task-timeout') throw refused('the key takes too long to check: send a smaller one')
  if (error.reason === 'out-of-memory') throw refused('the key takes too much memory to check: send a smaller one')
  if (error.reason === 'queue-full') throw tooManyKeys()
  throw new Fault(error.message)
}

function refused(why: string): Refusal {
  return new Refusal('invalid_request', `error parsing PGP key: ${why}`)
}

function tooManyKeys(): Refusal {
  return new Refusal('too_many', 'too many PGP keys are being read, try again later')
}

export interface PgpKey {
  /** Fingerprint of the primary key, in hex. */
  readonly fingerprint: string
  /** Returns a binary OpenPGP message that only the key's owner can decrypt. */
  encrypt(text: string): Promise<Buffer>
}

const shared = new PgpWorker()
let readers = 0

/** Reads a public key, base64 of its binary form. Throws a Refusal for a key that cannot encrypt now. */
export async function readPgpKey(text: string, worker = shared): Promise<PgpKey> {
  const key = decode(text)
  if (readers >= READERS_MAX) throw tooManyKeys()
  readers++
  try {
    const { fingerprint } = await worker.run({ key })
    return {
      fingerprint,
      async encrypt(plain) {
        const { message } = await worker.run({ key, plain: new TextEncoder().encode(plain) })
        return Buffer.from(message ?? [])
      },
    }
  } finally {
    readers--
  }
}

/** Reads keys one after another. The refusal has the number of the invalid key. */
export async function readPgpKeys(texts: readonly string[]): Promise<PgpKey[]> {
  const length = texts.reduce((sum, text) => sum + text.length, 0)
  if (length > KEYS_TEXT_MAX)
    throw refused(`the keys together are longer than ${KEYS_TEXT_MAX} characters; ${EXPORT_HINT}`)
  const endMs = performance.now() + KEYS_TIMEOUT_MS
  const keys: PgpKey[] = []
  for (const [at, text] of texts.entries()) {
    if (performance.now() > endMs) throw refused('the keys together take too long to check: send smaller ones')
    try {
      keys.push(await readPgpKey(text))
    } catch (error) {
      if (!(error instanceof Refusal) || error.code !== 'invalid_request') throw error
      throw new Refusal('invalid_request', `PGP key ${at + 1}: ${error.message}`)
    }
  }
  return keys
}

function decode(text: string): Buffer {
  if (text.length > KEY_TEXT_MAX)
    throw refused(`error decoding given PGP key: longer than ${KEY_TEXT_MAX} characters; ${EXPORT_HINT}`)
  const trimmed = text.replaceAll(/\s/g, '')
  if (trimmed === '' || !BASE64.test(trimmed)) {
    throw refused('error decoding given PGP key: illegal base64 data: send base64 of the binary (not armored) key')
  }
  return Buffer.from(trimmed, 'base64')
}
