/**
 * The state of one tail on the page: its session, the visible part, the selected line and the search. Components read it and are drawn again
 * when `tick` changes, at most once in each animation frame.
 */
import { signal } from '@preact/signals'
import { expressionPattern } from '../model/expression.ts'
import { columnsOf, ERROR_EXPRESSION } from '../model/line-text.ts'
import { LineSearch } from '../model/line-search.ts'
import { fixedPattern, literalPattern, type TextPattern } from '../model/text-pattern.ts'
import type { LogEntry } from '../model/log-buffer.ts'
import { LogSession } from '../model/log-session.ts'
import type { LogSelection, LogTarget } from '../stream/log-target.ts'
import { delay, nextFrame } from '../stream/transport.ts'
import { isAddressOf, type LineAddress } from './line-link.ts'
import type { TailOptions } from './tail-options.ts'

export const ROW_PX = 20
const SCAN_MS = 5
/** A match is looked for at most this long; the search then continues while the page is drawn. */
const FIND_MS = 500
/** Redraws while many lines arrive: faster than one can read, and the page stays responsive. */
const BUSY_REDRAW_MS = 60
const BUSY_LINES = 40
/** Before the first measurement. */
const FIRST_COLUMNS = 120

export class TailController {
  readonly tick = signal(0)
  readonly session: LogSession
  readonly target: LogTarget
  readonly selection: LogSelection
  isFollowing: boolean
  isWrapped = false
  columns = FIRST_COLUMNS
  viewportPx = 600
  /** Of the visible part, unless the tail follows. */
  scrollPx = 0
  selectedId = -1
  search: LineSearch | undefined
  searchError: string | undefined
  /** The expression of the search while it is loaded. */
  #wantedSearch: string | undefined
  /** What `search` looks for. */
  #searched = { text: '', isExpression: false }
  /** True until all kept lines were searched, and the last match is selected. */
  #isLastWanted = false
  /** The line of a link, until it was found. */
  wantedLine: LineAddress | undefined
  /** `addedLines` when the tail stopped to follow. */
  #linesAtPause: number | undefined
  #removedHeight = 0
  #isDrawRequested = false
  #drawnAtMs = 0
  #drawnEnd = 0
  #foundFrom = 0
  /** Opened last. */
  #openedId: number | undefined
  #isClosed = false
  readonly #redrawMs: number

  constructor({ isFollowing, line, linesMax, open, redrawMs = 0, selection, target }: TailOptions) {
    this.#redrawMs = redrawMs
    this.target = target
    this.selection = selection
    this.isFollowing = isFollowing
    this.wantedLine = line
    this.session = new LogSession({
      target,
      selection,
      ...(linesMax !== undefined && { linesMax }),
      heightOf: (entry) => this.#heightOf(entry),
      open,
      delay,
      nextFrame,
      onChange: () => this.requestDraw(),
      onEntryChange: (entry) => this.search?.noteChange(entry),
    })
    this.#look()
  }

  start(): void {
    this.session.start()
  }

  close(): void {
    this.#isClosed = true
    this.session.close()
  }

  get newLines(): number {
    const { buffer, linesBefore } = this.session
    // A tail that never followed has new lines once it is live.
    return this.isFollowing ? 0 : buffer.addedLines - (this.#linesAtPause ?? linesBefore ?? buffer.addedLines)
  }

  requestDraw(isUrgent = false): void {
    if (this.#isClosed) return
    if (this.#isDrawRequested && !isUrgent) return
    this.#isDrawRequested = true
    const isBusy = this.session.buffer.end - this.#drawnEnd > BUSY_LINES
    const intervalMs = Math.max(this.#redrawMs, isBusy ? BUSY_REDRAW_MS : 0)
    const waitMs = isUrgent ? 0 : this.#drawnAtMs + intervalMs - performance.now()
    if (waitMs > 0) setTimeout(() => requestAnimationFrame(() => this.#draw()), waitMs)
    else requestAnimationFrame(() => this.#draw())
  }

  #draw(): void {
    if (!this.#isDrawRequested || this.#isClosed) return
    this.#isDrawRequested = false
    const { buffer } = this.session
    const removedPx = (buffer.removedHeight - this.#removedHeight) * ROW_PX
    this.#removedHeight = buffer.removedHeight
    if (!this.isFollowing) this.scrollPx = Math.max(0, this.scrollPx - removedPx)
    if (this.search && !this.search.scan(performance.now() + SCAN_MS)) this.requestDraw()
    this.#selectLast()
    if (this.wantedLine) this.#findWanted(this.wantedLine)
    this.#drawnAtMs = performance.now()
    this.#drawnEnd = buffer.end
    this.#look()
    this.tick.value++
  }

  /** Top of the visible part, in pixels. */
  get topPx(): number {
    const endPx = Math.max(0, this.session.buffer.heights.total * ROW_PX - this.viewportPx)
    return this.isFollowing ? endPx : Math.min(this.scrollPx, endPx)
  }

  get lastVisibleId(): number {
    return this.session.buffer.heights.idAt(Math.floor((this.topPx + this.viewportPx) / ROW_PX))
  }

  follow(isFollowing = true): void {
    if (isFollowing === this.isFollowing) return
    this.scrollPx = this.topPx
    this.#linesAtPause = this.session.buffer.addedLines
    this.isFollowing = isFollowing
    if (isFollowing) this.selectedId = -1
    this.#look()
    this.requestDraw(true)
  }

  /** The user scrolled to a position. */
  scrollTo(px: number): void {
    const endPx = this.session.buffer.heights.total * ROW_PX - this.viewportPx
    const isDown = px > this.scrollPx
    this.#isLastWanted = false
    if (this.isFollowing) {
      if (px < endPx - 2) this.follow(false)
    } else if (isDown && px >= endPx - 2 && !this.session.isFull) this.follow()
    this.scrollPx = px
    this.#openedId = undefined
    this.#look()
    this.requestDraw(true)
  }

  page(direction: 1 | -1): void {
    const step = Math.max(ROW_PX, this.viewportPx - 2 * ROW_PX)
    const px = Math.max(0, this.topPx + direction * step)
    if (direction < 0) this.follow(false)
    this.scrollTo(px)
  }

  toStart(): void {
    this.follow(false)
    this.scrollPx = 0
    this.select(this.session.buffer.first)
  }

  select(id: number): void {
    const { buffer } = this.session
    const entry = buffer.get(Math.min(Math.max(id, buffer.first), buffer.end - 1))
    if (!entry) return
    this.#isLastWanted = false
    this.follow(false)
    this.selectedId = entry.id
    this.#reveal(entry.id, false)
  }

  moveSelection(by: 1 | -1): void {
    const from = this.selectedId >= this.session.buffer.first ? this.selectedId : this.lastVisibleId + (by > 0 ? -1 : 1)
    this.select(from + by)
  }

  toggle(id = this.selectedId): void {
    const { buffer } = this.session
    const entry = buffer.get(id)
    if (!entry?.source) return
    if (!entry.isOpen) this.follow(false)
    entry.isOpen = !entry.isOpen
    entry.version++
    buffer.measure(entry)
    this.#openedId = entry.isOpen ? id : undefined
    if (entry.isOpen) this.#reveal(id, false)
    this.requestDraw(true)
  }

  /** Closes the selected line if it is open, and selects none otherwise. Returns false if none was selected. */
  escape(): boolean {
    const selected = this.session.buffer.get(this.selectedId)
    if (selected?.isOpen) this.toggle()
    else this.selectedId = -1
    this.requestDraw(true)
    return selected !== undefined
  }

  /** Opens the entries with traces, or closes all. */
  openTraces(isOpen: boolean): void {
    const { buffer } = this.session
    for (let id = buffer.first; id < buffer.end; id++) {
      const entry = buffer.get(id)
      if (!entry || entry.isOpen === isOpen || (isOpen && entry.more.length === 0)) continue
      entry.isOpen = isOpen
      entry.version++
      buffer.measure(entry)
    }
    this.requestDraw(true)
  }

  setLayout(changes: { readonly isWrapped?: boolean; readonly columns?: number }): void {
    const { columns = this.columns, isWrapped = this.isWrapped } = changes
    if (columns === this.columns && isWrapped === this.isWrapped) return
    const { heights } = this.session.buffer
    const topId = heights.idAt(Math.floor(this.topPx / ROW_PX))
    const isMeasured = isWrapped || this.isWrapped
    this.columns = columns
    this.isWrapped = isWrapped
    if (isMeasured) this.session.buffer.measureAll()
    this.#removedHeight = this.session.buffer.removedHeight
    this.scrollPx = heights.topOf(topId) * ROW_PX
    this.requestDraw(true)
  }

  /** The row of an entry was drawn with this height. Keeps the visible part where it is. */
  noteHeight(id: number, px: number): void {
    const { heights } = this.session.buffer
    const height = Math.max(1, Math.ceil((px - 1) / ROW_PX))
    const before = heights.heightOf(id)
    if (height === before) return
    const isAbove = (heights.topOf(id) + before) * ROW_PX <= this.topPx
    heights.set(id, height)
    if (isAbove && !this.isFollowing) this.scrollPx += (height - before) * ROW_PX
    // What was opened is visible as a whole.
    if (id === this.#openedId) this.#reveal(id, false)
    this.requestDraw(true)
  }

  setSearch(text: string, isExpression: boolean): void {
    if (text === this.#searched.text && isExpression === this.#searched.isExpression) return
    this.#searched = { text, isExpression }
    this.#isLastWanted = false
    this.searchError = undefined
    this.search = undefined
    this.#wantedSearch = isExpression ? text : undefined
    if (isExpression && text !== '' && text !== ERROR_EXPRESSION) void this.#searchExpression(text)
    else if (text !== '') this.#searchPattern(isExpression ? fixedPattern(text, true) : literalPattern(text))
    this.requestDraw(true)
  }

  async #searchExpression(text: string): Promise<void> {
    try {
      const pattern = await expressionPattern(text)
      if (this.#wantedSearch === text) this.#searchPattern(pattern)
    } catch (error) {
      if (this.#wantedSearch === text) this.searchError = error instanceof Error ? error.message : String(error)
    }
    this.requestDraw(true)
  }

  #searchPattern(pattern: TextPattern): void {
    this.search = new LineSearch(this.session.buffer, pattern)
  }

  /** Searches, and selects the last match. Without a match the tail stays where it is. */
  findLast(text: string, isExpression: boolean): void {
    this.setSearch(text, isExpression)
    this.#isLastWanted = true
    this.search?.scan(performance.now() + FIND_MS)
    this.#selectLast()
    this.requestDraw(true)
  }

  #selectLast(): void {
    const { search } = this
    if (!this.#isLastWanted || !search?.isComplete) return
    this.#isLastWanted = false
    const id = search.previous(this.session.buffer.end)
    if (id !== undefined) this.#selectMatch(id)
  }

  #selectMatch(id: number): void {
    this.follow(false)
    this.selectedId = id
    this.#reveal(id, true)
  }

  /** Selects the next or previous match: of the selected line, or of the visible part. */
  find(direction: 1 | -1): void {
    const { search } = this
    if (!search) return
    search.scan(performance.now() + FIND_MS)
    const isSelected = this.selectedId >= this.session.buffer.first
    const from = isSelected ? this.selectedId : this.lastVisibleId + (direction < 0 ? 1 : -1)
    const id = direction > 0 ? search.next(from) : search.previous(from)
    if (id === undefined) return
    this.#isLastWanted = false
    this.#selectMatch(id)
  }

  #reveal(id: number, isCentred: boolean): void {
    const { heights } = this.session.buffer
    const top = heights.topOf(id) * ROW_PX
    const bottom = top + heights.heightOf(id) * ROW_PX
    const isVisible = top >= this.topPx && bottom <= this.topPx + this.viewportPx
    if (!isVisible) {
      const isBelow = top > this.topPx
      // Of an entry that is higher than the visible part, the beginning is shown.
      const nearest = isBelow ? Math.min(top, Math.max(0, bottom - this.viewportPx)) : top
      this.scrollPx = isCentred ? Math.max(0, top - Math.floor(this.viewportPx / 2)) : nearest
    }
    this.#look()
    this.requestDraw(true)
  }

  #look(): void {
    // The stream is read up to the line of a link, however far it is.
    this.session.look(!this.isFollowing && this.wantedLine === undefined, this.lastVisibleId)
  }

  #findWanted(line: LineAddress): void {
    const { buffer } = this.session
    for (let id = Math.max(this.#foundFrom, buffer.first); id < buffer.end; id++) {
      const entry = buffer.get(id)
      if (!entry || !isAddressOf(line, entry)) continue
      this.wantedLine = undefined
      this.selectedId = id
      this.#reveal(id, true)
      return
    }
    this.#foundFrom = buffer.end
  }

  #heightOf(entry: LogEntry): number {
    const base = this.isWrapped ? Math.max(1, Math.ceil(columnsOf(entry.text) / this.columns)) : 1
    return entry.isOpen ? base + 2 + Math.max(1, entry.more.length) : base
  }
}
