/**
 * QR codes. A server draws PNGs in a worker thread (`platform/worker-pool.ts`), because drawing would block the event loop: 30 ms
 * to load the library, 3 ms for a usual URL, 40 ms for the longest (docs/decisions/048).
 */
import { Fault, Refusal } from '../../platform/errors.ts'
import { WorkerPool, WorkerTaskError } from '../../platform/worker-pool.ts'
import type { QrRequest, QrResponse } from './qr-thread.ts'

const pool = new WorkerPool<QrRequest, QrResponse>({
  name: 'QR codes',
  threadName: 'outpost-qr',
  url: new URL('./qr-thread.ts', import.meta.url),
  workersMax: 1,
  // About a second of work. A queued request takes a few hundred bytes.
  queueMax: 256,
  taskTimeoutMs: 30_000,
  idleTimeoutMs: 10_000,
  heapMaxMib: 64,
})

/** A PNG of `sizePixels` × `sizePixels`. Rejects with a Refusal: 400 if the text is too long, 503 if too many codes are queued. */
export async function qrPng(text: string, sizePixels: number): Promise<Buffer> {
  const response = await pool.run({ prepare: () => ({ request: { text, sizePixels } }) }).catch(refuse)
  if ('sizeError' in response) throw new Refusal('invalid_request', response.sizeError)
  return Buffer.from(response.png)
}

function refuse(error: unknown): never {
  if (!(error instanceof WorkerTaskError)) throw error
  if (error.reason !== 'queue-full') throw new Fault(error.message)
  throw new Refusal('unavailable', 'too many QR codes are queued, try again later', { 'Retry-After': '2' }, 503)
}

/** For terminals: 57 columns and 29 lines for a usual URL. Draws on the calling thread, so only for commands. */
export async function qrText(text: string): Promise<string> {
  const { drawnText } = await import('./qr-code.ts')
  return drawnText(text)
}
