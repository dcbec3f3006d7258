/** Several tails at once. */
import { useEffect, useMemo, useState } from 'preact/hooks'
import { read } from '../../api/client.ts'
import { useKeys } from '../../app/keys.ts'
import { address, navigate } from '../../app/location.ts'
import { useResource } from '../../app/resource.ts'
import { showError } from '../../app/toasts.tsx'
import { Button } from '../../components/button.tsx'
import { Dialog } from '../../components/dialog.tsx'
import { Field } from '../../components/field.tsx'
import { Badge } from '../../components/format.tsx'
import { Empty, Loaded } from '../../components/states.tsx'
import { View } from '../../components/view.tsx'
import { filterRows, type LogRowData, rowsOf } from './list/log-targets.ts'
import { type LogTarget, pathOfTarget, targetOfPath } from './stream/log-target.ts'
import { WallCell } from './wall/wall-cell.tsx'
import { gridColumns, maximizedOf, rememberTails, TAILS_MAX, tailsOf, wallPath } from './wall/wall-tails.ts'

const OFFERED_MAX = 50

export default function WallView() {
  const { query } = address.value
  const tails = tailsOf(query)
  useEffect(() => rememberTails(tails))
  const maximized = maximizedOf(query, tails.length)
  const [isAdding, setAdding] = useState(false)
  const isExcessive = query.getAll('tail').length > TAILS_MAX
  useEffect(() => {
    if (isExcessive) show(tails, maximized)
  }, [isExcessive])
  const add = () => {
    if (tails.length < TAILS_MAX) setAdding(true)
    else showError('The wall shows up to nine logs. Remove one first.')
  }
  useKeys('Wall', [
    { keys: 'a', label: 'Add a tail', run: add },
    { keys: 'Escape', label: 'Show all tails', run: () => show(tails) },
    ...tails.map((_, index) => ({
      keys: String(index + 1),
      label: `Maximize tail ${index + 1}`,
      run: () => show(tails, maximized === index ? undefined : index),
    })),
  ])
  const shown = tails.map((target, index) => ({ target, index }))
  const visible = maximized === undefined ? shown : shown.filter(({ index }) => index === maximized)
  const columns = gridColumns(visible.length)
  return (
    <View
      title="Wall"
      parents={[{ title: 'Logs', to: '/logs' }]}
      isFull
      actions={
        <Button isDisabled={tails.length >= TAILS_MAX} title="a" onClick={add}>
          Add a tail
        </Button>
      }
    >
      {tails.length === 0 ? (
        <Empty title="The wall shows up to nine logs at once">
          <Button kind="primary" onClick={add}>
            Add a tail
          </Button>
        </Empty>
      ) : (
        <div class="wall" style={{ '--wall-columns': columns, '--wall-rows': Math.ceil(visible.length / columns) }}>
          {visible.map(({ index, target }) => (
            <WallCell
              key={pathOfTarget(target)}
              target={target}
              isMaximized={maximized === index}
              maximize={() => show(tails, maximized === index ? undefined : index)}
              remove={() => show(tails.filter((each) => each !== target))}
            />
          ))}
        </div>
      )}
      {isAdding && (
        <AddDialog
          tails={tails}
          add={(target) => {
            setAdding(false)
            show([...tails, target])
          }}
          close={() => setAdding(false)}
        />
      )}
    </View>
  )
}

function show(tails: readonly LogTarget[], maximized?: number): void {
  navigate(wallPath(tails, maximized), { replace: true })
}

interface AddDialogProps {
  readonly tails: readonly LogTarget[]
  readonly add: (target: LogTarget) => void
  readonly close: () => void
}

function AddDialog({ add, close, tails }: AddDialogProps) {
  const allocations = useResource((signal) => read('/v1/allocations', { query: { namespace: '*' }, signal }), [])
  const [search, setSearch] = useState('')
  return (
    <Dialog title="Add a tail" close={close}>
      <form onSubmit={addFirst}>
        <Field label="Search" value={search} onInput={setSearch} placeholder="Task, allocation, job or host" />
        <Loaded resource={allocations}>
          {(data) => <Offered allocations={data} search={search} tails={tails} add={add} />}
        </Loaded>
      </form>
    </Dialog>
  )
}

/** Enter in the search field adds the first log of the list. */
function addFirst(event: SubmitEvent & { readonly currentTarget: HTMLFormElement }): void {
  event.preventDefault()
  const first = event.currentTarget.querySelector('.wall-offered button')
  if (first instanceof HTMLElement) first.click()
}

interface OfferedProps {
  readonly allocations: Parameters<typeof rowsOf>[0]
  readonly search: string
  readonly tails: readonly LogTarget[]
  readonly add: (target: LogTarget) => void
}

function Offered({ add, allocations, search, tails }: OfferedProps) {
  const rows = useMemo(
    () => [...rowsOf(allocations, 'jobs'), ...rowsOf(allocations, 'allocations'), ...rowsOf(allocations, 'tasks')],
    [allocations],
  )
  const shown = new Set(tails.map(pathOfTarget))
  const offered = filterRows(rows, search, 'all').filter(({ path }) => !shown.has(path))
  return (
    <ul class="wall-offered">
      {offered.slice(0, OFFERED_MAX).map((row) => (
        <li key={row.path}>
          <Button onClick={() => addRow(row, add)}>
            <span>
              {row.name}{' '}
              <span class="muted">
                {row.host} · {row.of}
              </span>
            </span>
            <Badge state={row.state} />
          </Button>
        </li>
      ))}
      {offered.length === 0 && <li class="muted">Nothing matches.</li>}
    </ul>
  )
}

function addRow({ path }: LogRowData, add: (target: LogTarget) => void): void {
  const target = targetOfPath(path)
  if (target) add(target)
}
