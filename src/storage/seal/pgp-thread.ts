/** The worker thread of `pgp-worker.ts`. It loads the library with its first task. */
import { serveTasks } from '../../platform/worker-task.ts'

/** Checks a key or, with `plain`, encrypts to a key that was checked. Binary. */
export interface PgpRequest {
  readonly key: Uint8Array
  readonly plain?: Uint8Array
}

export interface PgpResult {
  readonly fingerprint: string
  readonly message?: Uint8Array
}

export type PgpResponse =
  | PgpResult
  /** The key cannot be used; the text is for its sender. */
  | { readonly unfit: string }

serveTasks(async ({ key: bytes, plain }: PgpRequest): Promise<PgpResponse> => {
  const { encryptedTo, judgedKey, UnfitKey } = await import('./pgp-key.ts')
  try {
    const key = await judgedKey(bytes)
    const fingerprint = key.getFingerprint()
    return plain ? { fingerprint, message: await encryptedTo(key, plain) } : { fingerprint }
  } catch (error) {
    if (error instanceof UnfitKey) return { unfit: error.message }
    throw error
  } finally {
    plain?.fill(0)
  }
})
