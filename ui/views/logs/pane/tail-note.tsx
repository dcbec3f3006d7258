/** What a tail does not show: lines before its start, lines that were removed, and a log that does not exist yet. */
import { SEALED } from '../../../api/client.ts'
import { visibleText } from '../../../app/invisible-characters.ts'
import { address } from '../../../app/location.ts'
import { Button } from '../../../components/button.tsx'
import { Link } from '../../../components/link.tsx'
import { ERROR_EXPRESSION } from '../model/line-text.ts'
import { setStart } from './option-bar.tsx'
import type { TailController } from './tail-controller.ts'
import { filterWholeLog, searchOf } from './whole-filter.ts'

export function TailNote({ tail }: { readonly tail: TailController }) {
  void tail.tick.value
  const failed = [...tail.session.failedLogs]
  return (
    <>
      {failed.map(([allocation, error]) => (
        <p key={allocation} class="log-note error" role="status">
          Lines are missing: the log of {visibleText(tail.session.placeOf(allocation))} cannot be read: {error}
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
        {state.reason}. The view retries until the log exists.
      </p>
    )
  }
  if (state.kind === 'disconnected' && state.reason === SEALED) {
    return (
      <p class="log-note" role="status">
        {SEALED} The tail continues after it is unsealed. <Link to="/seal">Unseal it</Link>
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
  if (session.isFull)
    return <p class="log-note">Reading is paused. Scroll down or follow the log to load more lines.</p>
  if (tail.search?.isComplete && tail.search.count === 0 && buffer.lineCount > 0) return <NoMatch tail={tail} />
  if (buffer.removedLines > 0) {
    return (
      <p class="log-note">
        The page keeps the last {buffer.linesMax.toLocaleString('en')} lines; {buffer.removedLines.toLocaleString('en')}{' '}
        earlier lines were removed from it. A filter finds lines in the whole log.
      </p>
    )
  }
  const hasSearch = selection.grep === '' && searchOf(address.value.query).text !== ''
  if (selection.lines !== undefined && selection.cursor === undefined && buffer.lineCount >= selection.lines) {
    return (
      <p class="log-note">
        The view starts {selection.lines.toLocaleString('en')} lines before the end
        {hasSearch && ', and Find searches these lines only'}. {hasSearch && <WholeLogButton />}{' '}
        {selection.lines < 10_000 && <Button onClick={() => setStart('lines=10000')}>10,000 lines</Button>}{' '}
        <Button onClick={() => setStart('from=start')}>Start of the log</Button>
      </p>
    )
  }
  return null
}

function WholeLogButton() {
  return (
    <Button title="&" onClick={() => void filterWholeLog()}>
      Filter the whole log
    </Button>
  )
}

/** The search found nothing in the lines of the page; the rest of the log may have it. */
function NoMatch({ tail }: { readonly tail: TailController }) {
  const { selection, session } = tail
  const { cursor, grep, lines, since } = selection
  const { lineCount, removedLines } = session.buffer
  const { isExpression, text } = searchOf(address.value.query)
  const what = isExpression && text === ERROR_EXPRESSION ? 'No error' : 'No match'
  const isFromStart = since === undefined && cursor === undefined && removedLines === 0
  const isWhole = isFromStart && (lines === undefined || lineCount < lines)
  const count = `${lineCount.toLocaleString('en')} ${lineCount === 1 ? 'line' : 'lines'}`
  if (grep !== '') {
    return (
      <p class="log-note" role="status">
        {what} in the {count} that match the filter.
      </p>
    )
  }
  return (
    <p class="log-note" role="status">
      {isWhole ? `${what} in the log yet.` : `${what} in the ${count} of this page.`} {!isWhole && <WholeLogButton />}
    </p>
  )
}
