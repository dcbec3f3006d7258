/** The bytes of a file of any size: offset, hex digits, characters. Only the visible rows are in the document. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { Button } from '../../components/button.tsx'
import { Field } from '../../components/field.tsx'
import { Empty, ErrorText } from '../../components/states.tsx'
import { readBytes } from './file-api.ts'
import type { FilePlace } from './file-place.ts'
import { contentHeight, HexPages, hexRow, parseOffset, ROW_BYTES, rowWindow, scrollOf } from './hex.ts'

const ROW_PX = 20
const FIRST_VIEW_PX = 600
const EXTRA_ROWS = 4

interface HexViewProps {
  readonly place: FilePlace
  readonly size: number
}

export function HexView({ place: { allocation, path }, size }: HexViewProps) {
  const [error, setError] = useState<Error>()
  const [, setRevision] = useState(0)
  const [scroll, setScroll] = useState({ topPx: 0, viewPx: FIRST_VIEW_PX })
  const scroller = useRef<HTMLDivElement>(null)
  const abort = useRef(new AbortController())
  useEffect(() => () => abort.current.abort(), [])
  const pages = useMemo(
    () =>
      new HexPages({
        read: (offset, limit) => readBytes(allocation, path, { offset, limit, signal: abort.current.signal }),
        onChange(failure) {
          if (abort.current.signal.aborted) return
          setError(failure)
          setRevision((count) => count + 1)
        },
      }),
    [allocation, path],
  )
  const rows = Math.ceil(size / ROW_BYTES)
  const measure = () => {
    const element = scroller.current
    if (element) setScroll({ topPx: element.scrollTop, viewPx: element.clientHeight })
  }
  useLayoutEffect(() => {
    const observer = new ResizeObserver(measure)
    if (scroller.current) observer.observe(scroller.current)
    return () => observer.disconnect()
  }, [])
  if (size === 0) return <Empty title="The file is empty" />

  const { first, topPx } = rowWindow(scroll, rows, ROW_PX)
  const count = Math.min(Math.ceil(scroll.viewPx / ROW_PX) + EXTRA_ROWS, rows - first)
  const visible = error ? [] : Array.from({ length: Math.max(0, count) }, (_, at) => first + at)
  const goTo = (offset: number) => {
    const element = scroller.current
    if (!element) return
    const row = Math.min(Math.floor(offset / ROW_BYTES), rows - 1)
    element.scrollTop = scrollOf(row, element.clientHeight, rows, ROW_PX)
    element.focus()
  }
  const retry = () => setError(undefined)
  return (
    <>
      <GoTo size={size} goTo={goTo} />
      {error && (
        <>
          <ErrorText error={error} />
          <div>
            <Button onClick={retry}>Retry</Button>
          </div>
        </>
      )}
      <div
        class="file-content hex"
        ref={scroller}
        onScroll={measure}
        tabIndex={0}
        role="region"
        aria-label="Bytes of the file"
      >
        <div style={{ height: `${contentHeight(rows, ROW_PX)}px` }}>
          <div style={{ transform: `translateY(${topPx}px)` }}>
            {visible.map((index) => (
              <Row key={index} index={index} bytes={pages.row(index)} />
            ))}
          </div>
        </div>
      </div>
    </>
  )
}

function Row({ bytes, index }: { readonly index: number; readonly bytes: Uint8Array | undefined }) {
  const { ascii, hex, offset } = hexRow(bytes ?? new Uint8Array(), index * ROW_BYTES)
  return (
    <div class="hex-row">
      <span class="hex-offset">{offset}</span>
      <span class="hex-bytes">{bytes ? hex : '…'}</span>
      <span class="hex-text">{ascii}</span>
    </div>
  )
}

interface GoToProps {
  readonly size: number
  readonly goTo: (offset: number) => void
}

function GoTo({ goTo, size }: GoToProps) {
  const [text, setText] = useState('')
  const offset = parseOffset(text)
  const isWrong = text !== '' && (offset === undefined || offset >= size)
  const submit = (event: Event) => {
    event.preventDefault()
    if (offset !== undefined && offset < size) goTo(offset)
  }
  return (
    <form class="filters" onSubmit={submit}>
      <Field
        label="Offset"
        isLabelHidden
        isSearch
        value={text}
        onInput={setText}
        placeholder="Offset: 4096 or 0x1000"
        hint={isWrong ? `Enter a number below ${size}.` : undefined}
      />
      <Button type="submit">Go to</Button>
    </form>
  )
}
