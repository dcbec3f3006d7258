/**
 * Multi-factor authentication (MFA) with TOTP: methods, the secrets of entities, and the judgement of codes.
 *
 * A *method* (`mfa-method.ts`) says how codes are made. A *secret* (`mfa-secret.ts`) is an entity's key for one method, with the
 * time steps whose codes were accepted and the wrong codes since. A policy rule with `mfa_methods` asks for a code of each
 * method with the request itself (`step-up.ts`, whose commits are gathered in `gathered-secrets.ts`); a login enforcement asks for one before a login gets its token
 * (`login-mfa.ts`). Methods are addressed by name below `sys/mfa/` and by ID below `identity/mfa/`; they are the same methods.
 *
 * Promises. The code of one time step is accepted once for each entity and method: judging reads what is pending, and its
 * outcome is queued before anything else runs, as with uses of tokens, so this also holds for callers at the same time; the
 * outcome is durable before the caller learns it, so it also holds over a kill and a restart. So do wrong codes and
 * lock-outs. A secret is never replaced, except by an admin who says so, or before its first code was confirmed; it goes with
 * its method and with its entity. Keys and codes are in no answer but the one that generates them, and in no log.
 *
 * Assumes that the machine's clock is right: authenticator applications go by true time. Lock-outs go by the core's clock.
 *
 * What can go wrong. The machine's clock is wrong: codes are refused; those that were accepted stay used. The disk is full: no
 * code is accepted, as it could be used twice. A caller who may ask in the name of an entity sends wrong codes: the entity is
 * locked out of that method for a while (docs/decisions/046). The process is killed while a method is removed: its secrets are out of
 * reach at once, and the next start removes what is left of them.
 *
 * The number of secrets is no matter at a start, nor for a check: one entry is read for each method that is asked for.
 */
import type { Batch, CommitPart, Storage } from '../../storage/barrier/storage.ts'
import { BatchBuilder, CachedCodec } from '../../engines/framework/records.ts'
import { Rejection } from '../../engines/framework/engine.ts'
import { messageOf } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import type { Method, MethodSettings } from './mfa-method.ts'
import { MfaMethods } from './mfa-methods.ts'
import { GatheredSecrets } from './gathered-secrets.ts'
import {
  encodeSecret,
  judged,
  lockedMs,
  type MfaSecret,
  type Moment,
  newSecret,
  parseSecret,
  unlocked,
  type Verdict,
} from './mfa-secret.ts'

const PREFIX = 'sys/mfa/'
const PAGE = 500

export interface MfaOptions {
  /** All of the barrier. */
  readonly storage: Storage
  readonly logger: Logger
  /** Of the core and of the machine, in milliseconds since 1970. */
  readonly now: () => number
  readonly wall: () => number
  /** The ID of an entity, or of the one that it was merged into; undefined where there is none. */
  readonly entityId: (id: string) => string | undefined
  /** The name of an entity, as its holder knows it; its ID where absent. */
  readonly accountOf?: (entityId: string) => string
}

/** A code for a method; undefined where the caller gave none. */
export interface Demand {
  readonly method: Method
  readonly code: string | undefined
}

/** `missing`: there was no code, or no secret, or it was not looked at. */
type JudgedAs = Verdict['kind'] | 'missing'

/** What came of the codes of one request. */
export interface Judgement {
  /** By the ID of the method. */
  readonly verdicts: ReadonlyMap<string, JudgedAs>
  /** How long the entity is still locked out of one of the methods; 0 where it is of none. */
  readonly retryMs: number
}

/** A judgement whose outcome is committed with other things. */
export interface JudgementWithParts extends Judgement {
  /** To be committed before the caller learns anything. */
  readonly parts: readonly CommitPart[]
}

/** A secret that was just generated, and is shown once. */
export interface Enrolment {
  readonly key: Buffer
  readonly recoveryCodes: readonly string[]
  /** Makes it durable. Throws a Rejection or resolves with false where it may not be stored any more; then nothing is changed. */
  store(): Promise<boolean>
}

export class Mfa {
  readonly #options: MfaOptions
  readonly #storage: Storage
  readonly #methods: MfaMethods
  readonly #secrets = new CachedCodec<MfaSecret>(parseSecret, encodeSecret)
  /** Methods whose removal is under way: nothing is stored for them any more. */
  readonly #removing = new Set<string>()
  readonly #gathered: GatheredSecrets
  #isClosed = false

  constructor(options: MfaOptions) {
    this.#options = options
    this.#storage = options.storage.below(PREFIX)
    this.#gathered = new GatheredSecrets(async (secrets) => {
      const puts = Array.from(secrets, ([path, secret]) => ({ path, value: this.#secrets.bytes(secret) }))
      await this.#storage.commit({ puts, deletes: [] })
    })
    this.#methods = new MfaMethods(this.#storage)
  }

  /** Goes on with what a kill interrupted. */
  resume(): void {
    for (const id of this.#methods.removed) {
      this.#removeSecrets(id).catch((error: unknown) => {
        if (this.#isClosed) return
        this.#options.logger.warn('secrets of a removed MFA method are left', {
          method_id: id,
          error: messageOf(error),
        })
      })
    }
  }

  close(): void {
    this.#isClosed = true
    this.#gathered.forgetAll()
  }

  /** In the order in which they were created. */
  get methods(): readonly Method[] {
    return this.#methods.all.filter(({ id }) => !this.#removing.has(id))
  }

  /** By its ID, or by its name. */
  method(reference: string): Method | undefined {
    const method = this.#methods.byId(reference) ?? this.#methods.byName(reference)
    return method && !this.#removing.has(method.id) ? method : undefined
  }

  methodOfId(id: string): Method | undefined {
    return this.#removing.has(id) ? undefined : this.#methods.byId(id)
  }

  /** See `MfaMethods.write`. */
  write(which: { readonly id?: string; readonly name?: string }, settings: MethodSettings): Promise<string> {
    return this.#methods.write(which, settings)
  }

  /** Removes a method with all secrets of it. */
  async remove({ id }: Method): Promise<void> {
    this.#removing.add(id)
    try {
      await this.#methods.remove(id)
      await this.#removeSecrets(id)
    } finally {
      this.#removing.delete(id)
    }
  }

  async #removeSecrets(id: string): Promise<void> {
    this.#gathered.forgetAll()
    await this.#storage.removeAll(folderOf(id))
    await this.#methods.forget(id)
  }

  get #moment(): Moment {
    return { nowMs: this.#options.now(), wallMs: this.#options.wall() }
  }

  /** Throws a Rejection (400) for no entity, and for one that is not there. */
  checkedEntity(id: string, missing = 'missing entityID'): string {
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
    const waiting = this.#gathered.pending(path)
    if (waiting) return waiting
    const bytes = this.#storage.pending(path)
    return bytes && this.#secrets.of(bytes)
  }

  /** Whether an entity has a secret for a method, and whether its first code was confirmed. */
  standing(methodId: string, entityId: string): 'none' | 'unconfirmed' | 'active' {
    const secret = this.#pending(methodId, entityId)
    if (!secret) return 'none'
    return secret.isActive ? 'active' : 'unconfirmed'
  }

  /** What authenticator applications show of an entity beside the issuer. */
  accountOf(entityId: string): string {
    return this.#options.accountOf?.(entityId) ?? entityId
  }

  /** The durable one. */
  secretOf(methodId: string, entityId: string): MfaSecret | undefined {
    const bytes = this.#storage.get(pathOf(methodId, entityId))
    return bytes && this.#secrets.of(bytes)
  }

  /**
   * A new secret that is not stored yet; undefined where the entity has one. One whose first code was not confirmed yet may be
   * replaced, and with `replaces` any.
   */
  enrol(method: Method, entityId: string, { replaces = false } = {}): Enrolment | undefined {
    const mayStore = () => replaces || this.#pending(method.id, entityId)?.isActive !== true
    if (!mayStore()) return undefined
    const { key, recoveryCodes, secret } = newSecret(method, this.#options.now())
    const store = async () => {
      // Time has passed: a QR code was drawn.
      this.checkedEntity(entityId)
      if (!this.method(method.id)) throw new Rejection(400, `configuration for method ID "${method.id}" does not exist`)
      if (!mayStore()) return false
      this.#gathered.forget([pathOf(method.id, entityId)])
      await this.#storage.commit(this.#put(method.id, entityId, secret))
      return true
    }
    return { key, recoveryCodes, store }
  }

  #put(methodId: string, entityId: string, secret: MfaSecret): Batch {
    return { puts: [{ path: pathOf(methodId, entityId), value: this.#secrets.bytes(secret) }], deletes: [] }
  }

  async destroy(methodId: string, entityId: string): Promise<void> {
    this.#gathered.forget([pathOf(methodId, entityId)])
    await this.#storage.commit({ puts: [], deletes: [pathOf(methodId, entityId)] })
  }

  /** Ends a lock-out. False where there is no secret. */
  async unlock(methodId: string, entityId: string): Promise<boolean> {
    const secret = this.#pending(methodId, entityId)
    if (!secret) return false
    this.#gathered.forget([pathOf(methodId, entityId)])
    await this.#storage.commit(this.#put(methodId, entityId, unlocked(secret)))
    return true
  }

  /**
   * What removes the secrets of entities, to be committed with their removal. Those of one that is merged into another become
   * the other's, unless it has a secret for that method.
   */
  partsOfRemoval(removed: ReadonlyMap<string, string | undefined>): CommitPart[] {
    this.#gathered.forgetAll()
    const changes = new BatchBuilder(this.#storage)
    for (const [entityId, into] of removed) {
      for (const id of this.#methods.ids) {
        const kept = changes.get(pathOf(id, entityId))
        if (!kept) continue
        changes.delete(pathOf(id, entityId))
        if (into !== undefined && !changes.get(pathOf(id, into))) changes.put(pathOf(id, into), Buffer.from(kept))
      }
    }
    const { batch } = changes
    return batch.puts.length + batch.deletes.length > 0 ? [{ storage: this.#storage, batch }] : []
  }

  /** IDs of the entities that have a secret, page by page. */
  *entityIds(methodId: string): Generator<string> {
    let after = ''
    for (;;) {
      const page = this.#storage.list(folderOf(methodId), { after, limit: PAGE })
      yield* page
      after = page.at(-1) ?? ''
      if (after === '') return
    }
  }

  /**
   * Judges codes for methods, of which none may come twice. All of it happens in this turn: the parts must be queued before
   * the next `await`. `awaitsConfirmation`: for the secrets that are not in force yet, instead of those that are.
   */
  judge(entityId: string, demands: readonly Demand[], { awaitsConfirmation = false } = {}): JudgementWithParts {
    this.#gathered.flush()
    const { changes, ...judgement } = this.#judge(entityId, demands, { awaitsConfirmation, together: false })
    this.#gathered.forget(changes.keys())
    const puts = Array.from(changes, ([path, secret]) => ({ path, value: this.#secrets.bytes(secret) }))
    const batch = { puts, deletes: [] }
    return { ...judgement, parts: puts.length > 0 ? [{ storage: this.#storage, batch }] : [] }
  }

  /**
   * Judges codes that belong together: none is looked at where another one, or its secret, is missing, or the entity is locked
   * out of one of the methods. Resolves once the outcome is durable.
   */
  async judgeTogether(entityId: string, demands: readonly Demand[]): Promise<Judgement> {
    const { changes, ...judgement } = this.#judge(entityId, demands, { awaitsConfirmation: false, together: true })
    if (changes.size > 0) await this.#gathered.add(changes)
    return judgement
  }

  /** `changes`: secrets after it, by their path. */
  #judge(
    entityId: string,
    demands: readonly Demand[],
    { awaitsConfirmation, together }: { readonly awaitsConfirmation: boolean; readonly together: boolean },
  ): Judgement & { readonly changes: ReadonlyMap<string, MfaSecret> } {
    const at = this.#moment
    const known = demands.map(({ code, method }) => {
      const secret = code === undefined ? undefined : this.#pending(method.id, entityId)
      return { code, method, secret: secret?.isActive === !awaitsConfirmation ? secret : undefined }
    })
    const retryMs = Math.max(0, ...known.map(({ secret }) => (secret ? lockedMs(secret, at.nowMs) : 0)))
    const verdicts = new Map<string, JudgedAs>()
    const changes = new Map<string, MfaSecret>()
    const isIncomplete = together && (retryMs > 0 || known.some(({ secret }) => !secret))
    for (const { code, method, secret } of known) {
      const verdict = secret && code !== undefined && !isIncomplete && judged(secret, code, at, method.attemptsMax)
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
