/** The worker thread of `pgp-worker.ts`: one order after another. The library is loaded with the first. */
import { parentPort } from 'node:worker_threads'
import { messageOf } from '../kit/errors.ts'

/** To judge a key or, with `plain`, to encrypt to one that was judged. Binary. */
export interface PgpOrder {
  readonly key: Uint8Array
  readonly plain?: Uint8Array
}

export type PgpAnswer =
  | { readonly fingerprint: string; readonly message?: Uint8Array }
  /** The key is no good, for its sender to read. */
  | { readonly unfit: string }
  /** For the log. */
  | { readonly failure: string }

async function answer({ key: bytes, plain }: PgpOrder): Promise<PgpAnswer> {
  const { encryptedTo, judgedKey, UnfitKey } = await import('./pgp-key.ts')
  try {
    const key = await judgedKey(bytes)
    const fingerprint = key.getFingerprint()
    return plain ? { fingerprint, message: await encryptedTo(key, plain) } : { fingerprint }
  } catch (error) {
    return error instanceof UnfitKey ? { unfit: error.message } : { failure: messageOf(error) }
  } finally {
    plain?.fill(0)
  }
}

async function serve(order: PgpOrder): Promise<void> {
  const done = await answer(order)
  parentPort?.postMessage(done, [])
}

parentPort?.on('message', (order: PgpOrder) => void serve(order))
