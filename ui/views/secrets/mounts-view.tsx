/** All secrets engines that the token can use. */
import { useMemo, useState } from 'preact/hooks'
import { useCapabilities } from '../../api/capabilities.ts'
import { secrets } from '../../api/client.ts'
import { useKeys } from '../../app/keys.ts'
import { address, navigate, pathOf, setQuery } from '../../app/location.ts'
import { useCommands } from '../../app/palette.tsx'
import { token } from '../../app/session.ts'
import { showSuccess } from '../../app/toasts.tsx'
import { Button } from '../../components/button.tsx'
import { type Column, DataTable } from '../../components/data-table.tsx'
import { Dialog } from '../../components/dialog.tsx'
import { Field } from '../../components/field.tsx'
import { Empty, ErrorText, LoginNeeded } from '../../components/states.tsx'
import { View } from '../../components/view.tsx'
import { viewOfType } from '../access/secret-mounts.ts'
import { trimSlashes } from '../../app/path-segments.ts'
import { kvMountOf, listMounts, type MountInfo } from './kv.ts'
import { viewOf } from './secret-path.ts'
import { LoadedSecrets, useSecretsResource } from './states.tsx'

/** Engines of the server itself, which have no secrets to browse. */
const SYSTEM_TYPES = new Set(['system', 'identity'])
/** Any path of `sys/mounts/`, to learn whether the token may enable engines. */
const ENABLE_PATH = 'sys/mounts/kv'

const COLUMNS: readonly Column<MountInfo>[] = [
  { title: 'Path', cell: ({ path }) => path, order: ({ path }) => path },
  { title: 'Type', cell: typeText, width: '110px', order: ({ type }) => type },
  { title: 'Description', cell: ({ description }) => description, width: 'minmax(0, 2fr)' },
]

function typeText(mount: MountInfo): string {
  return mount.type === 'kv' ? `kv, version ${kvMountOf(mount).version}` : mount.type
}

function linkOf({ path, type }: MountInfo): string {
  const view = viewOfType(type)
  if (view === 'cloud') return pathOf('cloud', trimSlashes(path))
  return view === undefined ? viewOf(path, '') : `/${view}`
}

export default function MountsView() {
  const resource = useSecretsResource(listMounts, [])
  const may = useCapabilities([ENABLE_PATH])
  const [isEnabling, setEnabling] = useState(false)
  const mayEnable = may(ENABLE_PATH, 'update')
  const enable = () => setEnabling(true)
  useKeys('Secrets', mayEnable ? [{ keys: 'n', label: 'Enable a KV engine', run: enable }] : [])
  useCommands(mayEnable ? [{ title: 'Enable a KV engine', group: 'Secrets', run: enable }] : [], [mayEnable])
  const wanted = address.value.query.get('q') ?? ''
  const rows = useMemo(() => matching(resource.data ?? [], wanted), [resource.data, wanted])
  return (
    <View
      title="Secrets"
      isFull
      actions={
        mayEnable && (
          <Button kind="primary" onClick={enable} title="n">
            Enable a KV engine
          </Button>
        )
      }
    >
      <Field
        label="Search engines"
        isLabelHidden
        placeholder="Search by path, type or description"
        isSearch
        value={wanted}
        onInput={(q) => setQuery({ q })}
      />
      <LoadedSecrets resource={resource}>
        {() =>
          rows.length > 0 ? (
            <DataTable label="Secrets engines" rows={rows} columns={COLUMNS} linkOf={linkOf} />
          ) : (
            <NoMounts isFiltered={wanted !== ''} />
          )
        }
      </LoadedSecrets>
      {isEnabling && <EnableDialog close={() => setEnabling(false)} reload={resource.reload} />}
    </View>
  )
}

function matching(mounts: readonly MountInfo[], wanted: string): readonly MountInfo[] {
  const text = wanted.toLowerCase()
  return mounts
    .filter(({ type }) => !SYSTEM_TYPES.has(type))
    .filter((mount) => `${mount.path} ${typeText(mount)} ${mount.description}`.toLowerCase().includes(text))
}

function NoMounts({ isFiltered }: { readonly isFiltered: boolean }) {
  if (isFiltered) return <Empty title="No engine matches the search." />
  if (token.value === undefined) return <LoginNeeded what="secrets" />
  return (
    <Empty title="Your token can use no secrets engine.">
      <p>Ask for a policy with rules for the paths that you need, or log in with another token.</p>
    </Empty>
  )
}

interface EnableDialogProps {
  readonly close: () => void
  readonly reload: () => void
}

function EnableDialog({ close, reload }: EnableDialogProps) {
  const [path, setPath] = useState('')
  const [description, setDescription] = useState('')
  const [version, setVersion] = useState('2')
  const [error, setError] = useState<Error>()
  const [isBusy, setBusy] = useState(false)
  const enable = async () => {
    const mount = path.trim().replaceAll(/^\/+|\/+$/g, '')
    const body = { type: 'kv', description, options: { version } }
    await secrets(`sys/mounts/${mount}`, { method: 'POST', body })
    showSuccess(`Enabled the KV engine at ${mount}/.`)
    reload()
    close()
    navigate(viewOf(mount, ''))
  }
  const submit = (event: Event) => {
    event.preventDefault()
    setBusy(true)
    setError(undefined)
    enable().catch((failure: unknown) => {
      setError(failure instanceof Error ? failure : new Error(String(failure)))
      setBusy(false)
    })
  }
  return (
    <Dialog title="Enable a KV engine" close={close}>
      <form class="form" onSubmit={submit}>
        <Field
          label="Path"
          value={path}
          onInput={setPath}
          isRequired
          hint="For example team/app. Secrets are stored below this path."
        />
        <fieldset class="choices">
          <legend>Version</legend>
          {['2', '1'].map((each) => (
            <label key={each}>
              <input type="radio" name="version" checked={version === each} onChange={() => setVersion(each)} />
              {each === '2' ? '2: keeps earlier versions' : '1: keeps the last value only'}
            </label>
          ))}
        </fieldset>
        <Field label="Description" value={description} onInput={setDescription} />
        {error && <ErrorText error={error} />}
        <div class="form-actions">
          <Button type="submit" kind="primary" isBusy={isBusy}>
            Enable
          </Button>
        </div>
      </form>
    </Dialog>
  )
}
