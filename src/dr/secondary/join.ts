/** Joining a primary: dials its addresses, exchanges protocol, version and position, and runs the checks before data is wiped. */
import { statfs } from 'node:fs/promises'
import { messageOf, Refusal } from '../../platform/errors.ts'
import type { ReplicaStore } from '../../storage/store/replica.ts'
import { LinkClient, LinkError, linkErrorOf } from '../link/link.ts'
import { PROTOCOL, type ResponseOf } from '../link/messages.ts'
import { type Proofs, type ProofSession, statements } from '../link/proofs.ts'
import type { LinkTimings, ReplicationContext } from '../state/replication-context.ts'
import type { KnownUpstream, ReplicationState } from '../state/replication-state.ts'

/** `session`: undefined if the primary, of an older version, sent no nonce. */
export type JoinedPrimary = ResponseOf<'Join'> & { readonly session: ProofSession | undefined }

export interface SecondaryContext extends ReplicationContext {
  readonly state: ReplicationState
  readonly proofs: Proofs
  readonly times: LinkTimings
  readonly nowMs: () => number
}

/** Beyond this, certificates and lease expiry are unreliable. */
const SKEW_MAX_MS = 5 * 60_000
/** Relative to the primary's database: the copy also needs space for its write-ahead log. */
const ROOM_FACTOR = 1.5

type PreflightContext = Pick<ReplicationContext, 'store' | 'version' | 'addresses' | 'dataDir'> & {
  readonly times: LinkTimings
  readonly nowMs: () => number
}

/** Checks before data is wiped: the primary answers and agrees, clocks match, the disk has space. Changes nothing; rejects with a Refusal. */
export async function preflight(upstream: KnownUpstream, context: PreflightContext): Promise<void> {
  const { times, nowMs, dataDir } = context
  const link = await dialFirst(upstream, times.answerMs).catch(failed)
  try {
    const joined = await joinPrimary(link, upstream, context, true).catch(failed)
    const skewMs = Math.abs(nowMs() - joined.atMs)
    if (skewMs > SKEW_MAX_MS) {
      throw new Refusal(
        'invalid_request',
        `the clocks of this cluster and of the primary differ by ${Math.round(skewMs / 1000)} s (limit 300 s): synchronize them first`,
      )
    }
    const { bavail, bsize } = await statfs(dataDir)
    const [free, needed] = [bavail * bsize, joined.bytes * ROOM_FACTOR]
    if (free < needed) {
      throw new Refusal(
        'insufficient_storage',
        `the primary's data needs ${mib(needed)} MiB, the data directory has ${mib(free)} MiB free`,
      )
    }
  } finally {
    link.close()
  }
}

function failed(error: unknown): never {
  throw new Refusal('invalid_request', `the primary refused this cluster: ${messageOf(error)}`)
}

function mib(bytes: number): number {
  return Math.ceil(bytes / 2 ** 20)
}

/**
 * Dials all addresses at once; resolves to the first that answers, the others are closed. In an HA cluster only the active server answers, and
 * the host of another one may not respond at all. Rejects with a LinkError.
 */
export async function dialFirst(upstream: KnownUpstream, answerMs: number, signal?: AbortSignal): Promise<LinkClient> {
  const dials = [...new Set([upstream.address, ...upstream.known])].map((address) => {
    const given = new AbortController()
    const ended = signal ? AbortSignal.any([signal, given.signal]) : given.signal
    const link = LinkClient.connect(upstream, address, answerMs, ended)
    return { link: link.then((open) => ({ open, given })), given }
  })
  try {
    const first = await Promise.any(dials.map(({ link }) => link))
    for (const { given } of dials) if (given !== first.given) given.abort()
    return first.open
  } catch (error) {
    signal?.throwIfAborted()
    throw linkErrorOf(error instanceof AggregateError ? error.errors[0] : error)
  }
}

/**
 * Pings addresses one at a time; resolves to the first at which the primary of this set answers. Rejects with a Refusal with the
 * reason for each.
 */
export async function firstThatAnswers(
  upstream: KnownUpstream,
  addresses: readonly string[],
  answerMs: number,
): Promise<{ readonly address: string }> {
  const failures: string[] = []
  for (const address of addresses) {
    try {
      // oxlint-disable-next-line no-await-in-loop
      const link = await LinkClient.connect(upstream, address, answerMs)
      try {
        const { setId } = await link.call('Ping', {}, answerMs)
        if (setId === upstream.setId) return { address }
        failures.push(`${address}: it belongs to another replication set`)
      } finally {
        link.close()
      }
    } catch (error) {
      failures.push(`${address}: ${messageOf(error)}`)
    }
  }
  throw new Refusal('invalid_request', `the primary does not respond at any of the addresses: ${failures.join('; ')}`)
}

/** `isTrial`: preflight, nothing changes on the primary. Rejects with a LinkError. */
export async function joinPrimary(
  link: LinkClient,
  upstream: KnownUpstream,
  context: Pick<SecondaryContext, 'store' | 'version' | 'addresses' | 'nowMs' | 'times'> & {
    readonly proofs?: Proofs
    readonly state?: ReplicationState
  },
  isTrial: boolean,
): Promise<JoinedPrimary> {
  const { version, addresses, nowMs, proofs, state, store, times } = context
  const session = await sessionOf(link, upstream.id, times.answerMs)
  const about = { protocol: PROTOCOL, version, isTrial, nonce: upstream.nonce, atMs: nowMs(), ...addresses() }
  // The history of a cluster that will be wiped is irrelevant.
  const epoch = isTrial || !state ? 0 : claimedEpoch(state, store)
  const proof = session && proofs?.of(statements.join(session, epoch))
  const joined = await link.call('Join', { ...about, position: store.position(), epoch, proof }, times.answerMs)
  if (joined.setId !== upstream.setId) throw new LinkError('set', 'the primary belongs to another replication set')
  if (joined.protocol !== PROTOCOL) {
    throw new LinkError('version', `the primary uses link protocol ${joined.protocol}, this secondary ${PROTOCOL}`)
  }
  return { ...joined, session }
}

/** The epoch that this cluster announces: at most the one that it may prove. */
export function claimedEpoch({ now }: Pick<ReplicationState, 'now'>, store: Pick<ReplicaStore, 'epoch'>): number {
  return Math.min(store.epoch, now.provenEpoch ?? 0)
}

/** Undefined if the primary, of an older version, sends no nonce. */
export async function sessionOf(link: LinkClient, id: string, answerMs: number): Promise<ProofSession | undefined> {
  const { nonce } = await link.call('Ping', {}, answerMs)
  return nonce && { id, nonce }
}
