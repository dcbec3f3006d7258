/**
 * The framework of the secrets engines and auth methods.
 *
 * An *engine* is a value: a type and a list of *paths*. A path declares which requests below the mount it handles
 * (`pattern`) and their input (`fields`), and has one small function for each operation. Routing, validation, help and the
 * OpenAPI document are derived from these values. The endpoints of the core itself (`sys/`, `auth/token/`) are such
 * values too; they are in the secrets module.
 *
 * A handler computes and returns a `Reply`: the response, and at most one batch of puts and deletes. It never writes in
 * steps, so a process that is killed at any moment leaves all writes of a request or none. A handler that only reads uses
 * `call.storage.get`, which returns durable entries. A handler that writes reads with `call.storage.pending`, which also returns
 * queued entries, and must not `await` between that read and its `return`: this makes a read and the write that depends on it
 * one step, without a lock (docs/decisions/016). A handler that returns a promise gives no such guarantee.
 *
 * Promises. An engine can access the entries below its own prefix and nothing else. Its handlers are called only for callers
 * whose policies allow the operation, with fields already parsed into their types.
 *
 * Assumptions. Handlers are fast: they run on the event loop of all requests. A handler that reads many entries yields
 * (`runSliced` of `platform/sliced-work.ts`). A handler that waits for an external service returns a promise. After the wait it
 * reads the state that its decision depends on again, and commits writes that depend on it with `call.storage.commit` before its
 * next `await`.
 *
 * Failure modes. A mistake of the caller: the handler throws a `Rejection` (or another `Refusal`), and nothing is committed. Any
 * other exception is a fault of the server: the caller gets "internal error", the log has the details.
 */
import type { Batch, CommitPart, Storage } from '../../storage/barrier/storage.ts'
import {
  codeOfStatus,
  Refusal,
  type UnsupportedFeature,
  unsupportedLink,
  unsupportedText,
} from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import type { JsonText } from '../../platform/operation.ts'
import type { EngineFields, EngineInput } from './fields.ts'
import type { KeyedHash } from '../../platform/keyed-hash.ts'
import type { FoldShape } from './name-fold.ts'
import type { LoginFailures, LoginGrant, LoginRenewal } from './login-grant.ts'

export type EngineVerb = 'read' | 'list' | 'scan' | 'create' | 'update' | 'patch' | 'delete'

/** What engines may know about the caller. */
export interface Caller {
  /** Accessor of the token; empty for a caller without a token. */
  readonly accessor: string
  /** Salted hash of the token: identifies its data without revealing it. */
  readonly tokenHash: string
  readonly tokenType: 'service' | 'batch'
  readonly displayName: string
  readonly policies: readonly string[]
  readonly isRoot: boolean
  /** Empty for a token without an entity. */
  readonly entityId: string
}

/** Proves the identity of a mount to an external service. */
export interface IdentityToken {
  /** A JSON Web Token, which is secret until it expires. */
  readonly token: string
  /** URL of the issuer that signed it. */
  readonly issuer: string
}

export interface IdentityTokenRequest {
  readonly audience: string
  /** 0: the default of the issuer. */
  readonly ttlSeconds: number
}

export interface MountFacts {
  /** Ends with a slash. The path of an auth method begins with `auth/`. */
  readonly path: string
  readonly type: string
  readonly uuid: string
  readonly accessor: string
  readonly options: Readonly<Record<string, string>>
  /** Default TTL of leases and tokens. */
  readonly defaultLeaseSeconds: number
  /** Maximum TTL of leases. */
  readonly maxLeaseSeconds: number
  /** Keyed by a secret of the mount: hides names in paths of the store. */
  readonly secret: KeyedHash
  /**
   * Resolves with a new token that identifies the mount, for a service that trusts this server as an issuer. Rejects with
   * a Rejection (400) for an invalid request, and once the core is sealed.
   */
  readonly identityToken: (request: IdentityTokenRequest) => Promise<IdentityToken>
}

export interface EngineCall {
  readonly mount: MountFacts
  /** Relative to the mount, in canonical form: case-insensitive names are folded. */
  readonly path: string
  /** The same as the caller wrote it: for texts of the response, never for lookups. */
  readonly givenPath: string
  readonly verb: EngineVerb
  /** Limited to the prefix of the mount; the whole barrier for engines of the core. */
  readonly storage: Storage
  readonly caller: Caller
  readonly requestId: string
  /** The clock of TTLs, which does not jump when the system clock is set. */
  readonly nowMs: number
  /** The current time of the same clock, for handlers that wait for an external service. */
  readonly now: () => number
  /** The system clock, for protocols that compare clocks, such as time-based codes. It may jump in both directions. */
  readonly wallMs: number
  /** The members of the body or, without a body, of the query, undeclared fields included. */
  readonly data: Readonly<Record<string, unknown>>
  /** The JSON text of the body, for engines that keep numbers as they were written. */
  readonly bodyText: string | undefined
  /** Whether the caller's policies also grant `sudo` on this path, for paths that require it for some requests only. */
  readonly sudo: boolean
  /** Whether they allow another request below this mount, with this data. */
  readonly allows: (verb: EngineVerb, path: string, data?: Readonly<Record<string, unknown>>) => boolean
  /**
   * Whether a rule forbids another request below this mount: denies it, limits its parameters, or requires a code that this
   * request does not have. A request that no rule grants is not forbidden. For paths that are granted by their own rule.
   */
  readonly forbids: (verb: EngineVerb, path: string, data?: Readonly<Record<string, unknown>>) => boolean
  /** Whether they may allow any request below a folder of this mount. The folder ends with a slash. */
  readonly reaches: (folder: string) => boolean
  /** Maximum number of names in a list, by the caller's policy. */
  readonly limitMax: number | undefined
  /** The client's address, if known. */
  readonly remote: string | undefined
  readonly signal: AbortSignal
  /** Aborts when the server stops: a request that waits for a change responds immediately. */
  readonly draining: AbortSignal | undefined
  /** Set if the caller requested server-sent events, with the cursor from which it resumes. */
  readonly eventStream: { readonly lastCursor: string | undefined } | undefined
  /** Whether the response will be wrapped. */
  readonly isWrapped: boolean
  /** Failed logins of this mount. */
  readonly failures: LoginFailures
  /** The token itself, only for engines of the core that return it to its holder. Never store or log it. */
  readonly token: string | undefined
}

/** Requests a lease: the core stores it, returns its ID and has it revoked. */
export interface LeaseRequest {
  /** 0: the default of the mount. Capped by the maximum of the mount. */
  readonly ttlSeconds: number
  /** Maximum TTL including renewals, from the issue time. 0: the maximum of the mount. */
  readonly maxTtlSeconds: number
  readonly renewable: boolean
  /** What the engine needs to revoke it, as JSON. */
  readonly internal: Readonly<Record<string, unknown>>
}

/** A lease, passed to the engine that issued it. */
export interface LeaseCall {
  readonly mount: MountFacts
  /** Limited to the prefix of the mount. */
  readonly storage: Storage
  readonly leaseId: string
  /** Path of the request that created it, relative to the mount. */
  readonly path: string
  readonly internal: Readonly<Record<string, unknown>>
  readonly issuedAtMs: number
  readonly nowMs: number
  readonly signal: AbortSignal
}

/** What a login needs before it gets its token: for each constraint, a code of one of its methods. */
export interface MfaRequirement {
  readonly mfa_request_id: string
  readonly mfa_constraints: Readonly<Record<string, { readonly any: readonly object[] }>>
}

/** A mount, passed to the periodic work of its engine. */
export interface PeriodicCall {
  readonly mount: MountFacts
  /** Limited to the prefix of the mount; the same object as in requests to the mount. */
  readonly storage: Storage
  readonly nowMs: number
  readonly logger: Logger
  /** Aborts when the core is sealed. */
  readonly signal: AbortSignal
}

/** The block of a response that contains a token. */
export interface AuthBlock {
  readonly client_token: string
  readonly accessor: string
  /** Null while there is no token. */
  readonly policies: readonly string[] | null
  readonly token_policies?: readonly string[]
  /** Policies of the entity and its groups. */
  readonly identity_policies?: readonly string[]
  readonly metadata: Readonly<Record<string, string>> | null
  readonly lease_duration: number
  readonly renewable: boolean
  readonly entity_id: string
  /** `default` while there is no token. */
  readonly token_type: 'service' | 'batch' | 'default'
  readonly orphan: boolean
  readonly mfa_requirement: MfaRequirement | null
  readonly num_uses: number
}

/** One event of a stream. */
export interface StreamEvent {
  /** Resumes the stream after this event. One line of text. */
  readonly cursor: string
  /** Absent for the usual kind. */
  readonly kind?: string
  /** Absent in a heartbeat, which only has the cursor. */
  readonly value?: Readonly<Record<string, unknown>>
}

/** The result of a handler. Undefined is 204 for a write and 404 for a read. */
export interface Reply {
  readonly data?: Readonly<Record<string, unknown>> | JsonText | null
  readonly warnings?: readonly string[]
  readonly auth?: AuthBlock
  /** A successful login: the core creates the token and commits it together with `batch`. */
  readonly login?: LoginGrant
  /**
   * Names of aliases whose user or role is removed by `batch`. The core removes these aliases from their entities in the same
   * commit, so the next user or role of that name gets a new entity.
   */
  readonly releasedAliases?: readonly string[]
  /** Validity of data that has no lease. */
  readonly leaseSeconds?: number
  /** The data gets a lease, which is committed together with `batch`. */
  readonly lease?: LeaseRequest
  /** The lease in the response. The core sets it for `lease`. */
  readonly leased?: { readonly id: string; readonly renewable: boolean; readonly seconds: number }
  /** The response is only the wrapping token. */
  readonly wrapped?: Readonly<object>
  /** Replaces the default status. The body is the envelope; without `data` and `warnings` there is none. */
  readonly status?: number
  /** Repeats the members of `data` at the top level, for old clients. */
  readonly flattened?: boolean
  /** The whole body, without an envelope. */
  readonly bare?: unknown
  /** The whole body, if it is not JSON. */
  readonly text?: { readonly body: string; readonly contentType: string }
  readonly headers?: Readonly<Record<string, string>>
  /**
   * Batches of events, instead of all other members. The iteration begins when the caller reads, and continues as it reads. It
   * must end soon after `call.signal` aborts, and send heartbeats: with each event the core checks that the caller is connected
   * and still authorized. What it throws becomes the last event.
   */
  readonly stream?: AsyncIterable<readonly StreamEvent[]>
  /** Limited to the engine's prefix; durable before the response is sent. */
  readonly batch?: Batch
  /** What engines of the core write elsewhere in the same commit. */
  readonly parts?: readonly CommitPart[]
  /** Called once the commit is durable or has failed. */
  readonly onSettled?: () => void
}

export type HandlerResult = Reply | undefined | Promise<Reply | undefined>
export type EngineHandler<In> = (input: In, call: EngineCall) => HandlerResult

/** Another request to the same mount whose response is revealed in part. */
export interface ImpliedRead {
  readonly operation: EngineVerb
  /** Relative to the mount. */
  readonly path: string
  /** Which segments fold. Set for the request itself in canonical form, if that differs from its path: it must be granted. */
  readonly folds?: FoldShape
}

/** One kind of request below a mount. */
export interface PathDeclaration<F extends EngineFields> {
  /**
   * `roles/:name`. At the end `:rest*` matches the remaining path with slashes, which may be empty, and `:rest+` a remaining
   * path that is not empty. Before the end both match one segment or more.
   */
  readonly pattern: string
  readonly summary: string
  /**
   * Fields `inPath` are parameters of the pattern, the others are members of the body or of the query. A name that the engine
   * compares case-insensitively declares its `fold`. Handlers never fold a parameter of the path themselves.
   */
  readonly fields: F
  /** Does not require a token. */
  readonly unauthenticated?: boolean
  /** Does not require a token, but identifies the caller by a valid one. Policies are not evaluated. */
  readonly tokenOptional?: boolean
  /**
   * Requires a token with `sudo`, except while `isAllowed`: then any caller is accepted, and `call.sudo` tells whether the token
   * has it. `refusal` has the texts of the 405 for a caller without a token otherwise.
   */
  readonly withoutToken?: { readonly isAllowed: () => boolean; readonly refusal: readonly string[] }
  /** A DELETE may have a JSON body. Otherwise its data is the query. */
  readonly bodyOfDelete?: boolean
  /** Limit of the request body, if lower than the general one: 413 above it. */
  readonly bodyCharactersMax?: number
  /** Its reads create something, so they are recorded in the audit log before they run. */
  readonly readChanges?: boolean
  /** Requires the capability `sudo` in addition to that of the operation; may depend on the verb. */
  readonly sudo?: boolean | ((verb: EngineVerb) => boolean)
  /**
   * Also served while the core is sealed or not initialized, then without authentication, as tokens cannot be looked up. Implies
   * that the handler does not read the barrier.
   */
  readonly whileSealed?: boolean
  /**
   * Also served by a DR secondary, whose core is closed, then to every caller. `read`: only operations that read.
   */
  readonly onSecondary?: boolean | 'read'
  /** Also served by a fenced primary, as paths that are served while sealed or by a secondary always are. */
  readonly whileFenced?: boolean
  /** Accepts undeclared fields without a warning: the data is the caller's. */
  readonly anyFields?: boolean
  /**
   * What else a response reveals, by the parameters of the path. A rule that denies one of these requests denies this one, and
   * codes that it requires are required here. A missing grant does not deny it.
   */
  readonly reads?: (params: Readonly<Record<string, string>>, verb: EngineVerb) => readonly ImpliedRead[]
  /** Distinguishes `create` from `update`. Absent: every write is an update. Runs before policies: its errors must reveal nothing. */
  readonly exists?: (input: EngineInput<F>, call: EngineCall) => boolean
  readonly read?: EngineHandler<EngineInput<F>>
  readonly list?: EngineHandler<EngineInput<F>>
  readonly scan?: EngineHandler<EngineInput<F>>
  /** Absent: `update` handles it. */
  readonly create?: EngineHandler<EngineInput<F>>
  readonly update?: EngineHandler<EngineInput<F>>
  readonly patch?: EngineHandler<EngineInput<F>>
  readonly delete?: EngineHandler<EngineInput<F>>
}

/** A path with the type of its input erased. */
export interface Path extends Omit<PathDeclaration<EngineFields>, 'exists' | EngineVerb> {
  readonly exists: ((input: object, call: EngineCall) => boolean) | undefined
  readonly handlers: Readonly<Partial<Record<EngineVerb, EngineHandler<object>>>>
}

/** Makes a path of a declaration. */
export function path<F extends EngineFields>(declaration: PathDeclaration<F>): Path {
  const { read, list, scan, create, update, patch, delete: remove, exists, ...rest } = declaration
  const handlers: Partial<Record<EngineVerb, EngineHandler<EngineInput<F>>>> = {
    ...(read && { read }),
    ...(list && { list }),
    ...(scan && { scan }),
    ...(update && { create: create ?? update, update }),
    ...(create && { create }),
    ...(patch && { patch }),
    ...(remove && { delete: remove }),
  }
  // The type of the input is erased here only. A cast, because a function cannot accept more inputs than it declares; `readFields` makes
  // the input from the same fields.
  return { ...rest, exists: exists as Path['exists'], handlers: handlers as Path['handlers'] }
}

/** A counter with a point for each combination of labels. The engine bounds their number. */
export interface EngineMetric {
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
  /** For operators. */
  readonly description: string
  /** `auth`: mounted below `auth/` only. Absent: `secret`, mounted anywhere else. */
  readonly kind?: 'secret' | 'auth'
  /** Each core has exactly one mount of it, which cannot be moved or disabled. */
  readonly isSingle?: boolean
  /** Other type names with which it may be enabled, and the options that they imply. */
  readonly aliases?: Readonly<Record<string, MountOptions>>
  /** Further types of its mounts. Unlike an alias, such a type is stored and reported, and its mounts have no version. */
  readonly furtherTypes?: readonly string[]
  /**
   * Revokes a lease. The returned batch is committed together with the removal of the lease. Must be idempotent: it is called
   * again if the process was killed in between, or later if it throws. Absent: leases of the engine expire by themselves.
   */
  revoke?(call: LeaseCall): Promise<Batch | undefined> | Batch | undefined
  /**
   * Whether `revoke` of a lease with this `internal` has no external effect. Such a lease is removed in one commit. Otherwise, and
   * if absent, the start of the revocation is durable before `revoke` is called.
   */
  isRevokedInside?(internal: Readonly<Record<string, unknown>>): boolean
  /**
   * The core removes a lease without `revoke` (`sys/leases/revoke-force`). The returned batch is committed together with the
   * removal.
   */
  forget?(call: LeaseCall): Batch | undefined
  /**
   * Background work: rolling back what a killed process left, rotation. Called about once a second for each mount while the core
   * is active, never concurrently for one mount. It writes with `call.storage.commit`. What it throws is logged.
   */
  periodic?(call: PeriodicCall): Promise<void> | undefined
  /**
   * Called before the mount is disabled, after its leases were revoked. Undoes the remaining external effects. Resolves with
   * texts about those that it could not undo, which prevent the disabling.
   */
  release?(call: PeriodicCall): Promise<readonly string[]>
  /** What operators count in a mount: each is one entry directly below the folder. */
  readonly counted?: { readonly noun: 'secrets' | 'keys' | 'roles' | 'users'; readonly folder: string }
  /** Counters of a mount since the start of the process: the same families for every mount. Must be fast. */
  metrics?(where: { readonly mount: MountFacts; readonly storage: Storage }): readonly EngineMetric[]
  /** Throws a Refusal for a lease that may not be renewed now. Absent: every renewable lease may be renewed. */
  renew?(call: LeaseCall): Promise<void> | void
  /**
   * The current terms of a login: its token is to be renewed or, with the mark of its grant, created only now. Throws a
   * Rejection (400) if the user or role was removed, or if the credentials of the mark are no longer valid.
   */
  renewLogin?(
    subject: string,
    mount: { readonly facts: MountFacts; readonly storage: Storage },
    mark?: string,
  ): LoginRenewal
  /**
   * Validates the options of a mount that is enabled or, with those `before`, tuned. Returns the options to store. Throws
   * a Rejection. Absent: the engine has no options, and all except `version` are accepted.
   */
  checkOptions?(given: MountOptions, before?: MountOptions): CheckedOptions
  /** The paths of a mount, if they depend on its options. Must return the same list for the same kind of mount. */
  pathsFor?(options: MountOptions): readonly Path[]
}

export interface CheckedOptions {
  readonly options: MountOptions
  readonly warnings?: readonly string[]
}

/** Members of the response beside the errors. */
export interface RejectionMembers {
  /** Documentation. Stock clients show the errors of a 404 only if there is another member. */
  readonly link?: string
}

/** A refusal with the status and the texts that stock clients expect. */
export class Rejection extends Refusal {
  override readonly name = 'Rejection'
  readonly #texts: readonly string[]
  readonly members: RejectionMembers

  constructor(status: number, texts: string | readonly string[] = [], members: RejectionMembers = {}) {
    super(codeOfStatus(status), typeof texts === 'string' ? texts : texts.join('; '), {}, status)
    this.#texts = typeof texts === 'string' ? [texts] : texts
    this.members = members
  }

  override get texts(): readonly string[] {
    return this.#texts
  }
}

/**
 * The rejection of a feature that outpost does not have. 405, because clients take 404 for an entry that does not exist, and a 5xx for a
 * fault.
 */
export function unsupported(feature: UnsupportedFeature, status = 405, texts: readonly string[] = []): Rejection {
  const text = unsupportedText(feature)
  return new Rejection(status, texts.length === 0 ? oneError(text) : [...texts, text], {
    link: unsupportedLink(feature),
  })
}

/** Several errors as one text, in the format of Vault (Go's multierror). */
export function errorList(texts: readonly string[]): string {
  const head = texts.length === 1 ? '1 error' : `${texts.length} errors`
  return `${head} occurred:\n${texts.map((each) => `\t* ${each}\n`).join('')}\n`
}

export function oneError(text: string): string {
  return errorList([text])
}

/** For a caller whose policies do not allow the request. */
export function denied(): Rejection {
  return new Rejection(403, oneError('permission denied'))
}
