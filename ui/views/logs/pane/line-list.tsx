/** The lines of a tail: only the visible ones are in the document. */
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks'
import type { LogEntry } from '../model/log-buffer.ts'
import { LogRow, type RowActions } from './line-row.tsx'
import { ROW_PX, type TailController } from './tail-controller.ts'

/** Above and below the visible part. */
const MARGIN_PX = 200
/** Elements that are used again for other entries; more than are ever visible. */
const SLOTS = 1024

interface LogListProps {
  readonly tail: TailController
  readonly label: string
  readonly hasTime: boolean
  /** Undefined if the tail has one source. */
  readonly labelOf: ((entry: LogEntry) => string) | undefined
  readonly actions: RowActions
  /** Default: true. */
  readonly hasFocus?: boolean
}

/** Where the keys of the view and those of the browser apply. */
export function focusLines(): void {
  const lines = document.querySelector('.log-list')
  if (lines instanceof HTMLElement) lines.focus({ preventScroll: true })
}

interface VisibleRange {
  readonly first: number
  readonly end: number
}

function visibleRange(tail: TailController): VisibleRange {
  const { buffer } = tail.session
  const { heights } = buffer
  const top = Math.max(0, Math.floor((tail.topPx - MARGIN_PX) / ROW_PX))
  const bottom = Math.ceil((tail.topPx + tail.viewportPx + MARGIN_PX) / ROW_PX)
  const first = heights.idAt(top)
  let position = heights.topOf(first)
  let end = first
  while (end < buffer.end && position < bottom && end - first < SLOTS) position += heights.heightOf(end++)
  return { first, end }
}

export function LogList({ actions, hasFocus = true, hasTime, label, labelOf, tail }: LogListProps) {
  const scroller = useRef<HTMLDivElement>(null)
  const rows = useRef<HTMLDivElement>(null)
  const probe = useRef<HTMLSpanElement>(null)
  /** Position that was set or reported last: events with another one come from the user. */
  const scrolled = useRef(0)
  const slots = useRef({ shift: 0, first: 0, end: 0 })
  void tail.tick.value
  const { buffer } = tail.session
  const { heights } = buffer
  const range = visibleRange(tail)
  const entries: LogEntry[] = []
  for (let id = range.first; id < range.end; id++) {
    const entry = buffer.get(id)
    if (entry) entries.push(entry)
  }
  const slotOf = keyOfSlots(slots.current, range)

  useLayoutEffect(() => {
    const element = scroller.current
    if (!element) return undefined
    const measure = () => {
      const width = probe.current?.getBoundingClientRect().width ?? 0
      const prefix = rows.current?.querySelector<HTMLElement>('.log-text')?.offsetLeft ?? 24
      tail.viewportPx = element.clientHeight
      if (width > 0)
        tail.setLayout({ columns: Math.max(10, Math.floor((element.clientWidth - prefix - 8) / (width / 100))) })
      tail.requestDraw(true)
    }
    measure()
    const observer = new ResizeObserver(measure)
    observer.observe(element)
    return () => observer.disconnect()
  }, [tail, tail.isWrapped, hasTime, labelOf === undefined])

  useLayoutEffect(() => {
    const element = scroller.current
    if (element) {
      if (Math.abs(element.scrollTop - tail.topPx) >= 1) element.scrollTop = tail.topPx
      scrolled.current = element.scrollTop
    }
    for (const row of rows.current?.children ?? []) {
      const id = Number((row as HTMLElement).dataset['id'])
      if (tail.isWrapped || buffer.get(id)?.isOpen) tail.noteHeight(id, (row as HTMLElement).offsetHeight)
    }
  })

  useEffect(() => {
    // The keys of the browser scroll the lines at once. The heading has the focus if a link opened the view.
    if (hasFocus && document.activeElement?.matches('body, main h1')) scroller.current?.focus({ preventScroll: true })
  }, [tail])

  const onScroll = () => {
    const element = scroller.current
    if (!element || Math.abs(element.scrollTop - scrolled.current) < 1) return
    scrolled.current = element.scrollTop
    // The browser scrolls as well when the list becomes higher.
    if (tail.isFollowing && element.scrollTop >= element.scrollHeight - element.clientHeight - 2) return
    tail.scrollTo(element.scrollTop)
  }
  const onClick = (event: MouseEvent) => {
    const { target } = event
    if (!(target instanceof Element) || target.closest('.log-details')) return
    const id = Number(target.closest('[data-id]')?.getAttribute('data-id') ?? '-1')
    if (id < 0 || window.getSelection()?.isCollapsed === false) return
    tail.select(id)
    if (target.closest('.log-gutter, .log-more')) tail.toggle(id)
  }
  return (
    <div
      class={tail.isWrapped ? 'log-list log-wrapped' : 'log-list'}
      ref={scroller}
      role="log"
      aria-live="off"
      aria-label={label}
      tabIndex={0}
      onScroll={onScroll}
      onClick={onClick}
    >
      <span class="log-probe" ref={probe} aria-hidden="true">
        {'0'.repeat(100)}
      </span>
      <div class="log-space" style={{ height: `${heights.total * ROW_PX}px` }}>
        <div class="log-rows" ref={rows} style={{ transform: `translateY(${heights.topOf(range.first) * ROW_PX}px)` }}>
          {entries.map((entry) => (
            <LogRow
              key={slotOf(entry.id)}
              entry={entry}
              version={entry.version}
              isSelected={entry.id === tail.selectedId}
              pattern={tail.search?.pattern}
              hasTime={hasTime}
              label={entry.source && labelOf?.(entry)}
              actions={actions}
            />
          ))}
        </div>
      </div>
    </div>
  )
}

/**
 * Keys of rows. An entry that stays visible keeps its element, so that selected text stays selected. If no entry stays, elements are used again
 * in their order, which is faster than new ones.
 */
function keyOfSlots(slots: { shift: number; first: number; end: number }, { end, first }: VisibleRange) {
  if (first >= slots.end || end <= slots.first) slots.shift += first - slots.first
  slots.first = first
  slots.end = end
  const { shift } = slots
  return (id: number) => (((id - shift) % SLOTS) + SLOTS) % SLOTS
}
