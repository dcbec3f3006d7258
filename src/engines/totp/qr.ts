/**
 * QR codes. A server draws a PNG in a worker thread (`platform/worker-pool.ts`): the library takes 30 ms to load, a code 3 ms and
 * more, a long one some tens.
 */
import { Fault, Refusal } from '../../platform/errors.ts'
import { WorkerPool, WorkerTaskError } from '../../platform/worker-pool.ts'
import type { QrRequest, QrResponse } from './qr-thread.ts'

const pool = new WorkerPool<QrRequest, QrResponse>({
  name: 'QR codes',
  url: new URL('./qr-thread.ts', import.meta.url),
  workersMax: 1,
  // About a second of work; a queued request takes a few hundred bytes.
  queueMax: 256,
  taskTimeoutMs: 30_000,
  idleTimeoutMs: 10_000,
  heapMaxMib: 64,
})

/**
 * A PNG of exactly `sizePixels` × `sizePixels`. Rejects with a Refusal (400) where the text does not fit, and (503) where too
 * many codes are queued.
 */
export async function qrPng(text: string, sizePixels: number): Promise<Buffer> {
  const response = await pool.run({ prepare: () => ({ request: { text, sizePixels } }) }).catch(refuse)
  if ('unfit' in response) throw new Refusal('invalid_request', response.unfit)
  return Buffer.from(response.png)
}

function refuse(error: unknown): never {
  if (!(error instanceof WorkerTaskError)) throw error
  if (error.reason !== 'queue-full') throw new Fault(error.message)
  throw new Refusal('unavailable', 'too many QR codes are being drawn: try again later', { 'Retry-After': '2' }, 503)
}

/** For terminals: 57 columns and 29 lines for a common URL. Drawn on the calling thread, so for commands, not for servers. */
export async function qrText(text: string): Promise<string> {
  const { drawnText } = await import('./qr-code.ts')
  return drawnText(text)
}
