import { SecretValue } from '../../../components/secret-value.tsx'
import { valueText } from '../secret-data.ts'
import type { KeyChange } from './secret-diff.ts'

const KINDS: Readonly<Record<KeyChange['change'], string>> = { added: 'good', removed: 'bad', changed: 'neutral' }

interface ChangeTableProps {
  readonly changes: readonly KeyChange[]
  readonly before: string
  readonly after: string
}

/** Changes by key. Values are hidden until requested. */
export function ChangeTable({ after, before, changes }: ChangeTableProps) {
  return (
    <table class="changes">
      <thead>
        <tr>
          <th scope="col">Key</th>
          <th scope="col">Change</th>
          <th scope="col">{before}</th>
          <th scope="col">{after}</th>
        </tr>
      </thead>
      <tbody>
        {changes.map(({ after: next, before: old, change, key }) => (
          <tr key={key}>
            <th scope="row">{key}</th>
            <td>
              <span class={`badge badge-${KINDS[change]}`}>{change}</span>
            </td>
            <td data-title={before}>
              <ChangedValue name={`${key} in ${before}`} value={old} />
            </td>
            <td data-title={after}>
              <ChangedValue name={`${key} in ${after}`} value={next} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  )
}

/** Undefined is an absent key. */
export function ChangedValue({ name, value }: { readonly name: string; readonly value: unknown }) {
  return value === undefined ? <span class="muted">absent</span> : <SecretValue name={name} value={valueText(value)} />
}
