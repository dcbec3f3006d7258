/** The figures of a process's part in the cluster: its connection, the calls that it hands on and serves, and its nodes. */
import { type AnyFamily, type Family, single } from '../telemetry/metric.ts'
import type { Cluster } from './cluster.ts'

/** Of 10,000 nodes a scrape would carry as many series, most of them near zero. */
const SKEWS_MAX = 1000

/** `hasNats`: false where everything happens in this process and there is no connection to lose. */
export function clusterFamilies(cluster: Cluster, hasNats: boolean): AnyFamily[] {
  const { connection, cores, roster } = cluster
  return [
    ...(hasNats
      ? [
          single(
            'gauge',
            'outpost.nats.connected',
            '1 while this process is connected to NATS, else 0.',
            Number(connection.isConnected),
          ),
          single(
            'counter',
            'outpost.nats.reconnects',
            'Connections to NATS that were made again.',
            connection.reconnects,
          ),
        ]
      : []),
    {
      name: 'outpost.calls_in_flight',
      kind: 'gauge',
      help: 'Calls between processes under way: forwarded to others, or served for others.',
      points: Object.entries(cluster.callsInFlight).map(([direction, value]) => ({ labels: { direction }, value })),
    },
    single(
      'counter',
      'outpost.forwarded_bytes',
      'Bytes of answers that other processes gave to forwarded calls.',
      cluster.forwardedBytes,
    ),
    ...(cores
      ? [
          single(
            'gauge',
            'outpost.secrets.cores_in_region',
            'Initialised secrets cores with different cluster IDs in this region: 1 is right.',
            cores.count,
          ),
        ]
      : []),
    ...(roster ? rosterFamilies(cluster, roster) : []),
  ]
}

function rosterFamilies(cluster: Cluster, roster: NonNullable<Cluster['roster']>): Family[] {
  const nodes: Record<string, number> = { ready: 0, down: 0, disconnected: 0 }
  for (const { status } of roster.nodes()) nodes[status] = (nodes[status] ?? 0) + 1
  return [
    {
      name: 'outpost.nodes',
      kind: 'gauge',
      help: 'Nodes that this server knows, by status.',
      points: Object.entries(nodes).map(([status, value]) => ({ labels: { status }, value })),
    },
    {
      name: 'outpost.node_clock_skew_seconds',
      kind: 'gauge',
      help: 'Clock of a node minus the clock of this server, for the 1,000 nodes with the largest difference.',
      points: roster.clocks.largest(SKEWS_MAX).map(({ name, nodeId, skewMs }) => ({
        labels: { node_id: nodeId, name },
        value: skewMs / 1000,
      })),
    },
    single('gauge', 'outpost.allocations', 'Allocations that this server knows, of all nodes.', roster.allocationCount),
    {
      name: 'outpost.node_messages',
      kind: 'counter',
      help: 'Beats and states of nodes that this server has heard, by what became of them.',
      points: Object.entries(cluster.nodeMessages).map(([result, value]) => ({ labels: { result }, value })),
    },
    {
      name: 'outpost.roster_refused',
      kind: 'counter',
      help: 'Messages of nodes that were refused, and allocations claimed by a node that does not own them, by reason.',
      points: Object.entries(roster.rejections.counts).map(([reason, value]) => ({ labels: { reason }, value })),
    },
    single(
      'counter',
      'outpost.node_beats_late',
      'Beats of nodes that came more than half a period late.',
      roster.lateHeartbeats,
    ),
  ]
}
