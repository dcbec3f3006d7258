import { useCapabilities } from '../../../api/capabilities.ts'
import { secrets } from '../../../api/client.ts'
import { useResource } from '../../../app/resource.ts'

interface Irrevocable {
  readonly lease_count: number
  readonly counts: Readonly<Record<string, number>>
}

const COUNT = 'sys/leases/count'

/** Leases that the server could not revoke, which an operator must handle. Nothing if there are none. */
export function IrrevocableLeases() {
  const may = useCapabilities([COUNT])
  return may(COUNT, 'read') ? <Counted /> : null
}

function Counted() {
  const { data } = useResource(
    async (signal) => (await secrets<Irrevocable>(COUNT, { query: { type: 'irrevocable' }, signal })).data,
    [],
  )
  if (!data || data.lease_count === 0) return null
  const mounts = Object.entries(data.counts).map(([mount, count]) => `${mount}: ${count}`)
  return (
    <p class="notice notice-warning" role="alert">
      {data.lease_count} expired leases could not be revoked ({mounts.join(', ')}). The server retries. Correct the
      cause at the mount, or remove them with <code>outpost lease revoke -prefix -force PREFIX</code>.
    </p>
  )
}
