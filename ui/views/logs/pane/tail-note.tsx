/** What a tail does not show: lines before its start, lines that were removed, and a log that does not exist yet. */
import { visibleText } from '../../../app/invisible-characters.ts'
import { address, setQuery } from '../../../app/location.ts'
import { Button } from '../../../components/button.tsx'
import { filterOfSearch } from '../model/text-pattern.ts'
import { setStart } from './option-bar.tsx'
import type { TailController } from './tail-controller.ts'

interface TailNoteProps {
  readonly tail: TailController
  /** Names of allocations by ID. */
  readonly names: ReadonlyMap<string, string>
}

export function TailNote({ names, tail }: TailNoteProps) {
  void tail.tick.value
  const failed = [...tail.session.failedLogs]
  return (
    <>
      {failed.map(([allocation, error]) => (
        <p key={allocation} class="log-note error" role="status">
          Lines are missing: the log of {visibleText(names.get(allocation) ?? allocation)} cannot be read: {error}
        </p>
      ))}
      <PartNote tail={tail} />
    </>
  )
}

function PartNote({ tail }: { readonly tail: TailController }) {
  // Only a signal that this component reads itself renders it again.
  void tail.tick.value
  const { selection, session, wantedLine } = tail
  const { buffer, state } = session
  if (state.kind === 'waiting') {
    return (
      <p class="log-note" role="status">
        {state.reason}. The view tries again until the log exists.
      </p>
    )
  }
  if (wantedLine) return <p class="log-note">Looking for the linked line…</p>
  if (state.kind === 'open' && buffer.lineCount === 0) {
    const { grep } = selection
    return (
      <p class="log-note" role="status">
        {grep === '' ? 'There are no lines yet. New lines appear here.' : 'No line matches the filter yet.'}
      </p>
    )
  }
  if (session.isFull) return <p class="log-note">Reading waits for you: scroll on, or follow, to read further lines.</p>
  if (buffer.removedLines > 0) {
    return (
      <p class="log-note">
        The page keeps the last {buffer.linesMax.toLocaleString('en')} lines; {buffer.removedLines.toLocaleString('en')}{' '}
        earlier lines were removed from it. A filter finds lines in the whole log.
      </p>
    )
  }
  const { query } = address.value
  const find = selection.grep === '' ? (query.get('find') ?? '') : ''
  if (selection.lines !== undefined && selection.cursor === undefined && buffer.lineCount >= selection.lines) {
    return (
      <p class="log-note">
        The view starts {selection.lines.toLocaleString('en')} lines before the end
        {find !== '' && ', and Find searches these lines only'}.{' '}
        {find !== '' && <Button onClick={() => filterWholeLog(find, query)}>Filter the whole log</Button>}{' '}
        {selection.lines < 10_000 && <Button onClick={() => setStart('lines=10000')}>10,000 lines</Button>}{' '}
        <Button onClick={() => setStart('from=start')}>Start of the log</Button>
      </p>
    )
  }
  return null
}

/** The search stays, so that its matches are marked in the filtered lines. */
function filterWholeLog(find: string, query: URLSearchParams): void {
  setQuery({ grep: filterOfSearch(find, query.get('regex') === '1'), lines: undefined })
}
