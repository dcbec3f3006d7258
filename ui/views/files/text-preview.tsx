/** The content of a file as text, read in parts. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { Button } from '../../components/button.tsx'
import { formatBytes } from '../../components/format.tsx'
import { Empty, ErrorText } from '../../components/states.tsx'
import { readBytes } from './file-api.ts'
import type { FilePlace } from './file-place.ts'
import { visibleLines } from '../../app/invisible-characters.ts'
import { TextBlocks } from './text-blocks.ts'

const PART_BYTES = 256 * 1024
/** More is slow to show and to search: the hex view and the download have no limit. */
const SHOWN_BYTES_MAX = 8 * 1024 * 1024

interface TextPreviewProps {
  readonly place: FilePlace
  readonly size: number
}

export function TextPreview({ place: { allocation, path }, size }: TextPreviewProps) {
  const text = useMemo(() => ({ blocks: new TextBlocks(Infinity), decoder: new TextDecoder() }), [])
  const [read, setRead] = useState(0)
  const [isBusy, setBusy] = useState(false)
  const [error, setError] = useState<Error>()
  const abort = useRef(new AbortController())

  const loadMore = async () => {
    setBusy(true)
    setError(undefined)
    const { signal } = abort.current
    try {
      const bytes = await readBytes(allocation, path, { offset: read, limit: PART_BYTES, signal })
      const isLast = bytes.length < PART_BYTES || read + bytes.length >= size
      text.blocks.append(visibleLines(text.decoder.decode(bytes, { stream: !isLast })))
      setRead(bytes.length === 0 ? size : read + bytes.length)
    } catch (failure) {
      if (signal.aborted) return
      setError(failure instanceof Error ? failure : new Error(String(failure)))
    }
    setBusy(false)
  }
  useEffect(() => {
    if (size > 0) void loadMore()
    return () => abort.current.abort()
  }, [])

  if (size === 0) {
    return (
      <Empty title="The file is empty">
        <p>"Tail" shows what is written to it.</p>
      </Empty>
    )
  }
  const hasMore = read < size
  return (
    <>
      <div class="file-content" tabIndex={0} role="region" aria-label="Content of the file">
        {text.blocks.blocks.map((block) => (
          <pre key={block.id} class="text-block">
            {block.text}
          </pre>
        ))}
      </div>
      {error && <ErrorText error={error} />}
      <p class="file-more">
        <span class="muted">
          {hasMore ? `The first ${formatBytes(read)} of ${formatBytes(size)}.` : 'The end of the file.'}
        </span>
        {hasMore && read < SHOWN_BYTES_MAX && (
          <Button onClick={() => void loadMore()} isBusy={isBusy}>
            {isBusy ? 'Loading…' : 'Load more'}
          </Button>
        )}
        {hasMore && read >= SHOWN_BYTES_MAX && <span>"Hex" and "Download" have the rest, "Tail" the end.</span>}
      </p>
    </>
  )
}
