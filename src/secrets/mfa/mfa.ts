/**
 * Multi-factor authentication (MFA) with TOTP: methods, the secrets of entities, and the verification of codes.
 *
 * A *method* (`mfa-method.ts`) has the parameters of codes. A *secret* (`mfa-secret.ts`) is an entity's key for one method, with the
 * used time steps and the counters of invalid codes. A policy rule with `mfa_methods` requires a code of each method with the
 * request itself (`step-up.ts`; commits are grouped by `secret-group-commit.ts`). A login enforcement requires one before a login
 * receives a token (`login-mfa.ts`). The same methods are addressed by name below `sys/mfa/` and by ID below `identity/mfa/`.
 *
 * Promises:
 * - The code of a time step is accepted once per entity and method, also for concurrent requests and across a crash: verification
 *   reads the pending state, queues its outcome synchronously, and the outcome is durable before the caller is answered. The same
 *   holds for counters and lock-outs.
 * - A secret is replaced only by an administrator's explicit request, or before its first code was confirmed. It is removed with its
 *   method and with its entity.
 * - Keys and codes are only in the answer that generates them, and in no log.
 *
 * Assumes that the machine's clock is right, because authenticator applications use it. Lock-outs use the core's clock.
 *
 * Failure modes:
 * - The machine's clock is wrong: codes are refused; accepted codes stay used.
 * - The disk is full: no code is accepted, because it could be used twice.
 * - A caller that may act for an entity sends invalid codes: the entity is locked out of that method temporarily
 *   (docs/decisions/046).
 * - The process is killed while a method is removed: its secrets are inaccessible immediately, and the next start removes the rest.
 *
 * The cost of a start and of a verification does not depend on the number of secrets: one entry is read per required method.
 */
import type { Batch, CommitPart, Storage } from '../../storage/barrier/storage.ts'
import { BatchBuilder, CachedCodec } from '../../engines/framework/records.ts'
import { Rejection } from '../../engines/framework/engine.ts'
import { messageOf } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import type { TotpMethod, MethodSettings } from './mfa-method.ts'
import { MfaMethods } from './mfa-methods.ts'
import { SecretGroupCommit } from './secret-group-commit.ts'
import {
  type CodeVerdict,
  encodeSecret,
  lockedMs,
  type MfaSecret,
  type MfaTime,
  newSecret,
  parseSecret,
  unlockSecret,
  verifyCode,
} from './mfa-secret.ts'

const PREFIX = 'sys/mfa/'
const PAGE_SIZE = 500

export interface MfaOptions {
  /** The whole barrier. */
  readonly storage: Storage
  readonly logger: Logger
  /** The clocks of the core and of the machine, in milliseconds since 1970. */
  readonly now: () => number
  readonly wall: () => number
  /** The ID of an entity, or of the one that it was merged into; undefined where there is none. */
  readonly entityId: (id: string) => string | undefined
  /** The name of an entity as shown by authenticator applications; by default its ID. */
  readonly accountOf?: (entityId: string) => string
}

/** A method with the caller's code; undefined if the caller gave none. */
export interface CodeRequirement {
  readonly method: TotpMethod
  readonly code: string | undefined
}

/** `missing`: there was no code or no secret, or the code was not verified. */
type VerdictKind = CodeVerdict['kind'] | 'missing'

/** The verdicts on the codes of one request. */
export interface CodeVerdicts {
  /** By the ID of the method. */
  readonly verdicts: ReadonlyMap<string, VerdictKind>
  /** The remaining time of a lock-out of one of the methods; 0 if there is none. */
  readonly retryMs: number
}

/** Verdicts whose outcome is committed together with other changes. */
export interface UncommittedVerdicts extends CodeVerdicts {
  /** Must be committed before the caller is answered. */
  readonly parts: readonly CommitPart[]
}

/** A new secret, which is shown once. */
export interface Enrolment {
  readonly key: Buffer
  readonly recoveryCodes: readonly string[]
  /** Stores the secret. Rejects with a Rejection, or resolves with false, if it may not be stored any more. */
  store(): Promise<boolean>
}

export class Mfa {
  readonly #options: MfaOptions
  readonly #storage: Storage
  readonly #methods: MfaMethods
  readonly #secrets = new CachedCodec<MfaSecret>(parseSecret, encodeSecret)
  /** Methods that are being removed: nothing may be stored for them. */
  readonly #removing = new Set<string>()
  readonly #groupCommit: SecretGroupCommit
  #isClosed = false

  constructor(options: MfaOptions) {
    this.#options = options
    this.#storage = options.storage.below(PREFIX)
    this.#groupCommit = new SecretGroupCommit(async (secrets) => {
      const puts = Array.from(secrets, ([path, secret]) => ({ path, value: this.#secrets.bytes(secret) }))
      await this.#storage.commit({ puts, deletes: [] })
    })
    this.#methods = new MfaMethods(this.#storage)
  }

  /** Continues removals that a crash has interrupted. */
  resume(): void {
    for (const id of this.#methods.removed) {
      this.#removeSecrets(id).catch((error: unknown) => {
        if (this.#isClosed) return
        this.#options.logger.warn('removing the secrets of an MFA method failed, will retry at the next start', {
          method_id: id,
          error: messageOf(error),
        })
      })
    }
  }

  close(): void {
    this.#isClosed = true
    this.#groupCommit.forgetAll()
  }

  /** In order of creation. */
  get methods(): readonly TotpMethod[] {
    return this.#methods.all.filter(({ id }) => !this.#removing.has(id))
  }

  /** Finds a method by ID or by name. */
  method(reference: string): TotpMethod | undefined {
    const method = this.#methods.byId(reference) ?? this.#methods.byName(reference)
    return method && !this.#removing.has(method.id) ? method : undefined
  }

  methodOfId(id: string): TotpMethod | undefined {
    return this.#removing.has(id) ? undefined : this.#methods.byId(id)
  }

  /** See `MfaMethods.write`. */
  write(reference: { readonly id?: string; readonly name?: string }, settings: MethodSettings): Promise<string> {
    return this.#methods.write(reference, settings)
  }

  /** Removes a method with all its secrets. */
  async remove({ id }: TotpMethod): Promise<void> {
    this.#removing.add(id)
    try {
      await this.#methods.remove(id)
      await this.#removeSecrets(id)
    } finally {
      this.#removing.delete(id)
    }
  }

  async #removeSecrets(id: string): Promise<void> {
    this.#groupCommit.forgetAll()
    await this.#storage.removeAll(folderOf(id))
    await this.#methods.forget(id)
  }

  get #time(): MfaTime {
    return { nowMs: this.#options.now(), wallMs: this.#options.wall() }
  }

  /** Throws a Rejection (400) for an empty or unknown ID. */
  requireEntity(id: string, missing = 'missing entityID'): string {
    if (id === '') throw new Rejection(400, missing)
    const entity = this.entityOf(id)
    if (entity === undefined) throw new Rejection(400, 'invalid entity ID')
    return entity
  }

  /** The ID of an entity, or of the one that it was merged into; undefined where there is none. */
  entityOf(id: string): string | undefined {
    return id === '' ? undefined : this.#options.entityId(id)
  }

  #pending(methodId: string, entityId: string): MfaSecret | undefined {
    const path = pathOf(methodId, entityId)
    const waiting = this.#groupCommit.pending(path)
    if (waiting) return waiting
    const bytes = this.#storage.pending(path)
    return bytes && this.#secrets.of(bytes)
  }

  /** The state of an entity's secret for a method. */
  secretState(methodId: string, entityId: string): 'none' | 'unconfirmed' | 'active' {
    const secret = this.#pending(methodId, entityId)
    if (!secret) return 'none'
    return secret.isActive ? 'active' : 'unconfirmed'
  }

  /** The account name that authenticator applications show beside the issuer. */
  accountOf(entityId: string): string {
    return this.#options.accountOf?.(entityId) ?? entityId
  }

  /** The durable secret. */
  secretOf(methodId: string, entityId: string): MfaSecret | undefined {
    const bytes = this.#storage.get(pathOf(methodId, entityId))
    return bytes && this.#secrets.of(bytes)
  }

  /**
   * Generates a secret without storing it; undefined if the entity has an active one and `replaces` is not set. An unconfirmed secret
   * may be replaced.
   */
  enrol(method: TotpMethod, entityId: string, { replaces = false } = {}): Enrolment | undefined {
    const mayStore = () => replaces || this.#pending(method.id, entityId)?.isActive !== true
    if (!mayStore()) return undefined
    const { key, recoveryCodes, secret } = newSecret(method, this.#options.now())
    const store = async () => {
      // The state may have changed while the QR code was drawn.
      this.requireEntity(entityId)
      if (!this.method(method.id)) throw new Rejection(400, `configuration for method ID "${method.id}" does not exist`)
      if (!mayStore()) return false
      this.#groupCommit.forget([pathOf(method.id, entityId)])
      await this.#storage.commit(this.#put(method.id, entityId, secret))
      return true
    }
    return { key, recoveryCodes, store }
  }

  #put(methodId: string, entityId: string, secret: MfaSecret): Batch {
    return { puts: [{ path: pathOf(methodId, entityId), value: this.#secrets.bytes(secret) }], deletes: [] }
  }

  async destroy(methodId: string, entityId: string): Promise<void> {
    this.#groupCommit.forget([pathOf(methodId, entityId)])
    await this.#storage.commit({ puts: [], deletes: [pathOf(methodId, entityId)] })
  }

  /** Ends a lock-out. Resolves to false if there is no secret. */
  async unlock(methodId: string, entityId: string): Promise<boolean> {
    const secret = this.#pending(methodId, entityId)
    if (!secret) return false
    this.#groupCommit.forget([pathOf(methodId, entityId)])
    await this.#storage.commit(this.#put(methodId, entityId, unlockSecret(secret)))
    return true
  }

  /**
   * The parts that remove the secrets of entities, to be committed with the removal. The secrets of an entity that is merged into
   * another become the other's, unless that has a secret for the method.
   */
  partsOfRemoval(removed: ReadonlyMap<string, string | undefined>): CommitPart[] {
    this.#groupCommit.forgetAll()
    const changes = new BatchBuilder(this.#storage)
    for (const [entityId, into] of removed) {
      for (const id of this.#methods.ids) {
        const secret = changes.get(pathOf(id, entityId))
        if (!secret) continue
        changes.delete(pathOf(id, entityId))
        if (into !== undefined && !changes.get(pathOf(id, into))) changes.put(pathOf(id, into), Buffer.from(secret))
      }
    }
    const { batch } = changes
    return batch.puts.length + batch.deletes.length > 0 ? [{ storage: this.#storage, batch }] : []
  }

  /** IDs of the entities with a secret. Reads them page by page. */
  *entityIds(methodId: string): Generator<string> {
    let after = ''
    for (;;) {
      const page = this.#storage.list(folderOf(methodId), { after, limit: PAGE_SIZE })
      yield* page
      after = page.at(-1) ?? ''
      if (after === '') return
    }
  }

  /**
   * Verifies codes of distinct methods synchronously. The parts must be queued before the next `await`. `awaitsConfirmation`: verifies
   * unconfirmed secrets instead of active ones.
   */
  verify(
    entityId: string,
    requirements: readonly CodeRequirement[],
    { awaitsConfirmation = false } = {},
  ): UncommittedVerdicts {
    this.#groupCommit.flush()
    const { changes, ...verdicts } = this.#verify(entityId, requirements, { awaitsConfirmation, together: false })
    this.#groupCommit.forget(changes.keys())
    const puts = Array.from(changes, ([path, secret]) => ({ path, value: this.#secrets.bytes(secret) }))
    const batch = { puts, deletes: [] }
    return { ...verdicts, parts: puts.length > 0 ? [{ storage: this.#storage, batch }] : [] }
  }

  /**
   * Verifies codes that are all required: none is verified if a code or a secret is missing, or the entity is locked out of one of the
   * methods. Resolves when the outcome is durable.
   */
  async verifyTogether(entityId: string, requirements: readonly CodeRequirement[]): Promise<CodeVerdicts> {
    const options = { awaitsConfirmation: false, together: true }
    const { changes, ...verdicts } = this.#verify(entityId, requirements, options)
    if (changes.size > 0) await this.#groupCommit.add(changes)
    return verdicts
  }

  /** `changes`: the changed secrets by path. */
  #verify(
    entityId: string,
    requirements: readonly CodeRequirement[],
    { awaitsConfirmation, together }: { readonly awaitsConfirmation: boolean; readonly together: boolean },
  ): CodeVerdicts & { readonly changes: ReadonlyMap<string, MfaSecret> } {
    const time = this.#time
    const known = requirements.map(({ code, method }) => {
      const secret = code === undefined ? undefined : this.#pending(method.id, entityId)
      return { code, method, secret: secret?.isActive === !awaitsConfirmation ? secret : undefined }
    })
    const retryMs = Math.max(0, ...known.map(({ secret }) => (secret ? lockedMs(secret, time.nowMs) : 0)))
    const verdicts = new Map<string, VerdictKind>()
    const changes = new Map<string, MfaSecret>()
    const isIncomplete = together && (retryMs > 0 || known.some(({ secret }) => !secret))
    for (const { code, method, secret } of known) {
      const verdict =
        secret && code !== undefined && !isIncomplete && verifyCode(secret, code, time, method.attemptsMax)
      verdicts.set(method.id, verdict ? verdict.kind : 'missing')
      if (!verdict || !('after' in verdict)) continue
      const after = verdict.kind === 'right' ? { ...verdict.after, isActive: true } : verdict.after
      changes.set(pathOf(method.id, entityId), after)
    }
    return { verdicts, changes, retryMs: known.some(({ secret }) => !secret) && together ? 0 : retryMs }
  }
}

function folderOf(methodId: string): string {
  return `secret/${methodId}/`
}

function pathOf(methodId: string, entityId: string): string {
  return folderOf(methodId) + entityId
}
