/** The parts of a member that need NATS: opened once it responds, and served to the other members. */
import type { NatsConnection } from '@nats-io/transport-node'
import { Fault } from '../platform/errors.ts'
import { serveActiveRows } from './active-rows.ts'
import { serveCopies } from './copy/member-copy.ts'
import type { HaServerOptions } from './ha-options.ts'
import { LeaderPlacement } from './nats-leader-placement.ts'
import { ActiveLease, HaBucket, type MemberState } from './lease/lease.ts'
import { MemberReports } from './member-reports.ts'
import { ReplicaMonitor } from './replica-monitor.ts'
import { StreamFollower } from './stream-follower.ts'
import { CommitStream } from './stream/commit-stream.ts'

export interface OpenParts {
  readonly connection: NatsConnection
  readonly stream: CommitStream
  readonly bucket: HaBucket
  readonly lease: ActiveLease
  readonly follower: StreamFollower
  readonly reports: MemberReports
  readonly placement: LeaderPlacement
  readonly replicas: ReplicaMonitor
}

/** The server that the parts belong to. */
export interface PartsOwner {
  readonly nowMs: () => number
  readonly wallMs: () => number
  readonly state: () => MemberState
  readonly isServing: () => boolean
  readonly isStopped: () => boolean
  readonly warn: (message: string, error: unknown) => void
}

/** Rejects with a Fault for the operator, and with errors of NATS; the connection is then closed. */
export async function openParts(options: HaServerOptions, owner: PartsOwner): Promise<OpenParts> {
  const { connect, logger, region, replicas, serverId, store } = options
  const { isServing, state, wallMs, warn } = owner
  const connection = await connect()
  try {
    const stream = await CommitStream.open(connection, region, replicas)
    const bucket = await HaBucket.open(connection, region, replicas)
    const common = { connection, region, store, stream, bucket, logger, warn }
    const follower = new StreamFollower({ ...common, serverId: () => serverId, wallMs })
    const clocks = { nowMs: owner.nowMs, wallMs, coreMs: () => options.core.nowMs() }
    const lease = new ActiveLease({ bucket, self: () => holderOf(options), ...clocks })
    const reports = new MemberReports({ bucket, stream, self: state, isServing, wallMs, logger, warn })
    const streams = [stream.name, bucket.streamName]
    const placement = new LeaderPlacement({ connection, streams, isActive: isServing, warn })
    const monitor = new ReplicaMonitor({ connection, streams, logger, warn })
    if (owner.isStopped()) throw new Fault('the server is stopping')
    reports.start()
    placement.start()
    monitor.start()
    serveCopies({ connection, region, serverId, store, logger })
    const rows = () => ({ newest: store.position().sequence, visible: store.visibleRow })
    serveActiveRows({ connection, region, serverId, rows, isServing })
    return { connection, stream, bucket, lease, follower, reports, placement, replicas: monitor }
  } catch (error) {
    await connection.close()
    throw error
  }
}

function holderOf({ addresses, name, serverId }: HaServerOptions) {
  const { api, cluster } = addresses()
  return { serverId, name, apiAddress: api, clusterAddress: cluster }
}
