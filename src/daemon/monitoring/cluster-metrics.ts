/** Metrics of the cluster module: NATS connection, calls, nodes. */
import { type AnyFamily, type Family, single } from '../../telemetry/metric.ts'
import { hasLeft } from '../../cluster/roster/node-status.ts'
import type { Cluster } from '../modules/cluster.ts'

/** Limit of series: most of 10,000 nodes are near zero. */
const SKEWS_MAX = 1000

/** `hasNats`: false for a single process without NATS. */
export function clusterFamilies(cluster: Cluster, hasNats: boolean): AnyFamily[] {
  const { connection, cores, roster } = cluster
  return [
    ...(hasNats
      ? [
          single('gauge', 'outpost.nats.connected', '1 if connected to NATS, else 0.', Number(connection.isConnected)),
          single('counter', 'outpost.nats.reconnects', 'Reconnections to NATS.', connection.reconnects),
          serverClockFamily(cluster),
        ]
      : []),
    {
      name: 'outpost.calls_in_flight',
      kind: 'gauge',
      help: 'Calls between processes in progress, forwarded or served.',
      points: Object.entries(cluster.callsInFlight).map(([direction, value]) => ({ labels: { direction }, value })),
    },
    single('counter', 'outpost.forwarded_bytes', 'Response bytes of forwarded calls.', cluster.forwardedBytes),
    ...(cores
      ? [
          single(
            'gauge',
            'outpost.secrets.cores_in_region',
            'Initialized secrets cores with different cluster IDs in this region; more than 1 is an error.',
            cores.count,
          ),
        ]
      : []),
    ...(roster ? rosterFamilies(cluster, roster) : []),
  ]
}

function serverClockFamily({ serverClocks }: Cluster): Family {
  return {
    name: 'outpost.server_clock_skew_seconds',
    kind: 'gauge',
    help: 'Clock of this host minus the clock of a server, as of its last announcement.',
    points: (serverClocks?.all ?? []).map(({ name, skewMs }) => ({ labels: { server: name }, value: skewMs / 1000 })),
  }
}

function rosterFamilies(cluster: Cluster, roster: NonNullable<Cluster['roster']>): Family[] {
  const nodes: Record<string, number> = { ready: 0, down: 0, left: 0, disconnected: 0 }
  for (const record of roster.nodes()) {
    const status = hasLeft(record) ? 'left' : record.status
    nodes[status] = (nodes[status] ?? 0) + 1
  }
  return [
    {
      name: 'outpost.nodes',
      kind: 'gauge',
      help: 'Known nodes by status; left: stopped and not restarted, removed after a day.',
      points: Object.entries(nodes).map(([status, value]) => ({ labels: { status }, value })),
    },
    {
      name: 'outpost.node_clock_skew_seconds',
      kind: 'gauge',
      help: 'Clock of a node minus the clock of this server, for the 1,000 nodes with the largest difference.',
      points: roster.clocks.largest(SKEWS_MAX).map(({ id, name, skewMs }) => ({
        labels: { node_id: id, name },
        value: skewMs / 1000,
      })),
    },
    single('gauge', 'outpost.allocations', 'Known allocations of all nodes.', roster.allocationCount),
    {
      name: 'outpost.node_messages',
      kind: 'counter',
      help: 'Received heartbeats and states of nodes, by result.',
      points: Object.entries(cluster.nodeMessages).map(([result, value]) => ({ labels: { result }, value })),
    },
    {
      name: 'outpost.roster_refused',
      kind: 'counter',
      help: 'Refused messages of nodes, and allocations claimed by a node that does not own them, by reason.',
      points: Object.entries(roster.rejections.counts).map(([reason, value]) => ({ labels: { reason }, value })),
    },
    single(
      'counter',
      'outpost.node_beats_late',
      'Heartbeats that arrived more than half a period late.',
      roster.lateHeartbeats,
    ),
  ]
}
