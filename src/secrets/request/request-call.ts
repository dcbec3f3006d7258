import type { Caller, EngineCall, EngineVerb } from '../../engines/framework/engine.ts'
import type { LoginFailures } from '../../engines/framework/login-grant.ts'
import type { Call } from '../../platform/operation.ts'
import type { RawInput } from '../../platform/schema.ts'
import { canonicalAt } from '../../engines/framework/path-table.ts'
import type { ResolvedPath } from '../mounts/mounts.ts'
import type { RequestBody } from './parse-request.ts'
import type { Core, Request } from './request-states.ts'
import type { Decision } from '../policies/acl.ts'
import { type Grant, isForbidden } from './authorization.ts'
import { eventStreamOf } from './event-stream.ts'
import type { AdmittedCaller } from '../tokens/token-admission.ts'

/** A request as its engine sees it. Properties that few engines use are computed on access. */
export class RequestCall implements EngineCall {
  readonly mount: EngineCall['mount']
  readonly path: string
  readonly givenPath: string
  verb: EngineVerb = 'read'
  readonly storage: EngineCall['storage']
  readonly caller: Caller
  readonly requestId: string
  readonly nowMs: number
  readonly now: () => number
  readonly #wallMs: () => number
  readonly data: EngineCall['data']
  readonly bodyText: string | undefined
  sudo = false
  readonly isWrapped: boolean
  limitMax: number | undefined
  /** MFA methods whose codes were valid. */
  #verifiedMethods: readonly string[] = []
  readonly remote: string | undefined
  readonly token: string | undefined
  readonly #wrapTtlSeconds: number | undefined
  readonly #admitted: AdmittedCaller
  readonly #mount: ResolvedPath['mount']
  readonly #call: Call
  readonly #raw: RawInput
  readonly #failures: () => LoginFailures

  constructor(
    core: Core,
    { admitted, call, givenRest, head, raw }: Request,
    { mount, rest }: ResolvedPath,
    body: RequestBody,
  ) {
    this.mount = mount.facts
    this.path = rest
    this.givenPath = givenRest
    this.#mount = mount
    this.storage = mount.storage
    this.caller = admitted.caller
    this.requestId = call.requestId
    this.nowMs = core.now()
    this.now = () => core.now()
    this.#wallMs = () => core.wallMs()
    this.data = body.data
    this.bodyText = body.text
    this.remote = call.remote
    this.isWrapped = head.wrapping !== undefined
    this.#wrapTtlSeconds = head.wrapping?.ttlSeconds
    this.token = mount.isOwn ? call.token : undefined
    this.#admitted = admitted
    this.#call = call
    this.#raw = raw
    this.#failures = () => core.failuresOf(mount)
  }

  get wallMs(): number {
    return this.#wallMs()
  }

  get failures(): LoginFailures {
    return this.#failures()
  }

  get signal(): AbortSignal {
    return this.#call.signal
  }

  get draining(): AbortSignal | undefined {
    return this.#call.draining
  }

  get eventStream(): EngineCall['eventStream'] {
    return eventStreamOf(this.#raw)
  }

  /** Sets what the check of the caller's policies has granted. */
  setGrant(verb: EngineVerb, { limit, mfaMethods = [], sudo }: Grant): void {
    this.verb = verb
    this.#verifiedMethods = mfaMethods
    this.sudo = sudo
    this.limitMax = limit
  }

  /** A code is valid for everything that the request reads and changes. */
  readonly allows: EngineCall['allows'] = (operation, path, data = {}) => {
    const { allowed, mfaMethods, reason } = this.#judge(operation, path, data, undefined)
    return allowed || (reason === 'second factor' && mfaMethods.every((name) => this.#verifiedMethods.includes(name)))
  }

  /** The answer is that of the request itself, so its wrapping counts. */
  readonly forbids: EngineCall['forbids'] = (operation, path, data = {}) =>
    isForbidden(this.#judge(operation, path, data, this.#wrapTtlSeconds), this.#verifiedMethods)

  #judge(operation: EngineVerb, path: string, data: EngineCall['data'], wrapTtlSeconds: number | undefined): Decision {
    const canonical = canonicalAt(this.mount.path + path, { mount: this.#mount, rest: path })
    return this.#admitted.decide({ ...canonical, operation, data, wrapTtlSeconds })
  }

  readonly reaches: EngineCall['reaches'] = (folder) => this.#admitted.reaches(this.mount.path + folder)
}
