/** Settings of a secret: its number of versions, check-and-set, and custom metadata. */
import { useState } from 'preact/hooks'
import { showSuccess } from '../../../app/toasts.tsx'
import { Button } from '../../../components/button.tsx'
import { Time } from '../../../components/format.tsx'
import { Field } from '../../../components/field.tsx'
import { ErrorText } from '../../../components/states.tsx'
import { writeSettings } from '../kv.ts'
import type { SecretMetadata, SecretSettings } from './versions.ts'
import type { SecretContext } from './secret-context.ts'
import { NoMetadata } from './versions-tab.tsx'

export function SettingsTab({ context }: { readonly context: SecretContext }) {
  const { may, metadata } = context
  if (!metadata) return <NoMetadata />
  return (
    <>
      <Facts metadata={metadata} />
      {may('metadata', 'update') && <SettingsForm context={context} metadata={metadata} />}
    </>
  )
}

function Facts({ metadata }: { readonly metadata: SecretMetadata }) {
  const custom = Object.entries(metadata.custom_metadata ?? {})
  return (
    <section class="card" aria-label="Current settings">
      <dl class="facts">
        <dt>Created</dt>
        <dd>
          <Time at={metadata.created_time} />
        </dd>
        <dt>Last change</dt>
        <dd>
          <Time at={metadata.updated_time} />
        </dd>
        <dt>Kept versions</dt>
        <dd>{metadata.max_versions === 0 ? 'as set for the engine' : metadata.max_versions}</dd>
        <dt>Writes need check-and-set</dt>
        <dd>{metadata.cas_required ? 'yes' : 'no, unless the engine requires it'}</dd>
        <dt>Versions are deleted after</dt>
        <dd>{metadata.delete_version_after === '0s' ? 'never' : metadata.delete_version_after}</dd>
        {custom.map(([key, value]) => [<dt key={key}>{key}</dt>, <dd key={`${key}/value`}>{value}</dd>])}
      </dl>
    </section>
  )
}

interface CustomRow {
  readonly id: number
  readonly key: string
  readonly value: string
}

interface SettingsFormProps {
  readonly context: SecretContext
  readonly metadata: SecretMetadata
}

function SettingsForm({ context: { act, mount, name, reload }, metadata }: SettingsFormProps) {
  const [versions, setVersions] = useState(String(metadata.max_versions))
  const [after, setAfter] = useState(metadata.delete_version_after)
  const [isCasRequired, setCasRequired] = useState(metadata.cas_required)
  const [rows, setRows] = useState<readonly CustomRow[]>(() =>
    Object.entries(metadata.custom_metadata ?? {}).map(([key, value], id) => ({ id, key, value })),
  )
  const [error, setError] = useState<Error>()
  const [isBusy, setBusy] = useState(false)
  const change = (id: number, changed: Partial<CustomRow>) =>
    setRows(rows.map((row) => (row.id === id ? { ...row, ...changed } : row)))
  const save = async () => {
    if (!/^\d+$/.test(versions.trim())) throw new Error('"Kept versions" must be a number.')
    const custom = rows.filter(({ key }) => key !== '').map(({ key, value }) => [key, value] as const)
    if (new Set(custom.map(([key]) => key)).size < custom.length) throw new Error('A key of the metadata is repeated.')
    const settings: SecretSettings = {
      max_versions: Number(versions),
      cas_required: isCasRequired,
      delete_version_after: after.trim() === '' ? '0s' : after.trim(),
      custom_metadata: Object.fromEntries(custom),
    }
    await act('metadata', () => writeSettings(mount, name, settings, metadata.current_metadata_version))
    showSuccess(`Saved the settings of ${name}.`)
    reload()
  }
  const submit = (event: Event) => {
    event.preventDefault()
    setBusy(true)
    setError(undefined)
    save().catch((failure: unknown) => {
      setError(failure instanceof Error ? failure : new Error(String(failure)))
      setBusy(false)
    })
  }
  return (
    <form class="card form" onSubmit={submit} aria-label="Change the settings">
      <h2>Change the settings</h2>
      <div class="settings-fields">
        <Field
          label="Kept versions"
          inputMode="numeric"
          value={versions}
          onInput={setVersions}
          hint="0 uses the setting of the engine"
        />
        <Field
          label="Delete versions after"
          value={after}
          onInput={setAfter}
          hint="A duration such as 720h; 0s keeps them"
        />
      </div>
      <label class="check">
        <input type="checkbox" checked={isCasRequired} onChange={() => setCasRequired(!isCasRequired)} />
        Each write must name the current version (check-and-set)
      </label>
      <fieldset class="custom-metadata">
        <legend>Custom metadata</legend>
        <p class="hint">Not secret: each token that may read the metadata sees it.</p>
        {rows.map(({ id, key, value }, index) => (
          <div key={id} class="custom-row">
            <Field
              label={`Key ${index + 1}`}
              isLabelHidden
              placeholder="Key"
              value={key}
              onInput={(text) => change(id, { key: text })}
            />
            <Field
              label={`Value ${index + 1}`}
              isLabelHidden
              placeholder="Value"
              value={value}
              onInput={(text) => change(id, { value: text })}
            />
            <Button label={`Remove ${key}`} onClick={() => setRows(rows.filter((row) => row.id !== id))}>
              ×
            </Button>
          </div>
        ))}
        <Button
          onClick={() => setRows([...rows, { id: Math.max(-1, ...rows.map(({ id }) => id)) + 1, key: '', value: '' }])}
        >
          Add a key
        </Button>
      </fieldset>
      {error && <ErrorText error={error} />}
      <div class="form-actions">
        <Button type="submit" kind="primary" isBusy={isBusy}>
          Save the settings
        </Button>
      </div>
    </form>
  )
}
