/** One tail of the wall. */
import { useMemo } from 'preact/hooks'
import { navigate, UI_ROOT } from '../../../app/location.ts'
import { Button } from '../../../components/button.tsx'
import { Link } from '../../../components/link.tsx'
import type { LogEntry } from '../model/log-buffer.ts'
import { shownText } from '../model/line-text.ts'
import { copyText } from '../pane/copy-text.ts'
import { linkToLine } from '../pane/line-link.ts'
import { LogList } from '../pane/line-list.tsx'
import type { RowActions } from '../pane/line-row.tsx'
import { TailState } from '../pane/tail-state.tsx'
import type { TailController } from '../pane/tail-controller.ts'
import { namesOf, remarkNamesOf, sourceLabel, titleOf } from '../pane/target-names.ts'
import { useAllocations } from '../pane/use-allocations.ts'
import { useTail } from '../pane/use-tail.ts'
import { type LogSelection, type LogTarget, pathOfTarget } from '../stream/log-target.ts'
import { openWithSocket } from '../stream/transport.ts'

const LINES_MAX = 10_000
/** Nine tails that are drawn in each frame would need all of its time. */
const REDRAW_MS = 150
const SELECTION: LogSelection = {
  type: '*',
  lines: 200,
  since: undefined,
  grep: '',
  isInverted: false,
  context: 0,
  cursor: undefined,
}

interface WallCellProps {
  readonly target: LogTarget
  readonly isMaximized: boolean
  readonly maximize: () => void
  readonly remove: () => void
}

export function WallCell({ isMaximized, maximize, remove, target }: WallCellProps) {
  const path = pathOfTarget(target)
  const tail = useTail(path, () => ({
    target,
    selection: SELECTION,
    linesMax: LINES_MAX,
    redrawMs: REDRAW_MS,
    isFollowing: true,
    open: openWithSocket,
  }))
  const allocations = useAllocations(target)
  const names = useMemo(() => namesOf(allocations), [allocations])
  tail.session.remarkNames = useMemo(() => remarkNamesOf(allocations), [allocations])
  const title = titleOf(target, allocations)
  const host = target.kind === 'job' ? undefined : allocations[0]?.NodeName
  // An agent numbers its own allocations only, so those of several hosts can have one name.
  const label = host === undefined ? title : `${title} on ${host}`
  const labelOf = (entry: LogEntry) => (entry.source ? sourceLabel(entry.source.log, names) : '')
  return (
    <section class="wall-cell" aria-label={label}>
      <header>
        <h2>
          <Link to={`/logs/${path}`}>{title}</Link>
          {host !== undefined && <span class="muted"> {host}</span>}
        </h2>
        <TailState tail={tail} isCompact />
        <Button label={isMaximized ? 'All tails' : `Max ${label}`} pressed={isMaximized} onClick={maximize}>
          {isMaximized ? 'All' : 'Max'}
        </Button>
        <Button label={`Remove ${label}`} onClick={remove}>
          ×
        </Button>
      </header>
      <CellNote tail={tail} />
      <LogList
        tail={tail}
        label={`Lines of ${label}`}
        hasTime={false}
        labelOf={target.kind === 'task' ? undefined : labelOf}
        actions={actionsOf(tail)}
        hasFocus={false}
      />
    </section>
  )
}

function CellNote({ tail }: { readonly tail: TailController }) {
  void tail.tick.value
  const { state } = tail.session
  if (state.kind === 'waiting') return <p class="log-note">{state.reason}</p>
  return null
}

function actionsOf(tail: TailController): RowActions {
  const linkOf = (entry: LogEntry) =>
    linkToLine(tail.target, entry, {
      isFiltered: false,
      type: '*',
      cursor: tail.session.cursorBefore(entry),
      start: '',
    })
  return {
    copyLine: ({ more, text }) => void copyText(shownText([text, ...more].join('\n')), 'Copied the line.'),
    copyLink: (entry) =>
      void copyText(window.location.origin + UI_ROOT + linkOf(entry), 'Copied the link to the line.'),
    openContext: (entry) => navigate(linkOf(entry)),
    close: ({ id }) => tail.toggle(id),
  }
}
