/** What must be true before a cluster gives up what it has: the primary is reached, it agrees, and there is room for its data. */
import { statfs } from 'node:fs/promises'
import { messageOf, Refusal } from '../../platform/errors.ts'
import { LinkClient } from '../link/link.ts'
import type { ReplicationParts, LinkTimings } from '../state/parts.ts'
import { joinPrimary } from './secondary.ts'
import type { KnownUpstream } from '../state/state.ts'

/** Certificates and expiries of leases mean little beyond this. */
const SKEW_MAX_MS = 5 * 60_000
/** Of the primary's database: a copy has its write-ahead log beside it. */
const ROOM_FACTOR = 1.5

type PreflightParts = Pick<ReplicationParts, 'store' | 'version' | 'addresses' | 'dataDir'> & {
  readonly times: LinkTimings
  readonly nowMs: () => number
}

/** Rejects with a Refusal that says which of it is not so. Nothing has changed on either side. */
export async function preflight(upstream: KnownUpstream, parts: PreflightParts): Promise<void> {
  const { times, nowMs, dataDir } = parts
  const link = await LinkClient.connect(upstream, upstream.address, times.answerMs).catch(failed)
  try {
    const joined = await joinPrimary(link, upstream, parts, true).catch(failed)
    const skewMs = Math.abs(nowMs() - joined.atMs)
    if (skewMs > SKEW_MAX_MS) {
      throw new Refusal(
        'invalid_request',
        `the clocks of this cluster and of the primary differ by ${Math.round(skewMs / 1000)} s: set them first`,
      )
    }
    const { bavail, bsize } = await statfs(dataDir)
    const [free, needed] = [bavail * bsize, joined.bytes * ROOM_FACTOR]
    if (free < needed) {
      throw new Refusal(
        'insufficient_storage',
        `the data of the primary needs ${mib(needed)} MiB, and ${mib(free)} MiB are free in the data directory`,
      )
    }
  } finally {
    link.close()
  }
}

function failed(error: unknown): never {
  throw new Refusal('invalid_request', `the primary does not take this cluster: ${messageOf(error)}`)
}

function mib(bytes: number): number {
  return Math.ceil(bytes / 2 ** 20)
}
