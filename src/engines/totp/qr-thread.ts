/** The worker thread of `qr.ts`. */
import { serveTasks } from '../../platform/worker-task.ts'
import { drawnPng, UnfitCode } from './qr-code.ts'

export interface QrRequest {
  readonly text: string
  readonly sizePixels: number
}

export type QrResponse =
  | { readonly png: Uint8Array }
  /** The text does not fit into the size; the text is for the caller. */
  | { readonly unfit: string }

serveTasks(({ sizePixels, text }: QrRequest): QrResponse => {
  try {
    return { png: drawnPng(text, sizePixels) }
  } catch (error) {
    if (error instanceof UnfitCode) return { unfit: error.message }
    throw error
  }
})
