import { useRef, useState } from 'preact/hooks'
import { useResource } from '../../app/resource.ts'
import type { ViewProps } from '../../app/view-props.ts'
import { Time } from '../../components/format.tsx'
import { View } from '../../components/view.tsx'
import { HaPanel, useHa } from '../status/ha-panel.tsx'
import { CoreLoaded, Facts } from '../../components/core-parts.tsx'
import { Activation } from './activation.tsx'
import { Demotion } from './demotion.tsx'
import { Drill } from './drill.tsx'
import { type DrReport, isDemoted, isFenced, isSecondary, peersOf, readReport } from './dr-status.ts'
import { Failover, type Promotion, PromotionResult } from './failover.tsx'
import { LagChart } from './lag-chart.tsx'
import { LagHistory } from './lag-history.ts'
import { Peers } from './peers.tsx'
import { Rejoin } from './rejoin.tsx'
import { drSummary, nameOf } from './summary.ts'
import { Switch } from './switch.tsx'

const POLL_MS = 2000

/** The state of DR replication, and the guided changes of roles. A change of roles needs the page of each server. */
export default function DrView(_props: ViewProps) {
  const resource = useResource(readReport, [], { everyMs: POLL_MS })
  const history = useRef(new LagHistory())
  const [promotion, setPromotion] = useState<Promotion>()
  const report = resource.data
  // Before the chart is rendered; the same report is ignored.
  if (report) history.current.add(report.readAtMs, lagsOf(report))
  return (
    <View title="Replication">
      <CoreLoaded resource={resource}>
        {(data) => (
          <>
            <Overview report={data} />
            {promotion && <PromotionResult promotion={promotion} report={data} />}
            <Peers status={data.status} />
            {peersOf(data.status).length > 0 && (
              <LagChart
                history={history.current}
                revision={history.current.length}
                isPrimary={data.status.mode === 'primary'}
              />
            )}
            <Changes report={data} reload={resource.reload} promoted={setPromotion} />
            <State report={data} />
          </>
        )}
      </CoreLoaded>
      <HaPanel ha={useHa()} />
    </View>
  )
}

function lagsOf({ status }: DrReport): ReadonlyMap<string, number | null> {
  if (status.mode !== 'primary') return new Map([['this server', status.lag_entries ?? null]])
  return new Map(peersOf(status).map((peer) => [nameOf(peer), peer.lag_entries ?? null]))
}

function Overview({ report }: { readonly report: DrReport }) {
  const { kind, text } = drSummary(report)
  return (
    <>
      <p class={`notice notice-${kind} summary`} role="status">
        {text}
      </p>
      {(report.status.warnings ?? []).map((warning) => (
        <p key={warning} class="notice notice-warning">
          Warning: {warning}
        </p>
      ))}
      {(report.status.conflict_report ?? '') !== '' && (
        <p class="notice notice-warning">
          Commits that only this server had are in the file <code>{report.status.conflict_report}</code> of its host.
        </p>
      )}
    </>
  )
}

interface ChangesProps {
  readonly report: DrReport
  readonly reload: () => void
  readonly promoted: (promotion: Promotion) => void
}

/** What may be changed in this mode. */
function Changes({ promoted, reload, report }: ChangesProps) {
  const { status } = report
  if (status.mode === 'disabled') return <Enabling />
  if (isFenced(status)) return <Demotion report={report} reload={reload} />
  if (status.mode === 'primary') {
    return (
      <>
        <Switch report={report} reload={reload} />
        <Activation />
      </>
    )
  }
  if (!isSecondary(status)) return null
  return (
    <>
      {isDemoted(status) && <Rejoin status={status} reload={reload} />}
      <Failover report={report} reload={reload} promoted={promoted} />
      {!isDemoted(status) && <Drill />}
    </>
  )
}

function Enabling() {
  return (
    <section class="card">
      <h2>Enable replication</h2>
      <p>On this server, which becomes the primary:</p>
      <pre class="credentials" tabIndex={0} aria-label="Commands for the primary">
        {'outpost operator dr enable\noutpost operator dr token ID > activation.txt'}
      </pre>
      <p>On the other server, whose data is deleted:</p>
      <pre class="credentials" tabIndex={0} aria-label="Command for the secondary">
        {'outpost operator dr join < activation.txt'}
      </pre>
    </section>
  )
}

function State({ report: { health, readAtMs, status } }: { readonly report: DrReport }) {
  const sync = status.merkle_sync_progress
  return (
    <section class="card">
      <h2>State</h2>
      <Facts
        rows={[
          ['Mode', status.mode],
          status.state !== undefined && ['State', status.state],
          status.secondary_id !== undefined &&
            status.secondary_id !== '' && ['ID of this secondary', status.secondary_id],
          status.position !== undefined && ['Position', status.position],
          status.epoch !== undefined && ['Epoch', status.epoch],
          status.merkle_root !== undefined && ['Hash of all entries', <code key="root">{status.merkle_root}</code>],
          sync && ['Initial sync', `${sync.sync_progress} of ${sync.sync_total_keys} entries`],
          status.sync !== undefined && ['Synchronous replication', status.sync],
          status.primary_cluster_addr !== undefined &&
            status.primary_cluster_addr !== '' && ['Cluster address', status.primary_cluster_addr],
          status.cluster_id !== undefined && ['Replication set', <code key="set">{status.cluster_id}</code>],
          ['Version', health.version],
          ['Read', <Time key="read" at={readAtMs} />],
        ]}
      />
    </section>
  )
}
