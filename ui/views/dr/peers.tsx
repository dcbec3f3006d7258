import { Badge, formatExact } from '../../components/format.tsx'
import { Facts } from '../../components/core-parts.tsx'
import { type DrStatus, isConnected, type Peer, peersOf, shortDuration, webAddress, entriesText } from './dr-status.ts'
import { nameOf } from './summary.ts'

/** The secondaries by name, or the primary of this secondary. */
export function Peers({ status }: { readonly status: DrStatus }) {
  const peers = peersOf(status)
  const isPrimary = status.mode === 'primary'
  const joined = new Set(peers.map(nameOf))
  const expected = (status.known_secondaries ?? []).filter((id) => !joined.has(id))
  if (peers.length === 0 && expected.length === 0) return null
  return (
    <section class="card">
      <h2>{isPrimary ? 'Secondaries' : 'Primary'}</h2>
      <div class="peers">
        {peers.map((peer) => (
          <PeerCard key={nameOf(peer)} peer={peer} isPrimary={isPrimary} />
        ))}
        {expected.map((id) => (
          <div key={id} class="peer">
            <h3>{id}</h3>
            <p class="muted">
              Not connected: an activation token was issued and not yet used, or the secondary was revoked.
            </p>
          </div>
        ))}
      </div>
    </section>
  )
}

function PeerCard({ isPrimary, peer }: { readonly peer: Peer; readonly isPrimary: boolean }) {
  const page = webAddress(peer.api_address)
  return (
    <div class="peer">
      <h3>
        {nameOf(peer)} <Badge state={isConnected(peer) ? 'active' : 'down'} />
      </h3>
      {!isConnected(peer) && (peer.disconnect_reason ?? '') !== '' && <p class="error">{peer.disconnect_reason}</p>}
      <Facts
        rows={[
          isPrimary && [
            'Lag',
            `${entriesText(peer.lag_entries ?? 0)}, ${shortDuration((peer.lag_seconds ?? 0) * 1000)}`,
          ],
          isPrimary && ['Acknowledged position', peer.last_acknowledged_wal ?? 0],
          ['Last heartbeat', <Heartbeat key="heartbeat" peer={peer} />],
          ['Clock skew', shortDuration(Number(peer.clock_skew_ms))],
          isPrimary && ['Complete copy', peer.is_whole === false ? 'no' : 'yes'],
          isPrimary && isConnected(peer) && ['Unsealed', peer.authenticated === false ? 'no' : 'yes'],
          [
            'API',
            page === undefined ? peer.api_address : <PageLink key="api" page={page} address={peer.api_address} />,
          ],
          ['Cluster address', peer.cluster_address],
        ]}
      />
    </div>
  )
}

function PageLink({ address, page }: { readonly page: string; readonly address: string }) {
  return (
    <a href={page} target="_blank" rel="noopener noreferrer">
      {address}
    </a>
  )
}

function Heartbeat({ peer }: { readonly peer: Peer }) {
  if (peer.last_heartbeat === '') return <span class="muted">none since the start of this server</span>
  // The age is measured by the server: the clock of this machine may differ.
  return (
    <time dateTime={peer.last_heartbeat} title={formatExact(Date.parse(peer.last_heartbeat))}>
      {shortDuration(Number(peer.replication_primary_canary_age_ms))} ago
    </time>
  )
}
