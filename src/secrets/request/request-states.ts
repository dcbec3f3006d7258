/** A request on its way through the core: what it needs of the core, and what is known of it step by step (`handle.ts`). */
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
import type { DrFence } from '../dr/dr-replication.ts'
import type { RequestCounts } from './request-counts.ts'
import type { RequestHead, Verb } from './request.ts'
import type { Settling } from './commit-reply.ts'
import type { AdmittedCaller } from '../tokens/token-admission.ts'

/** What the way through the core needs of it. */
export interface Core extends Settling {
  readonly isActive: boolean
  /** The cluster is a secondary for disaster recovery: it serves what paths declare, and the core is closed. */
  readonly isSecondary: boolean
  /** For what it does not serve then. */
  disabledOnSecondary(): Error
  /** Why the cluster is a fenced primary: it serves what paths declare. */
  readonly fence: DrFence | undefined
  readonly inFlight: InFlight
  readonly requestCounts: RequestCounts
  /** Throws a Refusal (503) while the core is not active. */
  readonly mfa: Mfa
  /** Absent while the core is not active. */
  readonly audit: AuditTrail | undefined
  /** Absent where no request is counted: there is no quota, or the core is not active. */
  readonly quotas: Quotas | undefined
  find(path: string): ResolvedPath | undefined
  /** Whether `admit` would let a token in; takes no use of it. False while the core is not active. */
  knows(token: string | undefined, remote: string | undefined): boolean
  /** Throws a Rejection (403) for a token that is none. */
  admit(token: string | undefined, remote: string | undefined): AdmittedCaller
  readonly nobody: AdmittedCaller
  /** Failed logins of a mount. */
  failuresOf(mount: ResolvedPath['mount']): LoginFailures
  now(): number
  wallMs(): number
}

/** What is known of a request, for the access log and the figures, however it ends. */
export interface Trace {
  accessor: string
  /** Path of the mount that it is for. */
  mount: string | undefined
  verb: Verb
  /** What the answer says of the quota that the request counts against. */
  headers?: Readonly<Record<string, string>> | undefined
  /** What the handler replied; absent for a request that was refused, and for a stream. */
  reply?: Reply | undefined
  /** The token that the answer was wrapped below. */
  wrapped?: Readonly<object> | undefined
}

/** What a request is for. Its path is canonical in `head`, `place` and `match` alike. */
export interface Target {
  readonly head: RequestHead
  /** The path of `head`, with what policies need to know of it. */
  readonly canonical: CanonicalPath
  /** Path below the mount as the caller spelled it. */
  readonly givenRest: string
  readonly raw: RawInput
  readonly call: Call
  readonly place: ResolvedPath | undefined
  readonly match: PathMatch | undefined
  readonly trace: Trace
}

/** Who is let in, and how. */
export interface Entry {
  readonly admitted: AdmittedCaller
  /** No policies are asked. */
  readonly isOpen: boolean
}

export interface Request extends Target, Entry {
  readonly body: BodyReader
}
