/**
 * The secondaries of a primary: issues their certificates, identifies callers by the fingerprint of their certificate, and
 * remembers revoked ones.
 */
import { randomUUID } from 'node:crypto'
import { Refusal } from '../../platform/errors.ts'
import { type Bundle, sealBundle } from '../link/bundle.ts'
import { fingerprintOf, makeAuthority, makeIdentity } from '../link/certificates.ts'
import type { Peer } from '../link/link-server.ts'
import { LinkError } from '../link/link.ts'
import { PROTOCOL, type RequestOf } from '../link/messages.ts'
import type { ReplicationContext } from '../state/replication-context.ts'
import type { KnownSecondary, ReplicationState, ReplicationRecord } from '../state/replication-state.ts'

const AUTHORITY_KEY = 'replication/authority'
const REVOKED_KEPT = 1024
const SECONDARIES_MAX = 64

export interface RegistryContext extends Pick<ReplicationContext, 'secrets' | 'addresses' | 'version'> {
  readonly state: ReplicationState
  readonly nowMs: () => number
}

export class SecondaryRegistry {
  readonly #context: RegistryContext

  constructor(context: RegistryContext) {
    this.#context = context
  }

  get #state(): ReplicationRecord {
    return this.#context.state.now
  }

  /** Rejects while the core is sealed. */
  async makeAuthority(): Promise<void> {
    const { secrets, nowMs, state } = this.#context
    const { setId } = this.#state
    const authority = await makeAuthority(setId, nowMs())
    const identity = await makeIdentity(authority, 'server', setId, nowMs())
    const protectedKey = Buffer.from(secrets.protect(AUTHORITY_KEY, authority.key))
    await state.change(() => ({
      authority: {
        certificate: authority.certificate,
        protectedKey,
        serverCertificate: identity.certificate,
        serverKey: identity.key,
      },
    }))
  }

  /** Throws a Refusal. */
  async issue(o: { id: string; ttlMs: number; publicKey?: string | undefined }): Promise<Bundle | string> {
    const { secrets, nowMs, state } = this.#context
    this.checkIssuable(o.id)
    const { authority, setId } = this.#state
    if (!authority) throw new Refusal('unavailable', 'this primary has no certificate authority yet')
    const key = secrets.reveal(AUTHORITY_KEY, authority.protectedKey)
    const identity = await makeIdentity({ certificate: authority.certificate, key }, 'client', setId, nowMs())
    const [address, ...others] = this.clusterAddresses()
    const bundle: Bundle = {
      version: 1,
      set_id: setId,
      id: o.id,
      cluster_addr: address,
      ...(others.length > 0 && { cluster_addrs: others }),
      api_addr: this.#context.addresses().api,
      ca_cert: authority.certificate,
      client_cert: identity.certificate,
      client_key: identity.key,
      expires_at_ms: nowMs() + o.ttlMs,
      nonce: randomUUID(),
    }
    const sealed = o.publicKey === undefined ? undefined : sealBundle(bundle, o.publicKey)
    const secondary: KnownSecondary = {
      id: o.id,
      status: 'pending',
      fingerprint: fingerprintOf(identity.certificate),
      nonce: bundle.nonce,
      expiresAtMs: bundle.expires_at_ms,
      api: '',
      cluster: '',
      wasWhole: false,
    }
    await state.change(({ secondaries }) => {
      this.checkIssuable(o.id)
      return { secondaries: [...secondaries.filter(({ id }) => id !== o.id), secondary] }
    })
    return sealed ?? bundle
  }

  /** Throws a Refusal for an ID that cannot be issued. */
  checkIssuable(id: string): void {
    const known = this.#state.secondaries.find((one) => one.id === id)
    if (known?.status === 'active') {
      throw new Refusal('invalid_request', `secondary with ID "${id}" already exists; revoke it first`)
    }
    if (!known && this.#state.secondaries.length >= SECONDARIES_MAX) {
      throw new Refusal(
        'invalid_request',
        `this primary has ${SECONDARIES_MAX} secondaries, the limit: revoke one first`,
      )
    }
  }

  /** Addresses for activations and heartbeats; at least one. */
  clusterAddresses(): readonly [string, ...string[]] {
    const { primaryClusterAddr: given } = this.#state
    const { cluster, others = [] } = this.#context.addresses()
    return given === '' ? [cluster, ...others] : [given]
  }

  /** Resolves with the fingerprint of its certificate. Throws a Refusal for an ID that is not known. */
  async revoke(id: string): Promise<string> {
    const known = this.#state.secondaries.find((one) => one.id === id)
    if (!known)
      throw new Refusal('invalid_request', `no secondary with ID "${id}": see known_secondaries in the status`)
    await this.#context.state.change(({ secondaries, revoked }) => ({
      secondaries: secondaries.filter((one) => one.id !== id),
      revoked: [...revoked, known.fingerprint].slice(-REVOKED_KEPT),
    }))
    return known.fingerprint
  }

  /** Throws a LinkError for a peer that is not, or no longer, a secondary of this primary. */
  knownPeer(peer: Peer): KnownSecondary {
    const { revoked, secondaries } = this.#state
    const known = secondaries.find(({ fingerprint }) => fingerprint === peer.fingerprint)
    if (known) return known
    if (revoked.includes(peer.fingerprint))
      throw new LinkError('revoked', 'this secondary was revoked: issue a new activation')
    throw new LinkError(
      'unknown',
      'this certificate was replaced by a newer activation, or was issued by an earlier primary',
    )
  }

  /** As `knownPeer`, and throws for a secondary that has not joined: before that its certificate allows only `Join` and `Ping`. */
  joinedPeer(peer: Peer): KnownSecondary {
    const known = this.knownPeer(peer)
    if (known.status !== 'active') throw new LinkError('unknown', 'the secondary has not joined yet')
    return known
  }

  /** As `joinedPeer`, and throws if this primary was replaced. */
  authorize(peer: Peer): KnownSecondary {
    const known = this.joinedPeer(peer)
    const error = this.deposedError
    if (error) throw error
    return known
  }

  /** Error for secondaries of a replaced primary; undefined while it is not replaced. */
  get deposedError(): LinkError | undefined {
    const { deposed } = this.#state
    if (!deposed) return undefined
    const where = deposed.api || deposed.addresses.join(', ')
    return new LinkError('deposed', `this cluster was replaced as primary in epoch ${deposed.epoch} by ${where}`)
  }

  /** Throws a LinkError if the protocol, version or activation does not allow to join. */
  checkJoin(known: KnownSecondary, request: RequestOf<'Join'>): void {
    const { version, nowMs } = this.#context
    if (request.protocol !== PROTOCOL) {
      throw new LinkError('version', `the primary uses link protocol ${PROTOCOL}, the secondary ${request.protocol}`)
    }
    if (isOlder(request.version, version)) {
      throw new LinkError(
        'version',
        `the primary has version ${version}, the secondary older version ${request.version}: upgrade the secondary first`,
      )
    }
    if (known.nonce !== request.nonce) throw new LinkError('used', 'a newer activation was issued for this ID')
    if (known.status === 'pending' && nowMs() > known.expiresAtMs) {
      throw new LinkError('expired', 'the activation has expired: issue a new one on the primary')
    }
  }
}

/** Compares `major.minor.patch`; a malformed version counts as the oldest. */
function isOlder(one: string, other: string): boolean {
  const [a, b] = [numbersOf(one), numbersOf(other)]
  for (const [at, number] of a.entries()) {
    const difference = number - (b[at] ?? 0)
    if (difference !== 0) return difference < 0
  }
  return false
}

function numbersOf(version: string): number[] {
  const match = /^v?(\d+)\.(\d+)\.(\d+)/.exec(version)
  return [1, 2, 3].map((at) => Number(match?.[at] ?? 0))
}
