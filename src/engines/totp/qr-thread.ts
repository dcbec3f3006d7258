/** The worker thread of `qr.ts`. */
import { serveTasks } from '../../platform/worker-task.ts'
import { drawnPng, QrSizeError } from './qr-code.ts'

export interface QrRequest {
  readonly text: string
  readonly sizePixels: number
}

export type QrResponse =
  | { readonly png: Uint8Array }
  /** The text is too long for the size. The message is for the caller. */
  | { readonly sizeError: string }

serveTasks(({ sizePixels, text }: QrRequest): QrResponse => {
  try {
    return { png: drawnPng(text, sizePixels) }
  } catch (error) {
    if (error instanceof QrSizeError) return { sizeError: error.message }
    throw error
  }
})
