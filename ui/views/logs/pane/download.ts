/** Saves a log as a file: streamed to disk if the browser can, otherwise collected first. The token is in a header. */
import { send } from '../../../api/client.ts'
import { FrameReader } from '../../../api/frame-reader.ts'
import { LineSplitter, type RawLine } from '../stream/line-splitter.ts'
import { downloadRequest, type LogSelection, type LogTarget } from '../stream/log-target.ts'

interface FileWindow {
  /** Of Chromium, on secure origins. */
  readonly showSaveFilePicker?: (options: { readonly suggestedName: string }) => Promise<{
    readonly createWritable: () => Promise<WritableStream<Uint8Array>>
  }>
}

function pickerOf(page: FileWindow): FileWindow['showSaveFilePicker'] {
  return page.showSaveFilePicker
}

/** Returns false if the user chose no file. */
export async function download(
  target: LogTarget,
  selection: LogSelection,
  options: { readonly name: string; readonly labelOf: (line: RawLine) => string },
): Promise<boolean> {
  const pick = pickerOf(window as FileWindow)
  const file = await pick?.call(window, { suggestedName: options.name }).catch((error: unknown) => {
    if (error instanceof DOMException && error.name === 'AbortError') return 'cancelled' as const
    throw error
  })
  if (file === 'cancelled') return false
  const { method, url } = downloadRequest(target, selection)
  const { body } = await send(url, { method })
  if (!body) throw new Error('the response has no body')
  const content = target.kind === 'job' ? body.pipeThrough(labelled(options.labelOf)) : body
  if (file) await content.pipeTo(await file.createWritable())
  else saveBlob(await new Response(content).blob(), options.name)
  return true
}

function saveBlob(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob)
  const link = document.createElement('a')
  link.href = url
  link.download = name
  link.click()
  // The browser reads the content after the click.
  setTimeout(() => URL.revokeObjectURL(url), 60_000)
}

/** Lines with the name of their source, from frames. */
function labelled(labelOf: (line: RawLine) => string): TransformStream<Uint8Array, Uint8Array> {
  const reader = new FrameReader()
  const splitter = new LineSplitter()
  const encoder = new TextEncoder()
  const textOf = (lines: readonly RawLine[]) => lines.map((line) => `${labelOf(line)} ${line.text}\n`).join('')
  return new TransformStream({
    transform(chunk, controller) {
      for (const frame of reader.push(chunk)) {
        if (frame.event === 'log failed') {
          controller.enqueue(encoder.encode(`# the log of ${frame.allocationId} cannot be read: ${frame.error}\n`))
        }
        const text = textOf(splitter.push(frame))
        if (text !== '') controller.enqueue(encoder.encode(text))
      }
    },
    flush(controller) {
      controller.enqueue(encoder.encode(textOf(splitter.finish())))
    },
  })
}
