/** Downloads a file. The token is a header, so the response is saved by the page. */
import { formatBytes } from '../../components/format.tsx'
import { openFile } from './file-api.ts'
import { savedName } from '../../app/invisible-characters.ts'

/** Larger files are written to the disk as they arrive, if the browser can. */
const STREAMED_BYTES = 64 * 1024 * 1024
const RELEASE_MS = 60_000

export interface Download {
  readonly allocation: string
  readonly path: string
  readonly name: string
  readonly size: number
}

interface WritableFile {
  createWritable(): Promise<WritableStream<Uint8Array>>
}

type SavePicker = (options: { readonly suggestedName: string }) => Promise<WritableFile>

function savePicker(): SavePicker | undefined {
  const found: unknown = Reflect.get(window, 'showSaveFilePicker')
  // A method of the window that TypeScript does not know yet.
  return typeof found === 'function' ? (options) => Promise.resolve(Reflect.apply(found, window, [options])) : undefined
}

/** Resolves with what was saved, or with undefined if the user cancelled. */
export async function download({ allocation, name, path, size }: Download): Promise<string | undefined> {
  const picker = size > STREAMED_BYTES ? savePicker() : undefined
  if (picker) {
    const file = await picker({ suggestedName: savedName(name) }).catch((error: unknown) => {
      if (error instanceof DOMException && error.name === 'AbortError') return undefined
      throw error
    })
    if (!file) return undefined
    const response = await openFile(allocation, path)
    await response.body?.pipeTo(await file.createWritable())
    return `Saved ${name}.`
  }
  const response = await openFile(allocation, path)
  const bytes = await response.blob()
  // Not the type of the content: a browser must not open it as a document of this page.
  const url = URL.createObjectURL(new Blob([bytes], { type: 'application/octet-stream' }))
  const link = document.createElement('a')
  link.href = url
  link.download = savedName(name)
  link.click()
  setTimeout(() => URL.revokeObjectURL(url), RELEASE_MS)
  return `Downloaded ${name}, ${formatBytes(bytes.size)}.`
}
