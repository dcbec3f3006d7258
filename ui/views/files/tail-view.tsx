/** The end of a file, and what is appended to it. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { ApiError } from '../../api/client.ts'
import { useKeys } from '../../app/keys.ts'
import { Button } from '../../components/button.tsx'
import { followFile } from './file-api.ts'
import type { FilePlace } from './file-place.ts'
import { visibleLines } from '../../app/invisible-characters.ts'
import { tail, type TailState } from './tail.ts'
import { TextBlocks } from './text-blocks.ts'

const FIRST_BYTES = 64 * 1024
const KEPT_CHARS = 2 * 1024 * 1024
/** Nearer to the end than this, new text keeps the end in view. */
const END_PX = 40

const STATE_TEXTS = { connecting: 'Connecting…', following: 'Following the file.' } as const

function stateText(state: TailState): string {
  if (state.kind === 'waiting') return `${state.error} Retrying in ${Math.round(state.retryMs / 1000)} s.`
  return state.kind === 'ended' ? state.reason : STATE_TEXTS[state.kind]
}

/** A request that would be refused again. */
function isFinal(error: unknown): boolean {
  return error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429
}

export function TailView({ place: { allocation, path } }: { readonly place: FilePlace }) {
  const [run, setRun] = useState(0)
  const text = useMemo(() => new TextBlocks(KEPT_CHARS), [run])
  const [state, setState] = useState<TailState>({ kind: 'connecting' })
  const [, setRevision] = useState(0)
  const [isAtEnd, setAtEnd] = useState(true)
  const element = useRef<HTMLDivElement>(null)

  useEffect(() => {
    const abort = new AbortController()
    let frame = 0
    // Text that arrives in one frame of the screen is shown at once.
    const onText = (added: string) => {
      text.append(visibleLines(added))
      frame ||= requestAnimationFrame(() => {
        frame = 0
        setRevision((count) => count + 1)
      })
    }
    void tail({
      open: (cursor, signal) => followFile(allocation, path, { cursor, tailBytes: FIRST_BYTES, signal }),
      onText,
      onState: (next) => setState((before) => (before.kind === next.kind && next.kind !== 'waiting' ? before : next)),
      isFinal,
      signal: abort.signal,
    })
    return () => {
      abort.abort()
      cancelAnimationFrame(frame)
    }
  }, [allocation, path, text])

  const { blocks } = text
  useLayoutEffect(() => {
    if (isAtEnd && element.current) element.current.scrollTop = element.current.scrollHeight
  }, [blocks, isAtEnd])
  const onScroll = () => {
    const { clientHeight = 0, scrollHeight = 0, scrollTop = 0 } = element.current ?? {}
    setAtEnd(scrollHeight - clientHeight - scrollTop < END_PX)
  }
  useKeys('Tail', [{ keys: 'e', label: 'Go to the end and follow', run: () => setAtEnd(true) }])
  return (
    <>
      <p class="file-more" role="status">
        <span class={state.kind === 'following' ? 'good' : undefined}>{stateText(state)}</span>
        {state.kind === 'ended' && <Button onClick={() => setRun(run + 1)}>Follow again</Button>}
        {!isAtEnd && <Button onClick={() => setAtEnd(true)}>Go to the end</Button>}
      </p>
      <div
        class="file-content"
        ref={element}
        onScroll={onScroll}
        tabIndex={0}
        role="log"
        aria-live="off"
        aria-label="End of the file"
      >
        {text.isCut && <p class="muted">Older text was dropped.</p>}
        {blocks.map((block) => (
          <pre key={block.id} class="text-block">
            {block.text}
          </pre>
        ))}
      </div>
    </>
  )
}
