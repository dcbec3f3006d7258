/** One entry of a tail: its line, and when it is opened, its facts, its trace and its formatted JSON. All of it is text. */
import { Component, type JSX } from 'preact'
import { Button } from '../../../components/button.tsx'
import { formatExact } from '../../../components/format.tsx'
import { formattedJson, levelOf, piecesOf, shownText, type TextPiece } from '../model/line-text.ts'
import { timeOfLine } from '../model/line-time.ts'
import type { LogEntry } from '../model/log-buffer.ts'
import { numberColors } from '../model/number-colors.ts'
import type { TextPattern } from '../model/text-pattern.ts'

const SOURCE_COLOURS = 6

export interface RowActions {
  readonly copyLine: (entry: LogEntry) => void
  readonly copyLink: (entry: LogEntry) => void
  readonly openContext: (entry: LogEntry) => void
  readonly close: (entry: LogEntry) => void
}

export interface RowProps {
  readonly entry: LogEntry
  readonly version: number
  readonly isSelected: boolean
  readonly pattern: TextPattern | undefined
  readonly hasTime: boolean
  /** The name of the source, if the tail has several. */
  readonly label: string | undefined
  readonly actions: RowActions
}

const SHOWN: readonly (keyof RowProps)[] = ['entry', 'version', 'isSelected', 'pattern', 'hasTime', 'label']

export class LogRow extends Component<RowProps> {
  override shouldComponentUpdate(next: RowProps): boolean {
    return SHOWN.some((name) => this.props[name] !== next[name])
  }

  override render({ actions, entry, hasTime, isSelected, label, pattern }: RowProps): JSX.Element {
    const { isOpen, more, source, text } = entry
    const selected = isSelected ? ' log-selected' : ''
    if (!source) {
      return (
        <div class={`log-row log-remark${selected}`} data-id={entry.id}>
          <span class="log-text">{text}</span>
        </div>
      )
    }
    const level = levelOf(text)
    const { index, log } = source
    const isError = log.type === 'stderr'
    return (
      <div
        class={`log-row${level ? ` log-${level}` : ''}${isError ? ' log-stderr' : ''}${selected}`}
        data-id={entry.id}
      >
        <span class="log-gutter" aria-hidden="true">
          {isOpen ? '▾' : '▸'}
        </span>
        {hasTime && <RowTime entry={entry} />}
        {label !== undefined && <span class={`log-source log-source-${index % SOURCE_COLOURS}`}>{label} </span>}
        <span class="log-text">
          <Pieces pieces={piecesOf(text, pattern, isOpen)} />
          {more.length > 0 && !isOpen && <More more={more} />}
        </span>
        {isOpen && <Details entry={entry} pattern={pattern} actions={actions} />}
      </div>
    )
  }
}

/** The style sheet has the text colours of named backgrounds. */
function styleOf({ background, className, color }: TextPiece) {
  if (background === undefined && (color === undefined || className.includes('ansi-on-'))) return undefined
  const { dark, light } = numberColors(color, background)
  return { '--number-light': light, '--number-dark': dark, background }
}

function Pieces({ pieces }: { readonly pieces: readonly TextPiece[] }) {
  return pieces.map((piece, index) => {
    const { className, isMatch, text } = piece
    const style = styleOf(piece)
    if (isMatch) {
      return (
        <mark key={index} class={className}>
          {text}
        </mark>
      )
    }
    return className === '' && style === undefined ? (
      text
    ) : (
      <span key={index} class={style ? `${className} ansi-number` : className} style={style}>
        {text}
      </span>
    )
  })
}

/** The last line of a Python trace that is not indented names the error. */
function More({ more }: { readonly more: readonly string[] }) {
  const last = more.at(-1) ?? ''
  const summary = /^\w/.test(last) ? ` ${shownText(last).slice(0, 200)}` : ''
  return (
    <span class="log-more">
      {summary}
      <span class="log-more-count">
        {' '}
        +{more.length} {more.length === 1 ? 'line' : 'lines'}
      </span>
    </span>
  )
}

function RowTime({ entry }: { readonly entry: LogEntry }) {
  const atMs = timeOfLine(shownText(entry.text))
  if (atMs !== undefined) return <span class="log-time">{formatExact(atMs).slice(5)} </span>
  // Without a time in the line: when it arrived.
  return (
    <span class="log-time log-time-received">
      {entry.receivedMs > 0 ? formatExact(entry.receivedMs).slice(5) : ''}{' '}
    </span>
  )
}

function Block({ lines }: { readonly lines: readonly (readonly TextPiece[])[] }) {
  return (
    <pre>
      {lines.map((pieces, index) => (
        <span key={index}>
          <Pieces pieces={pieces} />
          {'\n'}
        </span>
      ))}
    </pre>
  )
}

interface DetailsProps {
  readonly entry: LogEntry
  readonly pattern: TextPattern | undefined
  readonly actions: RowActions
}

function Details({ actions, entry, pattern }: DetailsProps) {
  const { endOffset, file, more, receivedMs, source, text } = entry
  const json = formattedJson(text, pattern)
  const atMs = timeOfLine(shownText(text)) ?? receivedMs
  return (
    <div class="log-details">
      <p class="log-facts">
        {source?.log.allocationId !== '' && <span>{source?.log.allocationId} </span>}
        {file} · byte {endOffset}
        {atMs > 0 && ` · ${formatExact(atMs)}`}
      </p>
      {more.length > 0 && <Block lines={more.map((line) => piecesOf(line, pattern, true))} />}
      {json !== undefined && <Block lines={json} />}
      <p class="log-actions">
        <Button onClick={() => actions.copyLine(entry)}>Copy line</Button>
        <Button onClick={() => actions.copyLink(entry)}>Copy link</Button>
        <Button onClick={() => actions.openContext(entry)}>Show in the log</Button>
        <Button onClick={() => actions.close(entry)}>Close</Button>
      </p>
    </div>
  )
}
