/** The tail of a task, an allocation or a job. */
import { useMemo, useState } from 'preact/hooks'
import { ApiError } from '../../api/client.ts'
import { useKeys } from '../../app/keys.ts'
import { address, navigate, pathOf, setQuery, UI_ROOT } from '../../app/location.ts'
import { useCommands } from '../../app/palette.tsx'
import type { ViewProps } from '../../app/view-props.ts'
import { mayReadHosts } from '../../app/session.ts'
import { showError, showSuccess } from '../../app/toasts.tsx'
import { Button } from '../../components/button.tsx'
import { Badge, Time } from '../../components/format.tsx'
import { counted } from '../../components/plural.ts'
import { Link } from '../../components/link.tsx'
import { Failure } from '../../components/states.tsx'
import { Tabs } from '../../components/tabs.tsx'
import { View } from '../../components/view.tsx'
import type { LogEntry } from './model/log-buffer.ts'
import { shownText } from './model/line-text.ts'
import { copyText } from './pane/copy-text.ts'
import { download } from './pane/download.ts'
import { ERRORS, FindBar, type FindQuery } from './pane/find-bar.tsx'
import { linkToLine } from './pane/line-link.ts'
import { LogList } from './pane/line-list.tsx'
import type { RowActions } from './pane/line-row.tsx'
import { OptionBar, setStart } from './pane/option-bar.tsx'
import { TailNote } from './pane/tail-note.tsx'
import type { TailController } from './pane/tail-controller.ts'
import { parseTailQuery, startOfQuery } from './pane/tail-query.ts'
import { TailState } from './pane/tail-state.tsx'
import { type Allocation, fileNameOf, namesOf, remarkNamesOf, sourceLabel, titleOf } from './pane/target-names.ts'
import { useAllocations } from './pane/use-allocations.ts'
import { tailKeys } from './pane/tail-keys.ts'
import { useTail } from './pane/use-tail.ts'
import { filterWholeLog, focusFilter, searchOf } from './pane/whole-filter.ts'
import { taskState } from './list/log-targets.ts'
import type { LogTarget } from './stream/log-target.ts'
import { wallPathWith } from './wall/wall-tails.ts'
import { openWithFetch } from './stream/transport.ts'

function targetOf({ allocation = '', job, namespace = 'default', task }: ViewProps['params']): LogTarget {
  if (job !== undefined) return { kind: 'job', namespace, job }
  return task === undefined ? { kind: 'allocation', allocation } : { kind: 'task', allocation, task }
}

export default function LogView({ params }: ViewProps) {
  const target = useMemo(() => targetOf(params), [params])
  const { query } = address.value
  const { isFollowing, line, selection } = parseTailQuery(query)
  const key = JSON.stringify([selection, line])
  const tail = useTail(key, () => ({ target, selection, line, isFollowing, open: openWithFetch }))
  const allocations = useAllocations(target)
  const names = useMemo(() => namesOf(allocations), [allocations])
  tail.session.remarkNames = useMemo(() => remarkNamesOf(allocations), [allocations])
  const [areOptionsShown, setOptionsShown] = useState(window.innerWidth > 760)
  const find: FindQuery = searchOf(query)
  const [isWrapped, hasTime] = [query.get('wrap') === '1', query.get('time') === '1']
  const toggles = {
    wrap: () => setQuery({ wrap: isWrapped ? undefined : '1' }),
    time: () => setQuery({ time: hasTime ? undefined : '1' }),
    errors: () => {
      setFind(ERRORS)
      tail.findLast(ERRORS.text, ERRORS.isExpression)
    },
    endSearch: () => setFind({ text: '', isExpression: false }),
    filter: () => {
      if (filterWholeLog()) return
      setOptionsShown(true)
      focusFilter()
    },
  }
  tail.setLayout({ isWrapped })
  const labelOf = (entry: LogEntry) => (entry.source ? sourceLabel(entry.source.log, names) : '')
  const actions = useActions(tail)
  const save = () => {
    const name = fileNameOf(target)
    download(target, { ...selection, lines: undefined }, { name, labelOf: ({ log }) => sourceLabel(log, names) }).then(
      (isSaved) => isSaved && showSuccess(`Saved ${name}.`),
      showError,
    )
  }
  useKeys('Log', tailKeys(tail, toggles))
  useCommands(
    [
      { title: 'Download the log', group: 'Log', run: save },
      { title: 'Start of the log', group: 'Log', run: () => setStart('from=start') },
      { title: 'Wrap long lines', group: 'Log', run: toggles.wrap },
      { title: 'Show times', group: 'Log', run: toggles.time },
      { title: 'Find errors', group: 'Log', run: toggles.errors },
      { title: 'Filter the whole log', group: 'Log', run: toggles.filter },
      { title: 'Open all stack traces', group: 'Log', run: () => tail.openTraces(true) },
      { title: 'Add to the wall', group: 'Log', run: () => openWall(target) },
    ],
    [tail, isWrapped, hasTime, names],
  )
  return (
    <View
      title={titleOf(target, allocations)}
      parents={parentsOf(target, allocations)}
      isFull
      actions={<TailState tail={tail} />}
    >
      <TaskTabs target={target} allocations={allocations} />
      <div class="log-bar">
        <FindBar tail={tail} query={find} onQuery={setFind} onErrors={toggles.errors} />
        <Button title="w" pressed={isWrapped} onClick={toggles.wrap}>
          Wrap
        </Button>
        <Button title="t" pressed={hasTime} onClick={toggles.time}>
          Times
        </Button>
        <Button onClick={save}>Download</Button>
        <Button onClick={() => openWall(target)}>Add to wall</Button>
        <Button expanded={areOptionsShown} onClick={() => setOptionsShown(!areOptionsShown)}>
          Filter options
        </Button>
        <TargetState target={target} allocations={allocations} />
      </div>
      {areOptionsShown && <OptionBar />}
      <Lines tail={tail} hasTime={hasTime} labelOf={labelOf} actions={actions} />
    </View>
  )
}

function setFind({ isExpression, text }: FindQuery): void {
  setQuery({ find: text, regex: isExpression ? '1' : undefined })
}

interface LinesProps {
  readonly tail: TailController
  readonly hasTime: boolean
  readonly labelOf: (entry: LogEntry) => string
  readonly actions: RowActions
}

function Lines({ actions, hasTime, labelOf, tail }: LinesProps) {
  void tail.tick.value
  const { session } = tail
  const { sources, state } = session
  if (state.kind === 'failed' && session.buffer.lineCount === 0) {
    return (
      <Failure
        error={state.error}
        hint={
          state.error instanceof ApiError && state.error.isForbidden
            ? 'Lines need the capability "read-logs" or "read-fs" in the namespace of the job.'
            : 'Check the address and the filter.'
        }
        retry={() => session.restart()}
      />
    )
  }
  // With one task, its outputs differ by colour.
  const isMerged = sources.some(
    ({ log }) => log.task !== sources[0]?.log.task || log.allocationId !== sources[0]?.log.allocationId,
  )
  return (
    <>
      <TailNote tail={tail} />
      <LogList
        tail={tail}
        label="Lines"
        hasTime={hasTime}
        labelOf={isMerged || tail.target.kind !== 'task' ? labelOf : undefined}
        actions={actions}
      />
    </>
  )
}

function useActions(tail: TailController): RowActions {
  return useMemo(() => {
    const linkOf = (entry: LogEntry) => {
      const { grep, type } = tail.selection
      const cursor = tail.session.cursorBefore(entry)
      const start = startOfQuery(address.value.query)
      return linkToLine(tail.target, entry, { isFiltered: grep !== '', type, cursor, start })
    }
    return {
      copyLine: (entry) => void copyText(shownText([entry.text, ...entry.more].join('\n')), 'Copied the line.'),
      copyLink: (entry) =>
        void copyText(window.location.origin + UI_ROOT + linkOf(entry), 'Copied the link to the line.'),
      openContext: (entry) => navigate(linkOf(entry)),
      close: ({ id }) => tail.toggle(id),
    }
  }, [tail])
}

function openWall(target: LogTarget): void {
  navigate(wallPathWith(target))
}

type Allocations = readonly Allocation[]

function parentsOf(target: LogTarget, allocations: Allocations) {
  const logs = { title: 'Logs', to: '/logs' }
  if (target.kind === 'job') return [logs]
  const [allocation] = allocations
  const job = allocation && {
    title: allocation.JobID,
    to: `/logs${pathOf('job', allocation.Namespace, allocation.JobID)}`,
  }
  const own = allocation && { title: allocation.Name, to: `/logs${pathOf(allocation.ID)}` }
  return [logs, job, target.kind === 'task' ? own : undefined].filter((parent) => parent !== undefined)
}

/** The tasks of an allocation that has several. */
function TaskTabs({ allocations, target }: { readonly target: LogTarget; readonly allocations: Allocations }) {
  const tasks = Object.keys(allocations[0]?.TaskStates ?? {})
  if (target.kind === 'job' || tasks.length < 2) return null
  const { allocation } = target
  const current = target.kind === 'task' ? target.task : undefined
  const all = { title: 'All tasks', to: `/logs${pathOf(allocation)}`, isCurrent: current === undefined }
  const own = tasks.map((task) => ({
    title: task,
    to: `/logs${pathOf(allocation, task)}`,
    isCurrent: task === current,
  }))
  return <Tabs label="Tasks" tabs={[all, ...own]} />
}

/** State of the task or allocation, and how long ago it ended. */
function TargetState({ allocations, target }: { readonly target: LogTarget; readonly allocations: Allocations }) {
  const [allocation] = allocations
  if (!allocation || target.kind === 'job') {
    return target.kind === 'job' ? <span class="muted">{counted(allocations.length, 'allocation')}</span> : null
  }
  const task = target.kind === 'task' ? allocation.TaskStates?.[target.task] : undefined
  const state = task ? taskState(task) : allocation.ClientStatus
  return (
    <span class="log-target-state">
      <Badge state={state} />{' '}
      {mayReadHosts.value ? (
        <Link to={pathOf('hosts', allocation.NodeID)}>{allocation.NodeName}</Link>
      ) : (
        <span class="muted">{allocation.NodeName}</span>
      )}{' '}
      {task?.FinishedAt && <Time at={task.FinishedAt} />}
    </span>
  )
}
