/**
 * The engines room: what a secret engine is, and each engine in a folder of its own.
 *
 * An *engine* is a value: a type and a list of *paths*. A path says which requests below the engine's mount it takes
 * (`pattern`), what they may hold (`fields`), and has one small function for each operation. From the same values come
 * routing, validation, help and the OpenAPI document. The endpoints of the core itself (`sys/`, `auth/token/`) are such
 * values too, kept in the secrets room.
 *
 * A handler computes and returns a `Reply`: what the caller sees and at most one batch of puts and deletes. It never
 * writes in steps, so a process that is killed at any moment leaves all of a request behind or nothing. Reads that
 * serve a caller use `call.storage.get`, which sees what is durable; a handler that is going to write reads with
 * `call.storage.pending`, which also sees what is queued. Between that read and its `return` it must not `await`: this, and
 * not a lock, is what makes a read and the write that depends on it one step (docs/decisions/016). A handler that returns
 * a promise has no such step: whoever writes what depends on a read does not return one.
 *
 * Promises. An engine sees the entries below its own prefix and nothing else. Its handlers are called only for callers
 * whose policies allow the operation, with fields already read into their types.
 *
 * Assumes that handlers are quick: they run on the thread that serves everybody. What reads very much gives way to others
 * again and again (`time-slices.ts`). What waits for others (a cloud) is a
 * handler that returns a promise. What it decides after that is decided upon state that it reads again then, and, where a
 * write depends on it, committed by itself with `call.storage.commit` before its next `await`.
 *
 * What can go wrong. A caller's mistake: throw a `Rejection` (or another `Refusal`), nothing is committed. Anything else that
 * is thrown is ours: the caller sees "internal error", the log has the rest.
 */
import type { Batch, CommitPart, Storage } from '../../storage/barrier/storage.ts'
import { codeOfStatus, Refusal } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import type { JsonText } from '../../platform/operation.ts'
import type { Fields, InputOf } from './fields.ts'
import type { KeyedHash } from '../../platform/keyed-hash.ts'
import type { FoldShape } from './name-fold.ts'
import type { LoginFailures, LoginOrder, LoginStanding } from './login-order.ts'

export type EngineVerb = 'read' | 'list' | 'scan' | 'create' | 'update' | 'patch' | 'delete'

/** Who calls, as far as engines may know. */
export interface Caller {
  /** Name of the token that may be shown; empty for who has none. */
  readonly accessor: string
  /** Salted hash of the token: names what belongs to it, tells nothing of it. */
  readonly tokenHash: string
  readonly tokenType: 'service' | 'batch'
  readonly displayName: string
  readonly policies: readonly string[]
  readonly isRoot: boolean
  /** Empty without an entity. */
  readonly entityId: string
}

/** What a mount proves outside who it is with. */
export interface IdentityToken {
  /** A JSON Web Token. It is a secret as long as it is good. */
  readonly token: string
  /** Who has signed it: a URL. */
  readonly issuer: string
}

export interface IdentityTokenWish {
  readonly audience: string
  /** 0: what the issuer gives. */
  readonly ttlSeconds: number
}

export interface MountFacts {
  /** Ends with a slash; an auth method's begins with `auth/`. */
  readonly path: string
  readonly type: string
  readonly uuid: string
  readonly accessor: string
  readonly options: Readonly<Record<string, string>>
  /** How long what it gives out is good for where nothing else is said. */
  readonly defaultLeaseSeconds: number
  /** No lease of it is longer. */
  readonly maxLeaseSeconds: number
  /** With a key that is this mount's own: for names that must not show in the store. */
  readonly secret: KeyedHash
  /**
   * Resolves with a fresh token that says which mount this is, for a service that trusts this server as an issuer. Rejects with
   * a Rejection (400) for a wish that cannot be met, and once the core is sealed.
   */
  readonly identityToken: (wish: IdentityTokenWish) => Promise<IdentityToken>
}

export interface EngineCall {
  readonly mount: MountFacts
  /** Below the mount, in its canonical form: names that the engine folds are folded. */
  readonly path: string
  /** The same as the caller spelled it: for texts of an answer, never to find anything by. */
  readonly givenPath: string
  readonly verb: EngineVerb
  /** Below the mount's own prefix; for the core's own engines all of the barrier. */
  readonly storage: Storage
  readonly caller: Caller
  readonly requestId: string
  /** The time by which lives are measured; it does not jump when the machine's clock is set. */
  readonly nowMs: number
  /** The same clock at the moment of the call, for handlers that wait for something outside. */
  readonly now: () => number
  /** The machine's clock, where others reckon by theirs: in time-based codes. It may be set, also back. */
  readonly wallMs: number
  /** Everything that came in the body or, without one, in the query; fields that nobody declared too. */
  readonly data: Readonly<Record<string, unknown>>
  /** The body's JSON text, for who keeps numbers as they were written. */
  readonly bodyText: string | undefined
  /** Whether the caller's policies also grant `sudo` here: for who asks more of some requests than of others. */
  readonly sudo: boolean
  /** Whether they also allow something else below this mount; `data` is what such a request would bring. */
  readonly allows: (verb: EngineVerb, path: string, data?: Readonly<Record<string, unknown>>) => boolean
  /**
   * Whether a rule forbids something else below this mount: denies it, limits its parameters, or demands a code that the
   * request has not brought. What no rule grants is not forbidden: for answers that a rule of their own path grants.
   */
  readonly forbids: (verb: EngineVerb, path: string, data?: Readonly<Record<string, unknown>>) => boolean
  /** Whether they may allow anything at all below a folder of this mount, which ends with a slash. */
  readonly reaches: (folder: string) => boolean
  /** Largest number of names that the caller's policy lets a list have. */
  readonly limitMax: number | undefined
  /** The client's address, where it is known. */
  readonly remote: string | undefined
  readonly signal: AbortSignal
  /** Aborts when the server stops: a request that waits for a change answers at once. */
  readonly draining: AbortSignal | undefined
  /** Set where the caller asks for server-sent events, with the cursor that it goes on from. */
  readonly eventStream: { readonly lastCursor: string | undefined } | undefined
  /** Whether the answer will be wrapped. */
  readonly isWrapped: boolean
  /** Of this mount. */
  readonly failures: LoginFailures
  /** The token itself, for the core's own engines only, which give it back to its holder. Never keep or log it. */
  readonly token: string | undefined
}

/** What an engine gives out for a time: the core keeps it, tells its ID, and has it taken back. */
export interface LeaseOrder {
  /** 0: what the mount gives. Never longer than the mount allows. */
  readonly ttlSeconds: number
  /** The longest that renewals reach, from the beginning; 0: what the mount allows. */
  readonly maxTtlSeconds: number
  readonly renewable: boolean
  /** What the engine needs to take it back, as JSON. */
  readonly internal: Readonly<Record<string, unknown>>
}

/** A lease, to the engine that gave it. */
export interface LeaseCall {
  readonly mount: MountFacts
  /** Below the mount's own prefix. */
  readonly storage: Storage
  readonly leaseId: string
  /** Path of the request that it was given for, below the mount. */
  readonly path: string
  readonly internal: Readonly<Record<string, unknown>>
  readonly issuedAtMs: number
  readonly nowMs: number
  readonly signal: AbortSignal
}

/** What a login needs besides before it gets its token: of each constraint a code of one of its methods. */
export interface MfaRequirement {
  readonly mfa_request_id: string
  readonly mfa_constraints: Readonly<Record<string, { readonly any: readonly object[] }>>
}

/** A mount, to its engine that works there by itself. */
export interface WorkCall {
  readonly mount: MountFacts
  /** Below the mount's own prefix; the same one as in requests to the mount. */
  readonly storage: Storage
  readonly nowMs: number
  readonly logger: Logger
  /** Aborts when the core is sealed. */
  readonly signal: AbortSignal
}

/** The block of an answer that brings a token. */
export interface AuthBlock {
  readonly client_token: string
  readonly accessor: string
  /** Null where there is no token yet. */
  readonly policies: readonly string[] | null
  readonly token_policies?: readonly string[]
  /** Those of the entity and its groups. */
  readonly identity_policies?: readonly string[]
  readonly metadata: Readonly<Record<string, string>> | null
  readonly lease_duration: number
  readonly renewable: boolean
  readonly entity_id: string
  /** `default` where there is no token yet. */
  readonly token_type: 'service' | 'batch' | 'default'
  readonly orphan: boolean
  readonly mfa_requirement: MfaRequirement | null
  readonly num_uses: number
}

/** One thing that is told in a stream. */
export interface Told {
  /** With which the caller goes on behind it. One line of text. */
  readonly cursor: string
  /** What it is, where it is not the usual thing. */
  readonly kind?: string
  /** Absent: there is nothing to tell but the cursor, and that somebody is still there. */
  readonly value?: Readonly<Record<string, unknown>>
}

/** What a handler answers. Nothing at all (undefined) is 204 for a write and 404 for a read. */
export interface Reply {
  readonly data?: Readonly<Record<string, unknown>> | JsonText | null
  readonly warnings?: readonly string[]
  readonly auth?: AuthBlock
  /** Who has logged in: the token is made for it, and committed together with `batch`. */
  readonly login?: LoginOrder
  /**
   * Names of aliases whose user or role is removed by `batch`. The core removes these aliases from their entities in the same commit:
   * who gets the name next gets an entity of its own.
   */
  readonly releasedAliases?: readonly string[]
  /** Seconds that the data is good for, where it has a term and no lease. */
  readonly leaseSeconds?: number
  /** The data is given out under a lease, which is committed together with `batch`. */
  readonly lease?: LeaseOrder
  /** The lease that the answer tells: the core fills it in for `lease`. */
  readonly leased?: { readonly id: string; readonly renewable: boolean; readonly seconds: number }
  /** The answer is the token that it is wrapped below, and `warnings`. */
  readonly wrapped?: Readonly<object>
  /** A status of its own, with the envelope as its body; without `data` and `warnings` it has no body. */
  readonly status?: number
  /** Also repeats the members of `data` beside the envelope, for old clients. */
  readonly flattened?: boolean
  /** The whole body, without an envelope. */
  readonly bare?: unknown
  /** The whole body, where it is no JSON. */
  readonly text?: { readonly body: string; readonly contentType: string }
  readonly headers?: Readonly<Record<string, string>>
  /**
   * What is told as it happens, several things at a time, instead of all the rest. It is begun only when somebody takes
   * it, and asked on only as it is taken; it ends soon after `call.signal` aborts, and must not be silent for long: then
   * it is seen whether its caller is still there and still may hear it. What it throws is the last thing told.
   */
  readonly stream?: AsyncIterable<readonly Told[]>
  /** Below the engine's own prefix; durable before the answer goes out. */
  readonly batch?: Batch
  /** What the core's own engines write elsewhere, in the same commit. */
  readonly parts?: readonly CommitPart[]
  /** Called when all of it is durable, or has failed. */
  readonly landed?: () => void
}

export type Outcome = Reply | undefined | Promise<Reply | undefined>
export type Handler<In> = (input: In, call: EngineCall) => Outcome

/** Another request to the same mount, of which an answer reveals something. */
export interface ImpliedRead {
  readonly operation: EngineVerb
  /** Below the mount. */
  readonly path: string
  /** The request itself in its canonical form, where that differs from its path: it must be granted. Which segments fold. */
  readonly folds?: FoldShape
}

/** One kind of request below a mount. */
export interface PathDeclaration<F extends Fields> {
  /**
   * `roles/:name`. At its end `:rest*` takes everything that follows, slashes included, also nothing, and `:rest+`
   * something; before its end both take one segment or more.
   */
  readonly pattern: string
  readonly summary: string
  /**
   * Those `inPath` are named by the pattern, the others come in the body or in the query. A name that the engine compares
   * without regard to case declares its `fold`; the handlers never fold a parameter of the path themselves.
   */
  readonly fields: F
  /** Needs no token. */
  readonly unauthenticated?: boolean
  /** Answers everybody, and who brings a token is known by it; it must be a good one then. No policy is asked. */
  readonly tokenOptional?: boolean
  /**
   * Takes a token that has `sudo`, and while `isAllowed` any caller, with or without a token: `call.sudo` says whether it
   * was such a token. `refusal` is what a caller without a token is told (405) while it is not.
   */
  readonly withoutToken?: { readonly isAllowed: () => boolean; readonly refusal: readonly string[] }
  /** A DELETE may bring a JSON body. Without this its data is the query. */
  readonly bodyOfDelete?: boolean
  /** Most characters of a request body, where a longer one would cost more than it is worth: 413. */
  readonly bodyCharactersMax?: number
  /** Its reads make something, so they are recorded in the audit log before they are done. */
  readonly readChanges?: boolean
  /** Needs the capability `sudo` besides the operation's own; may depend on the verb. */
  readonly sudo?: boolean | ((verb: EngineVerb) => boolean)
  /**
   * Also answers while the core is sealed or not initialised; then to anybody, as no token can be known. Implies that
   * nothing of the barrier is read.
   */
  readonly whileSealed?: boolean
  /**
   * Also answers on a secondary for disaster recovery, whose core is closed; then to every caller. `read`: only what reads.
   */
  readonly onSecondary?: boolean | 'read'
  /** Also answers on a primary that is fenced. Paths that answer while sealed, or on a secondary, do so anyway. */
  readonly whileFenced?: boolean
  /** Takes fields that are not declared without a word: its data is the caller's own. */
  readonly anyFields?: boolean
  /**
   * What else an answer reveals, by the parameters of the path. A rule that denies one of these requests refuses this one,
   * and the codes that it demands are demanded here; a missing grant does not refuse it.
   */
  readonly reads?: (params: Readonly<Record<string, string>>, verb: EngineVerb) => readonly ImpliedRead[]
  /** Tells `create` from `update`. Absent: every write is an update. Asked before policies are: what it throws tells nothing. */
  readonly exists?: (input: InputOf<F>, call: EngineCall) => boolean
  readonly read?: Handler<InputOf<F>>
  readonly list?: Handler<InputOf<F>>
  readonly scan?: Handler<InputOf<F>>
  /** Absent: `update` serves it. */
  readonly create?: Handler<InputOf<F>>
  readonly update?: Handler<InputOf<F>>
  readonly patch?: Handler<InputOf<F>>
  readonly delete?: Handler<InputOf<F>>
}

/** A path whose input nobody names any more. */
export interface Path extends Omit<PathDeclaration<Fields>, 'exists' | EngineVerb> {
  readonly exists: ((input: object, call: EngineCall) => boolean) | undefined
  readonly handlers: Readonly<Partial<Record<EngineVerb, Handler<object>>>>
}

/** Turns a declaration into what tables hold. */
export function path<F extends Fields>(declaration: PathDeclaration<F>): Path {
  const { read, list, scan, create, update, patch, delete: remove, exists, ...rest } = declaration
  const handlers: Partial<Record<EngineVerb, Handler<InputOf<F>>>> = {
    ...(read && { read }),
    ...(list && { list }),
    ...(scan && { scan }),
    ...(update && { create: create ?? update, update }),
    ...(create && { create }),
    ...(patch && { patch }),
    ...(remove && { delete: remove }),
  }
  // The one place that forgets the input's type: `readFields` made it from these very fields.
  return { ...rest, exists, handlers } as unknown as Path
}

/** A counter, with a point for each combination of labels: a bounded number of them. */
export interface EngineFigure {
  /** Dotted, without `total`. */
  readonly name: string
  readonly help: string
  readonly points: readonly { readonly labels: Readonly<Record<string, string>>; readonly value: number }[]
}

export type MountOptions = Readonly<Record<string, string>>

/** A type of engine. */
export interface Engine {
  readonly type: string
  readonly paths: readonly Path[]
  /** What an operator reads about it. */
  readonly description: string
  /** `auth`: it is mounted below `auth/`, and nowhere else. Absent: `secret`, anywhere else. */
  readonly kind?: 'secret' | 'auth'
  /** True where each core has exactly one from its beginning, which stays where it is. */
  readonly isSingle?: boolean
  /** Other names by which it may be enabled, and the options that such a name stands for. */
  readonly aliases?: Readonly<Record<string, MountOptions>>
  /** Further types of its mounts. Unlike an alias, such a type is stored and reported, and its mounts accept no version. */
  readonly furtherTypes?: readonly string[]
  /**
   * Takes back what a lease stands for. What it returns is committed together with the removal of the lease. It may be called
   * again for what it has done already (the process was killed in between), and must find that done. What it throws is
   * tried again later. Absent: an engine whose leases end by themselves.
   */
  revoke?(call: LeaseCall): Promise<Batch | undefined> | Batch | undefined
  /**
   * Whether a lease with this `internal` stands for nothing outside the core: `revoke` does no more than it returns. Such a lease
   * goes in one commit. Absent: it may, and that its revocation has begun is durable before `revoke` is called.
   */
  isRevokedInside?(internal: Readonly<Record<string, unknown>>): boolean
  /**
   * The core removes a lease that `revoke` could not take back (`sys/leases/revoke-force`). What it returns is committed
   * together with the removal.
   */
  forget?(call: LeaseCall): Batch | undefined
  /**
   * Work without a request: undoing what a killed process has left, rotation. Called about once a second for each mount while
   * the core is active, and never twice at a time for one mount. It writes with `call.storage.commit`. What it throws is
   * logged.
   */
  periodic?(call: WorkCall): Promise<void> | undefined
  /**
   * The mount is to be disabled, and its leases are gone. Undoes what else it did outside; resolves with texts of what it
   * could not undo, which keep the mount from being disabled.
   */
  release?(call: WorkCall): Promise<readonly string[]>
  /** What the engine has counted of a mount since the process began: the same families for every mount. Must be quick. */
  figures?(where: { readonly mount: MountFacts; readonly storage: Storage }): readonly EngineFigure[]
  /** Whether a lease may be renewed now: throws a Refusal where not. Absent: any that is renewable. */
  renew?(call: LeaseCall): Promise<void> | void
  /**
   * What a login of this auth method is good for now: its token is to be renewed or, with the mark of the login's order, made
   * only now. Throws a Rejection (400) where what it was given for is gone, and where the credentials of the mark are no longer right.
   */
  renewLogin?(
    subject: string,
    mount: { readonly facts: MountFacts; readonly storage: Storage },
    mark?: string,
  ): LoginStanding
  /**
   * Checks the options of a mount that is enabled or, with those `before`, tuned, and returns what is to be kept. Throws
   * a Rejection. Absent: it has no options of its own, and none is refused but `version`.
   */
  checkOptions?(given: MountOptions, before?: MountOptions): CheckedOptions
  /** The paths of a mount with these options, where they depend on them: the same list for the same kind of mount. */
  pathsFor?(options: MountOptions): readonly Path[]
}

export interface CheckedOptions {
  readonly options: MountOptions
  readonly warnings?: readonly string[]
}

/** A refusal with the status and the texts that stock clients of an engine know. */
export class Rejection extends Refusal {
  override readonly name = 'Rejection'
  readonly #texts: readonly string[]
  /** What the answer says besides. */
  readonly data: Readonly<Record<string, unknown>> | undefined

  constructor(status: number, texts: string | readonly string[] = [], data?: Readonly<Record<string, unknown>>) {
    super(codeOfStatus(status), typeof texts === 'string' ? texts : texts.join('; '), {}, status)
    this.#texts = typeof texts === 'string' ? [texts] : texts
    this.data = data
  }

  override get texts(): readonly string[] {
    return this.#texts
  }
}

/** A text as the compatible system wraps some of them. */
export function oneError(text: string): string {
  return `1 error occurred:\n\t* ${text}\n\n`
}

/** The refusal of a caller whose policies do not allow what it asks for. */
export function denied(): Rejection {
  return new Rejection(403, oneError('permission denied'))
}
