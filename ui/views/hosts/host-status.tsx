/** The status of a host. A host that has died is ready until it has missed its heartbeats, so a late one is shown. */
import { Badge, Time } from '../../components/format.tsx'
import type { HostStub } from './host-filter.ts'

type HostStatusProps = Pick<HostStub, 'Status' | 'heartbeatAtMs'>

export function HostStatus({ Status, heartbeatAtMs }: HostStatusProps) {
  if (heartbeatAtMs === undefined) return <Badge state={Status} />
  return (
    <span class="late-status">
      <Badge state={Status} isDoubtful />
      <span class="heartbeat">
        <span class="heartbeat-label">last heartbeat </span>
        <Time at={heartbeatAtMs} />
      </span>
    </span>
  )
}
