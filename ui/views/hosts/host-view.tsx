/** One host: facts, plots, allocations, metadata, attributes and events. */
import { useState } from 'preact/hooks'
import { ApiError, read } from '../../api/client.ts'
import type { ServerNode } from '../../api/types.ts'
import { useKeys } from '../../app/keys.ts'
import { address, navigate, pathOf } from '../../app/location.ts'
import { useCommands } from '../../app/palette.tsx'
import { useResource } from '../../app/resource.ts'
import type { ViewProps } from '../../app/view-props.ts'
import { mayChangeHosts } from '../../app/session.ts'
import { Button } from '../../components/button.tsx'
import { ErrorText, Failure, Loaded } from '../../components/states.tsx'
import { Tabs } from '../../components/tabs.tsx'
import { View } from '../../components/view.tsx'
import { visibleText } from '../../app/invisible-characters.ts'
import { CollectDialog } from './collect-dialog.tsx'
import { isEnded } from './gc-rules.ts'
import { HostAllocations } from './host-allocations.tsx'
import { type Host, readHost } from './host-api.ts'
import { HostAttributes, HostEvents, HostFacts } from './host-facts.tsx'
import { HostPlots } from './host-plots.tsx'
import { MetadataEditor } from './metadata-editor.tsx'
import { useNamespacePermissions } from './namespace-permissions.ts'
import { TaskPlots } from './task-plots.tsx'

const RELOAD_MS = 5000
const RELOAD_ALLOCATIONS_MS = 10_000
const TABS = [
  ['', 'Overview'],
  ['metadata', 'Metadata'],
  ['attributes', 'Attributes'],
  ['events', 'Events'],
] as const

const PARENTS = [{ title: 'Hosts', to: '/hosts' }]

export default function HostView({ params: { node: nodeId = '' } }: ViewProps) {
  const node = useResource((signal) => readHost(nodeId, signal), [nodeId], { everyMs: RELOAD_MS })
  if (node.data) {
    return (
      <>
        {node.error && <ErrorText error={node.error} />}
        <KnownHost node={node.data} />
      </>
    )
  }
  const isUnknown = node.error instanceof ApiError && [400, 404].includes(node.error.status)
  return (
    <View title={nodeId} parents={PARENTS}>
      {isUnknown && node.error ? (
        <Failure error={node.error} hint="The host may have been removed. The list shows all known hosts." />
      ) : (
        <Loaded resource={node}>{() => null}</Loaded>
      )}
    </View>
  )
}

function tabPath(nodeId: string, tab: string): string {
  return pathOf('hosts', nodeId) + (tab === '' ? '' : `?tab=${tab}`)
}

function KnownHost({ node }: { readonly node: Host }) {
  const nodeId = node.ID
  const tab = address.value.query.get('tab') ?? ''
  const [collecting, setCollecting] = useState<{ readonly only?: string }>()
  const allocations = useResource(
    (signal) => read('/v1/node/{id}/allocations', { params: { id: nodeId }, signal }),
    [nodeId],
    { everyMs: RELOAD_ALLOCATIONS_MS },
  )
  const found = allocations.data ?? []
  const may = useNamespacePermissions(found.map(({ Namespace }) => Namespace))
  const isReady = node.Status === 'ready'
  const mayCollect =
    isReady &&
    (mayChangeHosts.value || found.some((each) => isEnded(each) && may(each.Namespace, 'submit-job', 'gc-allocation')))
  const openTab = (index: number) => navigate(tabPath(nodeId, TABS[index]?.[0] ?? ''))
  useKeys('Host', [
    ...TABS.map(([, title], index) => ({
      keys: String(index + 1),
      label: `Show ${title.toLowerCase()}`,
      run: () => openTab(index),
    })),
    ...(mayCollect ? [{ keys: 'c', label: 'Preview a garbage collection', run: () => setCollecting({}) }] : []),
  ])
  useCommands(
    mayCollect
      ? [{ title: 'Preview a garbage collection of this host', group: 'Host', run: () => setCollecting({}) }]
      : [],
    [mayCollect],
  )
  return (
    <View
      title={visibleText(node.Name)}
      parents={PARENTS}
      actions={mayCollect && <Button onClick={() => setCollecting({})}>Collect garbage…</Button>}
    >
      <HostFacts node={node} />
      <Tabs
        label="Parts of the host"
        tabs={TABS.map(([name, title]) => ({ title, to: tabPath(nodeId, name), isCurrent: tab === name }))}
      />
      {tab === 'metadata' && (isReady ? <MetadataEditor nodeId={nodeId} /> : <NotReady node={node} />)}
      {tab === 'attributes' && <HostAttributes node={node} />}
      {tab === 'events' && <HostEvents node={node} />}
      {tab === '' && (
        <>
          <section class="card" aria-label="Use">
            {isReady ? <HostPlots nodeId={nodeId} /> : <NotReady node={node} />}
          </section>
          <section class="section">
            <h2>Allocations</h2>
            <Loaded resource={allocations}>
              {(data) => (
                <HostAllocations
                  allocations={data}
                  may={may}
                  collect={isReady ? (only) => setCollecting({ only }) : undefined}
                />
              )}
            </Loaded>
          </section>
          {isReady && (
            <section class="section">
              <h2>Tasks</h2>
              <TaskPlots allocations={found.filter(({ Namespace }) => may(Namespace, 'read-job'))} />
            </section>
          )}
        </>
      )}
      {collecting && (
        <CollectDialog
          nodeId={nodeId}
          only={collecting.only}
          close={() => setCollecting(undefined)}
          onCollected={allocations.reload}
        />
      )}
    </View>
  )
}

function NotReady({ node }: { readonly node: ServerNode }) {
  return (
    <p class="muted">
      The host is {node.Status}, so it cannot be asked. Start its agent, or check its connection to NATS; the state on
      this page is the last one that it reported.
    </p>
  )
}
