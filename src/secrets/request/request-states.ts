/** The states of a request in `handle-request.ts`, and the interface of the core that `handle-request.ts` uses. */
import type { Reply } from '../../engines/framework/engine.ts'
import type { LoginFailures } from '../../engines/framework/login-grant.ts'
import type { CanonicalPath, PathMatch } from '../../engines/framework/path-table.ts'
import type { Call } from '../../platform/operation.ts'
import type { RawInput } from '../../platform/schema.ts'
import type { AuditTrail } from '../audit/audit.ts'
import type { BodyReader } from './body-reader.ts'
import type { InFlight } from './in-flight.ts'
import type { Mfa } from '../mfa/mfa.ts'
import type { ResolvedPath } from '../mounts/mounts.ts'
import type { Quotas } from '../quotas/quotas.ts'
import type { DrFence } from '../dr-endpoints/dr-side.ts'
import type { RequestCounts } from './request-counts.ts'
import type { CoreRequestHead, Verb } from './parse-request.ts'
import type { CommitServices } from './commit-reply.ts'
import type { AdmittedCaller } from '../tokens/token-admission.ts'

export interface Core extends CommitServices {
  readonly isActive: boolean
  /** As `Barrier.settled`. */
  readonly barrier: { settled(): Promise<unknown> | undefined }
  /** The cluster is a DR secondary: it serves only the paths that declare it, and the core is not active. */
  readonly isSecondary: boolean
  /** The error for a path that a secondary does not serve. */
  disabledOnSecondary(): Error
  /** Set if the cluster is a fenced primary, which serves only the paths that declare it. */
  readonly fence: DrFence | undefined
  readonly inFlight: InFlight
  readonly requestCounts: RequestCounts
  /** Throws a Refusal (503) while the core is not active. */
  readonly mfa: Mfa
  /** Absent while the core is not active. */
  readonly audit: AuditTrail | undefined
  /** Absent if there is no quota, or the core is not active. */
  readonly quotas: Quotas | undefined
  find(path: string): ResolvedPath | undefined
  /** Whether `admit` would accept a token; consumes no use of it. False while the core is not active. */
  knows(token: string | undefined, remote: string | undefined): boolean
  /** Throws a Rejection (403) for an invalid token. */
  admit(token: string | undefined, remote: string | undefined): AdmittedCaller
  /** The admission of a caller without a token. */
  readonly anonymous: AdmittedCaller
  /** The failed logins of a mount. */
  failuresOf(mount: ResolvedPath['mount']): LoginFailures
  /** Resolves when the failed logins so far are durable. Rejects if they could not be stored. */
  failuresRecorded(): Promise<void>
  now(): number
  wallMs(): number
}

/** Facts for the access log, the metrics and the audit trail. They are filled step by step, also if the request fails. */
export interface RequestTrace {
  accessor: string
  /** Path of the mount. */
  mount: string | undefined
  verb: Verb
  /** Headers of the quota that the request counts against. */
  headers?: Readonly<Record<string, string>> | undefined
  /** The handler's reply; absent for a refused request and for a stream. */
  reply?: Reply | undefined
  /** The info of the wrapping token. */
  wrapped?: Readonly<object> | undefined
}

/** The head of a request with its mount and endpoint. The path is canonical in `head`, `resolved` and `match`. */
export interface ResolvedTarget {
  readonly head: CoreRequestHead
  /** The path of `head` as policies match it. */
  readonly canonical: CanonicalPath
  /** Path below the mount as the caller spelled it. */
  readonly givenRest: string
  readonly raw: RawInput
  readonly call: Call
  readonly resolved: ResolvedPath | undefined
  readonly match: PathMatch | undefined
  readonly trace: RequestTrace
}

/** A caller that was admitted. */
export interface CallerAdmission {
  readonly admitted: AdmittedCaller
  /** The path is open: no policies are checked. */
  readonly isOpen: boolean
}

export interface Request extends ResolvedTarget, CallerAdmission {
  readonly body: BodyReader
}
