/** Two versions of a secret side by side: which keys were changed, added and removed. */
import { useId } from 'preact/hooks'
import { address, setQuery } from '../../../app/location.ts'
import { Button } from '../../../components/button.tsx'
import { formatExact } from '../../../components/format.tsx'
import { Empty } from '../../../components/states.tsx'
import { ChangeTable } from './change-table.tsx'
import { readVersion } from '../kv.ts'
import type { SecretData } from '../secret-data.ts'
import type { SecretContext } from './secret-context.ts'
import { changesOf, summaryOf } from './secret-diff.ts'
import { LoadedSecrets, useSecretsResource } from '../states.tsx'
import { periodsOf, stateOf, versionAt, versionBefore, type VersionInfo } from './versions.ts'
import { NoMetadata } from './versions-tab.tsx'

function numberInQuery(name: string): number | undefined {
  const text = address.value.query.get(name)
  return text !== null && /^\d+$/.test(text) ? Number(text) : undefined
}

function choose({ from, to }: { readonly from: number; readonly to: number }): void {
  setQuery({ from: String(from), to: String(to) })
}

export function CompareTab({ context }: { readonly context: SecretContext }) {
  const { metadata } = context
  const to = numberInQuery('to') ?? metadata?.current_version
  if (to === undefined || to === 0) return <NoMetadata />
  const from = numberInQuery('from') ?? versionBefore(metadata, to)
  const versions = metadata?.versions ?? []
  return (
    <>
      {metadata && (
        <div class="compare-choice">
          <VersionSelect
            label="From"
            value={from}
            versions={versions}
            hasNone
            onChange={(version) => choose({ from: version, to })}
          />
          <VersionSelect
            label="To"
            value={to}
            versions={versions}
            onChange={(version) => choose({ from, to: version })}
          />
          <div class="form-actions" role="group" aria-label="Compare a period">
            {periodsOf(new Date()).map(({ fromMs, title, toMs }) => {
              const [first, last] = [versionAt(metadata, fromMs), versionAt(metadata, toMs ?? Date.now())]
              return (
                <Button
                  key={title}
                  onClick={() => choose({ from: first, to: last })}
                  isDisabled={first === last}
                  title={first === last ? 'No version was written' : `Version ${first} to ${last}`}
                >
                  {title}
                </Button>
              )
            })}
          </div>
        </div>
      )}
      <Comparison context={context} from={from} to={to} />
    </>
  )
}

interface VersionSelectProps {
  readonly label: string
  readonly value: number
  readonly versions: readonly VersionInfo[]
  readonly hasNone?: boolean
  readonly onChange: (version: number) => void
}

function VersionSelect({ hasNone, label, onChange, value, versions }: VersionSelectProps) {
  const id = useId()
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select id={id} value={String(value)} onChange={(event) => onChange(Number(event.currentTarget.value))}>
        {versions.map((info) => (
          <option key={info.version} value={String(info.version)} disabled={stateOf(info) !== 'active'}>
            {`${info.version} · ${formatExact(Date.parse(info.created_time))}${stateOf(info) === 'active' ? '' : ` · ${stateOf(info)}`}`}
          </option>
        ))}
        {hasNone && <option value="0">nothing</option>}
      </select>
    </div>
  )
}

interface Sides {
  readonly before: SecretData | undefined
  readonly after: SecretData | undefined
}

async function readSides(
  { mount, name }: SecretContext,
  from: number,
  to: number,
  signal: AbortSignal,
): Promise<Sides> {
  const read = (version: number) => readVersion(mount, name, { version, signal }).then((found) => found?.data)
  const [before, after] = await Promise.all([from === 0 ? Promise.resolve({}) : read(from), read(to)])
  return { before, after }
}

function Comparison({
  context,
  from,
  to,
}: {
  readonly context: SecretContext
  readonly from: number
  readonly to: number
}) {
  const resource = useSecretsResource((signal) => readSides(context, from, to, signal), [context.name, from, to])
  return (
    <LoadedSecrets resource={resource}>
      {({ after, before }) => {
        const missing = before === undefined ? from : after === undefined ? to : undefined
        if (before === undefined || after === undefined) {
          return (
            <Empty title={`Version ${missing} has no values.`}>
              <p>It was deleted, destroyed or pruned. Undelete it, or choose another version.</p>
            </Empty>
          )
        }
        const changes = changesOf(before, after)
        return (
          <section class="card" aria-label="Differences">
            <p role="status">
              {from === 0 ? `All keys of version ${to}` : `Version ${from} to version ${to}`}: {summaryOf(changes)}
            </p>
            {changes.length > 0 && (
              <ChangeTable
                changes={changes}
                before={from === 0 ? 'before' : `version ${from}`}
                after={`version ${to}`}
              />
            )}
          </section>
        )
      }}
    </LoadedSecrets>
  )
}
