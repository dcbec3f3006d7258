/** A secret: its values, versions, comparison, settings and editor, as parts with paths of their own. */
import { useRef, useState } from 'preact/hooks'
import { type Capability, useCapabilities } from '../../../api/capabilities.ts'
import { ApiError } from '../../../api/client.ts'
import { useKeys } from '../../../app/keys.ts'
import { address, navigate } from '../../../app/location.ts'
import { useCommands } from '../../../app/palette.tsx'
import { isSealed } from '../../../app/session.ts'
import { Button } from '../../../components/button.tsx'
import { Tabs } from '../../../components/tabs.tsx'
import { View } from '../../../components/view.tsx'
import { ChangeBanner, type NewsItem } from './change-banner.tsx'
import { isInDraft, type SecretChange, useChanges, usePolling } from './changes.ts'
import { CompareTab } from './compare-tab.tsx'
import { EditorTab } from './editor-tab.tsx'
import { parentsOf } from '../folder-view.tsx'
import { readMetadata } from '../kv.ts'
import { stateOf } from './versions.ts'
import { baseName, type KvArea, type KvMount, kvPath, viewOf } from '../secret-path.ts'
import { RemovalDialog } from './removal.tsx'
import type { Removal, SecretContext } from './secret-context.ts'
import { SealedState } from '../../../components/states.tsx'
import { useSecretsResource } from '../states.tsx'
import { SettingsTab } from './settings-tab.tsx'
import { ValuesTab } from './values-tab.tsx'
import { VersionsTab } from './versions-tab.tsx'

interface SecretDetailsProps {
  readonly mount: KvMount
  readonly name: string
}

const AREAS: readonly KvArea[] = ['data', 'metadata', 'delete', 'undelete', 'destroy', 'watch']

async function optionalMetadata({ mount, name }: SecretDetailsProps, signal: AbortSignal) {
  if (mount.version === 1) return undefined
  try {
    return await readMetadata(mount, name, signal)
  } catch (error) {
    // The parts that need it say so.
    if (error instanceof ApiError && error.isForbidden) return undefined
    throw error
  }
}

export function SecretDetails({ mount, name }: SecretDetailsProps) {
  const { query } = address.value
  const tab = query.get('tab') ?? 'values'
  const [revision, setRevision] = useState(0)
  const [news, setNews] = useState<NewsItem>()
  const [draftBase, setDraftBase] = useState<number>()
  const [removal, setRemoval] = useState<Removal>()
  const expected = useRef<SecretChange['change'][]>([])
  const check = useCapabilities(AREAS.map((area) => kvPath(mount, area, name)))
  const may = (area: KvArea, capability: Capability) => check(kvPath(mount, area, name), capability)
  const resource = useSecretsResource(
    (signal) => optionalMetadata({ mount, name }, signal),
    [mount.path, mount.version, name, revision],
  )
  const metadata = useLast(resource.data, isSealed.value)
  const reload = () => {
    setNews(undefined)
    setRevision((count) => count + 1)
  }
  const isRefused = useChanges(mount, name, may('watch', 'read'), (change) => {
    if (change !== 'reset' && change.path !== name) return
    const own = change === 'reset' ? -1 : expected.current.indexOf(change.change)
    if (own >= 0) expected.current.splice(own, 1)
    else setNews({ change, atMs: Date.now() })
  })
  const isPolled = metadata !== undefined && check.isKnown && (isRefused || !may('watch', 'read'))
  usePolling(isPolled, async () => {
    const found = await readMetadata(mount, name)
    const version = found?.current_version ?? 0
    if (version > (metadata?.current_version ?? 0)) {
      setNews({ change: { path: name, change: 'write', version }, atMs: Date.parse(found?.updated_time ?? '') })
    }
  })
  const act: SecretContext['act'] = async (change, run) => {
    if (may('watch', 'read')) expected.current.push(change)
    try {
      await run()
    } catch (error) {
      const index = expected.current.indexOf(change)
      if (index >= 0) expected.current.splice(index, 1)
      throw error
    }
  }
  const context: SecretContext = {
    mount,
    name,
    may,
    isMayKnown: check.isKnown,
    metadata,
    revision,
    reload,
    act,
    edits: setDraftBase,
    remove: setRemoval,
  }
  const view = viewOf(mount.path, name)
  const tabs = tabsOf(context)
  const newest = metadata?.versions[0]
  const isActive = newest !== undefined && stateOf(newest) === 'active'
  const mayWrite = may('data', 'update') && tab !== 'edit'
  const mayDelete = mount.version === 2 ? isActive && may('data', 'delete') : may('data', 'delete')
  const mayRemove = mount.version === 2 && metadata !== undefined && may('metadata', 'delete')
  const edit = () => navigate(`${view}?tab=edit`)
  const remove = () => setRemoval({ kind: mount.version === 1 ? 'all' : 'current' })
  useKeys('Secret', [
    ...(mayWrite ? [{ keys: 'e', label: 'Edit the secret', run: edit }] : []),
    // Without the number of versions, which is not known at first.
    ...tabs.map(({ title, to }, index) => ({
      keys: String(index + 1),
      label: title.replace(/ \(.*/, ''),
      run: () => navigate(to),
    })),
  ])
  useCommands(
    [
      ...(mayWrite ? [{ title: 'Edit the secret', group: name, run: edit }] : []),
      ...tabs.map(({ title, to }) => ({ title: `Show ${title.toLowerCase()}`, group: name, run: () => navigate(to) })),
    ],
    [name, mayWrite, tabs.length],
  )
  return (
    <View
      title={baseName(name)}
      parents={parentsOf(mount, name)}
      actions={
        <>
          {mayWrite && (
            <Button kind="primary" onClick={edit} title="e">
              Edit
            </Button>
          )}
          {mayDelete && tab !== 'edit' && (
            <Button onClick={remove} kind={mount.version === 1 ? 'danger' : undefined}>
              Delete
            </Button>
          )}
          {mayRemove && tab !== 'edit' && (
            <Button kind="danger" onClick={() => setRemoval({ kind: 'all' })}>
              Delete all versions
            </Button>
          )}
        </>
      }
    >
      <Tabs
        label="Parts of the secret"
        tabs={tabs.map(({ id, title, to }) => ({ title, to, isCurrent: id === tab }))}
      />
      {news && !(tab === 'edit' && isInDraft(news.change, draftBase)) && (
        <ChangeBanner news={news} reload={reload} isEditing={tab === 'edit'} />
      )}
      <CurrentTab key={tab === 'edit' ? tab : `${tab}/${revision}`} tab={tab} context={context} />
      {removal && <RemovalDialog context={context} removal={removal} close={() => setRemoval(undefined)} />}
    </View>
  )
}

/** The last defined value, so that a reload does not hide it; undefined while the core is sealed. */
function useLast<T>(value: T | undefined, isCleared: boolean): T | undefined {
  const last = useRef<T | undefined>(undefined)
  if (value !== undefined) last.current = value
  if (isCleared) last.current = undefined
  return last.current
}

function tabsOf({ metadata, mount, name }: SecretContext) {
  const view = viewOf(mount.path, name)
  const tab = (id: string, title: string) => ({ id, title, to: id === 'values' ? view : `${view}?tab=${id}` })
  if (mount.version === 1) return [tab('values', 'Values')]
  const count = metadata === undefined ? '' : ` (${metadata.versions.length})`
  return [
    tab('values', 'Values'),
    tab('versions', `Versions${count}`),
    tab('compare', 'Compare'),
    tab('settings', 'Settings'),
  ]
}

function CurrentTab({ context, tab }: { readonly context: SecretContext; readonly tab: string }) {
  // The editor stays: its text would be lost.
  if (tab === 'edit') return <EditorTab context={context} />
  if (isSealed.value) return <SealedState />
  if (tab === 'versions') return <VersionsTab context={context} />
  if (tab === 'compare') return <CompareTab context={context} />
  if (tab === 'settings') return <SettingsTab context={context} />
  return <ValuesTab context={context} />
}
