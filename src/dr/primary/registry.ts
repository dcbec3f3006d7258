/**
 * The secondaries that a primary knows: it certifies them, judges by the fingerprint of a certificate who calls, and remembers those
 * that were revoked.
 */
import { randomUUID } from 'node:crypto'
import { Refusal } from '../../platform/errors.ts'
import { type Bundle, sealBundle } from '../link/bundle.ts'
import { fingerprintOf, makeAuthority, makeIdentity } from '../link/certificates.ts'
import { LinkError } from '../link/link.ts'
import type { Peer } from '../link/link-server.ts'
import { PROTOCOL, type RequestOf } from '../link/messages.ts'
import type { ReplicationParts } from '../state/parts.ts'
import type { KnownSecondary, ReplicationState, State } from '../state/state.ts'
import { isOlder } from '../link/version.ts'

const AUTHORITY_KEY = 'replication/authority'
const REVOKED_KEPT = 1024
const SECONDARIES_MAX = 64

export interface RegistryParts extends Pick<ReplicationParts, 'secrets' | 'addresses' | 'version'> {
  readonly state: ReplicationState
  readonly nowMs: () => number
}

export class Registry {
  readonly #parts: RegistryParts

  constructor(parts: RegistryParts) {
    this.#parts = parts
  }

  get #state(): State {
    return this.#parts.state.now
  }

  /** Rejects while the core is sealed. */
  async makeAuthority(): Promise<void> {
    const { secrets, nowMs, state } = this.#parts
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
    const { secrets, nowMs, state } = this.#parts
    this.check(o.id)
    const { authority, setId } = this.#state
    if (!authority) throw new Refusal('unavailable', 'this primary has no authority for certificates yet')
    const key = secrets.reveal(AUTHORITY_KEY, authority.protectedKey)
    const identity = await makeIdentity({ certificate: authority.certificate, key }, 'client', setId, nowMs())
    const bundle: Bundle = {
      version: 1,
      set_id: setId,
      id: o.id,
      cluster_addr: this.clusterAddress(),
      api_addr: this.#parts.addresses().api,
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
      this.check(o.id)
      return { secondaries: [...secondaries.filter(({ id }) => id !== o.id), secondary] }
    })
    return sealed ?? bundle
  }

  /** Throws a Refusal for an ID that cannot be issued. */
  check(id: string): void {
    const known = this.#state.secondaries.find((one) => one.id === id)
    if (known?.status === 'active') {
      throw new Refusal('invalid_request', `secondary with ID "${id}" already exists; revoke it first`)
    }
    if (!known && this.#state.secondaries.length >= SECONDARIES_MAX) {
      throw new Refusal('invalid_request', `this primary has ${SECONDARIES_MAX} secondaries, revoke one first`)
    }
  }

  /** What secondaries are to dial. */
  clusterAddress(): string {
    return this.#state.primaryClusterAddr || this.#parts.addresses().cluster
  }

  /** Resolves with the fingerprint of its certificate. Throws a Refusal for an ID that is not known. */
  async revoke(id: string): Promise<string> {
    const known = this.#state.secondaries.find((one) => one.id === id)
    if (!known)
      throw new Refusal('invalid_request', `there is no secondary with ID "${id}": see known_secondaries of the status`)
    await this.#parts.state.change(({ secondaries, revoked }) => ({
      secondaries: secondaries.filter((one) => one.id !== id),
      revoked: [...revoked, known.fingerprint].slice(-REVOKED_KEPT),
    }))
    return known.fingerprint
  }

  /** Throws a LinkError for who is not, or no longer, a secondary of this primary. */
  known(peer: Peer): KnownSecondary {
    const { revoked, secondaries } = this.#state
    const known = secondaries.find(({ fingerprint }) => fingerprint === peer.fingerprint)
    if (known) return known
    if (revoked.includes(peer.fingerprint))
      throw new LinkError('revoked', 'this secondary was revoked: it needs a new activation')
    throw new LinkError(
      'unknown',
      'this certificate was replaced by a newer activation, or is of a primary before this one',
    )
  }

  /** The same, and for one that has not joined: until then its certificate is good for that alone. */
  joined(peer: Peer): KnownSecondary {
    const known = this.known(peer)
    if (known.status !== 'active') throw new LinkError('unknown', 'a secondary joins before it asks for anything')
    return known
  }

  /** The same, and for a primary that was deposed. */
  ruling(peer: Peer): KnownSecondary {
    const known = this.joined(peer)
    const error = this.deposedError
    if (error) throw error
    return known
  }

  /** What secondaries of a primary are told that was replaced; undefined while it was not. */
  get deposedError(): LinkError | undefined {
    const { deposed } = this.#state
    if (!deposed) return undefined
    const where = deposed.api || deposed.addresses.join(', ')
    return new LinkError('deposed', `this cluster was replaced as primary in epoch ${deposed.epoch} by ${where}`)
  }

  /** Throws a LinkError for a secondary that cannot join as it is. */
  judge(known: KnownSecondary, asked: RequestOf<'Join'>): void {
    const { version, nowMs } = this.#parts
    if (asked.protocol !== PROTOCOL) {
      throw new LinkError(
        'version',
        `the primary speaks version ${PROTOCOL} of the link, the secondary ${asked.protocol}`,
      )
    }
    if (isOlder(asked.version, version)) {
      throw new LinkError(
        'version',
        `the primary has version ${version}, the secondary the older ${asked.version}: upgrade the secondary first`,
      )
    }
    if (known.nonce !== asked.nonce) throw new LinkError('used', 'the activation is not the newest one of this ID')
    if (known.status === 'pending' && nowMs() > known.expiresAtMs) {
      throw new LinkError('expired', 'the activation has expired: issue a new one on the primary')
    }
  }
}
