/** The worker thread of `qr.ts`: draws one code after another. */
import { parentPort } from 'node:worker_threads'
import { messageOf } from '../../kit/errors.ts'
import { drawnPng, UnfitCode } from './qr-code.ts'

export interface QrOrder {
  readonly id: number
  readonly text: string
  readonly sizePixels: number
}

export type QrAnswer = { readonly id: number } & (
  | { readonly png: Uint8Array }
  /** The text or the size is no good, for the caller to read. */
  | { readonly unfit: string }
  /** For the log. */
  | { readonly failure: string }
)

parentPort?.on('message', ({ id, sizePixels, text }: QrOrder) => {
  parentPort?.postMessage(answer(id, text, sizePixels), [])
})

function answer(id: number, text: string, sizePixels: number): QrAnswer {
  try {
    return { id, png: drawnPng(text, sizePixels) }
  } catch (error) {
    return error instanceof UnfitCode ? { id, unfit: error.message } : { id, failure: messageOf(error) }
  }
}
