/** The keys of the current version, or of the one in the query. Values are hidden until requested, and dropped when the tab is left. */
import { useEffect, useState } from 'preact/hooks'
import { address, navigate, setQuery } from '../../../app/location.ts'
import { showSuccess } from '../../../app/toasts.tsx'
import { Button } from '../../../components/button.tsx'
import { Time } from '../../../components/format.tsx'
import { Link } from '../../../components/link.tsx'
import { copySecret, SECRET_SHOWN_MS, SecretValue } from '../../../components/secret-value.tsx'
import { Empty } from '../../../components/states.tsx'
import { ActionButton } from '../action-button.tsx'
import { changeVersions, readVersion, type SecretVersion } from '../kv.ts'
import { stateOf } from './versions.ts'
import { dataText, losesNumbers, type SecretData, valueText } from '../secret-data.ts'
import type { SecretContext } from './secret-context.ts'
import { folderOf, viewOf } from '../secret-path.ts'
import { LoadedSecrets, useSecretsResource } from '../states.tsx'

interface TabProps {
  readonly context: SecretContext
}

function versionInQuery(): number | undefined {
  const given = Number(address.value.query.get('version') ?? '')
  return Number.isInteger(given) && given > 0 ? given : undefined
}

export function ValuesTab({ context }: TabProps) {
  const { mount, name } = context
  const version = mount.version === 2 ? versionInQuery() : undefined
  const resource = useSecretsResource(
    (signal) => readVersion(mount, name, { version, signal }).then((found) => ({ found })),
    [mount.path, name, version],
  )
  return (
    <LoadedSecrets resource={resource}>
      {({ found }) => (
        <>
          {version !== undefined && <OldVersionNotice context={context} version={version} />}
          {found === undefined ? (
            <NoSecret context={context} version={version} />
          ) : found.data === undefined ? (
            <DeletedVersion context={context} found={found} />
          ) : (
            <Values key={found.version} found={found} data={found.data} />
          )}
        </>
      )}
    </LoadedSecrets>
  )
}

function OldVersionNotice({ context, version }: TabProps & { readonly version: number }) {
  const { may, metadata, mount, name } = context
  if (metadata?.current_version === version) return null
  return (
    <p class="notice">
      Version {version} is shown{metadata && `, and version ${metadata.current_version} is the current one`}.{' '}
      <Button onClick={() => setQuery({ version: undefined })}>Show the current version</Button>{' '}
      {may('data', 'update') && (
        <Link to={`${viewOf(mount.path, name)}?tab=edit&from=${version}`}>Write these values again</Link>
      )}
    </p>
  )
}

function NoSecret({ context, version }: TabProps & { readonly version: number | undefined }) {
  const { may, mount, name } = context
  const view = viewOf(mount.path, name)
  if (version !== undefined && context.metadata !== undefined) {
    return (
      <Empty title={`There is no version ${version} of this secret.`}>
        <p>
          It was pruned or never written. <Link to={`${view}?tab=versions`}>Show the versions</Link>
        </p>
      </Empty>
    )
  }
  return (
    <Empty title={`There is no secret ${name} in ${mount.path}.`}>
      <p>
        <Link to={viewOf(mount.path, folderOf(name))}>Show the folder</Link>
      </p>
      {may('data', 'create') && (
        <Button kind="primary" onClick={() => navigate(`${view}?tab=edit`)}>
          Create it
        </Button>
      )}
    </Empty>
  )
}

function DeletedVersion({ context, found: { info, version } }: TabProps & { readonly found: SecretVersion }) {
  const { act, may, mount, name, reload } = context
  if (!info || stateOf(info) === 'destroyed') {
    return (
      <Empty title={`Version ${version} was destroyed.`}>
        <p>Its values cannot be restored. Read another version, or write a new one.</p>
      </Empty>
    )
  }
  const undelete = async () => {
    await act('undelete', () => changeVersions(mount, name, 'undelete', [version]))
    showSuccess(`Undeleted version ${version}.`)
    reload()
  }
  return (
    <Empty title={`Version ${version} was deleted.`}>
      <p>
        Deleted <Time at={info.deletion_time} />. Its values are kept until the version is destroyed or pruned.
      </p>
      {may('undelete', 'update') && <ActionButton run={undelete}>Undelete version {version}</ActionButton>}
    </Empty>
  )
}

interface ValuesProps {
  readonly found: SecretVersion
  readonly data: SecretData
}

function Values({ data, found: { info, version } }: ValuesProps) {
  const [isJson, setJson] = useState(false)
  useEffect(() => {
    if (!isJson) return undefined
    const timer = setTimeout(() => setJson(false), SECRET_SHOWN_MS)
    return () => clearTimeout(timer)
  }, [isJson])
  const entries = Object.entries(data)
  const text = isJson ? dataText(data) : ''
  return (
    <section class="card" aria-label="Values">
      <header class="values-head">
        <p class="muted">
          {version > 0 && `Version ${version}`}
          {info && (
            <>
              , written <Time at={info.created_time} />
            </>
          )}
          {info && info.deletion_time !== '' && (
            <>
              , will be deleted <Time at={info.deletion_time} />
            </>
          )}
        </p>
        <div class="form-actions">
          <Button onClick={() => setJson(!isJson)} pressed={isJson}>
            Show as JSON
          </Button>
          <Button onClick={() => void copySecret(dataText(data))}>Copy as JSON</Button>
        </div>
      </header>
      {isJson && losesNumbers(text) && (
        <p class="error">This browser shows some numbers with different digits from those that were written.</p>
      )}
      {isJson ? (
        <pre class="secret-json" role="group" tabIndex={0} aria-label="Values as JSON">
          {text}
        </pre>
      ) : entries.length === 0 ? (
        <p class="muted">The version has no keys.</p>
      ) : (
        <dl class="secret-values">
          {entries.map(([key, value]) => (
            <div key={key}>
              <dt>{key}</dt>
              <dd>
                <SecretValue name={key} value={valueText(value)} />
              </dd>
            </div>
          ))}
        </dl>
      )}
    </section>
  )
}
