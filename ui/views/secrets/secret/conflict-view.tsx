/** Two changes of the same version: mine, which was not saved, and theirs, which was. The user chooses for each key. */
import { useMemo, useState } from 'preact/hooks'
import { Button } from '../../../components/button.tsx'
import { ErrorText } from '../../../components/states.tsx'
import { ChangedValue } from './change-table.tsx'
import type { EditBase } from './secret-context.ts'
import type { SecretData } from '../secret-data.ts'
import { mergedData, type MergeRow, mergeRows, type Side } from './secret-diff.ts'

interface ConflictViewProps {
  readonly base: EditBase
  readonly mine: SecretData
  readonly theirs: EditBase
  readonly isBusy: boolean
  readonly error: Error | undefined
  readonly save: (data: SecretData) => void
  readonly edit: (data: SecretData) => void
  readonly discard: () => void
}

export function ConflictView({ base, discard, edit, error, isBusy, mine, save, theirs }: ConflictViewProps) {
  const [choices, setChoices] = useState<ReadonlyMap<string, Side>>(new Map())
  const rows = useMemo(() => mergeRows(base.data, mine, theirs.data), [base, mine, theirs])
  const merged = mergedData(base.data, rows, choices)
  const conflicts = rows.filter(({ changedBy }) => changedBy === 'both').length
  const chooseAll = (side: Side) => setChoices(new Map(rows.map(({ key }) => [key, side])))
  if (!theirs.isKnown) {
    return (
      <section class="card" role="alert">
        <h2>Another client wrote this secret</h2>
        <p>Your token may not read its values. Saving replaces all of its keys with yours.</p>
        {error && <ErrorText error={error} />}
        <div class="form-actions">
          <Button kind="danger" isBusy={isBusy} onClick={() => save(mine)}>
            Replace its values
          </Button>
          <Button onClick={discard}>Discard mine</Button>
        </div>
      </section>
    )
  }
  return (
    <section class="card" aria-label="Conflict">
      <div role="alert">
        <h2>Another client wrote {theirs.version ? `version ${theirs.version}` : 'this secret'} in the meantime</h2>
        <p>
          Nothing of yours was saved.{' '}
          {conflicts === 0
            ? 'You changed different keys, so both changes can be saved.'
            : conflicts === 1
              ? 'Both changed one key: choose its value.'
              : `Both changed ${conflicts} keys: choose a value for each.`}
        </p>
      </div>
      <table class="changes">
        <thead>
          <tr>
            <th scope="col">Key</th>
            <th scope="col">Changed by</th>
            <th scope="col">Mine</th>
            <th scope="col">Theirs</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <ConflictRow
              key={row.key}
              row={row}
              chosen={choices.get(row.key) ?? (row.changedBy === 'both' ? undefined : row.changedBy)}
              choose={(side) => setChoices(new Map([...choices, [row.key, side]]))}
            />
          ))}
        </tbody>
      </table>
      {error && <ErrorText error={error} />}
      <div class="form-actions">
        <Button kind="primary" isBusy={isBusy} isDisabled={!merged} onClick={() => merged && save(merged)}>
          Save the choice
        </Button>
        <Button isDisabled={!merged} onClick={() => merged && edit(merged)}>
          Edit the choice
        </Button>
        <Button onClick={() => chooseAll('mine')}>All mine</Button>
        <Button onClick={() => chooseAll('theirs')}>All theirs</Button>
        <Button kind="danger" onClick={discard}>
          Discard mine
        </Button>
      </div>
    </section>
  )
}

const AUTHORS: Readonly<Record<MergeRow['changedBy'], string>> = {
  mine: 'me',
  theirs: 'them',
  both: 'both',
  same: 'both, equally',
}

interface ConflictRowProps {
  readonly row: MergeRow
  readonly chosen: Side | 'same' | undefined
  readonly choose: (side: Side) => void
}

function ConflictRow({ choose, chosen, row: { changedBy, key, mine, theirs } }: ConflictRowProps) {
  const side = (name: Side, value: unknown) => (
    <td>
      {changedBy !== 'same' && (
        <label class="check">
          <input type="radio" name={`side:${key}`} checked={chosen === name} onChange={() => choose(name)} />
          Use {name}
          <span class="visually-hidden"> for {key}</span>
        </label>
      )}
      <ChangedValue name={`${name} of ${key}`} value={value} />
    </td>
  )
  return (
    <tr>
      <th scope="row">{key}</th>
      <td>
        <span class={changedBy === 'both' ? 'badge badge-bad' : 'badge'}>{AUTHORS[changedBy]}</span>
      </td>
      {side('mine', mine)}
      {side('theirs', theirs)}
    </tr>
  )
}
