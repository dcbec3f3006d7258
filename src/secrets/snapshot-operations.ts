/**
 * Snapshots over HTTP: `GET` saves one while the core serves requests, `POST` replaces all entries by those of a snapshot. The
 * bodies are streams of any length, so these are separate operations. The core checks the caller's policies and the audit devices
 * record the request, as for any other path.
 *
 * Vault's commands use the paths with `raft`.
 *
 * `storage/snapshot-new` needs no token, because an uninitialized server has none: any client that can connect may restore a
 * snapshot into it, as it may initialize it. Both are refused once the server is initialized, and they are mutually exclusive. An
 * interrupted upload leaves the server uninitialized. Each client address has at most one upload, so that a slow client cannot
 * block other addresses.
 */
import { PassThrough, Readable } from 'node:stream'
import { isOutOfSpace, isStoreUnavailable } from '../storage/barrier/barrier.ts'
import { KEY_PATHS } from '../storage/seal/seal.ts'
import { denied } from '../engines/framework/engine.ts'
import { Fault, Refusal, sealed } from '../platform/errors.ts'
import { type AnyOperation, type Call, type Chunk, handle, type EndpointBinding } from '../platform/operation.ts'
import { header, queryBoolean, schema } from '../platform/schema.ts'
import type { SecretsCore } from './core.ts'
import { RequestAudit, type AuditContext } from './audit/request-audit.ts'
import { AuditFault } from './audit/audit.ts'
import { parseMfaHeader } from './mfa/mfa-header.ts'
import { stepUp } from './mfa/step-up.ts'
import { originOf } from './system/seal/seal-access.ts'
import { type AdmittedCaller, finishUse } from './tokens/token-admission.ts'

export interface SnapshotRestore {
  readonly force: boolean
  readonly signal: AbortSignal
  /** Called when the entries of the snapshot have replaced the others. */
  readonly onReplaced: () => void
  /** Paths that the snapshot must have. */
  readonly requires?: readonly string[]
  /** Called when the whole snapshot was received, with the function that replaces the entries. */
  readonly withLock?: (replace: () => Promise<void>) => Promise<void>
}

/** The interface of the store, which this module may not import. */
export interface SnapshotService {
  /** Writes a snapshot and ends the stream. */
  save(out: PassThrough, signal: AbortSignal): Promise<unknown>
  /** Rejects with a Refusal for a malformed snapshot, or without `force` for one of another cluster. */
  restore(input: Readable, options: SnapshotRestore): Promise<unknown>
  /** The client has received a whole snapshot. */
  onSaved(): void
}

const PLAIN = 'storage/snapshot'
const RAFT = 'storage/raft/snapshot'
const FORCED = 'storage/raft/snapshot-force'
const NEW = 'storage/snapshot-new'

const codes = {
  x_vault_mfa: header('Codes of MFA methods that a policy requires: `METHOD:CODE`, several separated by commas'),
}
const input = schema({
  ...codes,
  force: queryBoolean({ description: 'Accept the snapshot of another cluster', fallback: false }),
})

interface SnapshotParts {
  readonly core: SecretsCore
  readonly snapshots: SnapshotService
}

/** Policies are checked for the path of the request: a rule for one path does not apply to the others. */
interface SnapshotEndpoint {
  readonly name: string
  readonly path: typeof PLAIN | typeof RAFT | typeof FORCED
}

interface AuthorizedCall {
  /** The request's line is recorded; undefined if there is no audit device. */
  readonly requestAudit: RequestAudit | undefined
  /** Throws a Refusal if the caller would not be authorized now. */
  readonly checkAgain: () => void
  /** Fields for the log */
  readonly origin: ReturnType<typeof originOf>
}

/** Throws a Refusal if the caller is not authorized. The use of a token with limited uses is durable before this resolves. */
async function authorize(
  core: SecretsCore,
  call: Call,
  operation: 'read' | 'update',
  paths: readonly [SnapshotEndpoint['path'], ...SnapshotEndpoint['path'][]],
): Promise<AuthorizedCall> {
  if (core.isSecondary) throw core.disabledOnSecondary()
  if (!core.isActive) throw sealed()
  const admission = admit(core, call)
  const requestAudit = auditOf(core, call, { verb: operation, path: `sys/${paths[0]}`, wrapping: undefined }, admission)
  let isUsed = false
  try {
    await requestAudit?.recordRequest()
    if ('error' in admission) throw admission.error
    const check = { caller: admission.caller, call, operation, paths }
    const [verified] = await Promise.allSettled([checkPermission(core, check)])
    isUsed = true
    await finishUse(admission.caller)
    if (verified.status === 'rejected') throw verified.reason
    const origin = originOf({ caller: admission.caller.caller, remote: call.remote })
    return { requestAudit, checkAgain: () => checkAgain(core, check, verified.value), origin }
  } catch (error) {
    // If no device has recorded the request, the token's use is consumed nevertheless.
    if (!isUsed && 'caller' in admission) await finishUse(admission.caller).catch(() => undefined)
    await recordError(requestAudit, error)
    if (isOutOfSpace(error)) throw new Refusal('insufficient_storage', error.message)
    if (isStoreUnavailable(error)) throw new Refusal('unavailable', error.message)
    throw unrecorded(error)
  }
}

/** An AuditFault as a Refusal, whose text callers see; the core's other endpoints answer with the same text. */
function unrecorded(error: unknown): unknown {
  return error instanceof AuditFault ? new Refusal('host_error', error.message) : error
}

interface PermissionCheck {
  readonly caller: AdmittedCaller
  readonly call: Call
  readonly operation: 'read' | 'update'
  readonly paths: readonly SnapshotEndpoint['path'][]
}

/** Throws a Rejection if the caller has no permission. Verifies the required MFA codes and returns their methods. */
async function checkPermission(core: SecretsCore, check: PermissionCheck): Promise<readonly string[]> {
  const { call, caller } = check
  const credentials = parseMfaHeader(call.raw.headers['x_vault_mfa'])
  const methods = requiredMethods(check)
  if (methods.length === 0) return methods
  await stepUp(core.mfa, caller.caller, methods, credentials)
  // The policies may have changed meanwhile.
  refuseOtherMethods(check, methods)
  return methods
}

/** Throws a Rejection if the policies require codes of methods that were not verified. */
function refuseOtherMethods(check: PermissionCheck, verified: readonly string[]): void {
  if (requiredMethods(check).some((name) => !verified.includes(name))) throw denied()
}

/** A transfer may take hours, so the caller's permission is checked during all of it. */
function checkAgain(core: SecretsCore, check: PermissionCheck, verified: readonly string[]): void {
  const { caller } = check
  if (!core.isActive) throw sealed()
  // A token with limited uses is revoked by its last use, so it may be gone already.
  if (!caller.use && !caller.isValid()) throw denied()
  refuseOtherMethods(check, verified)
}

/** MFA methods whose codes the caller's policies require. Throws a Rejection if the caller has no permission even with codes. */
function requiredMethods({ caller, operation, paths }: PermissionCheck): string[] {
  const methods = new Set<string>()
  for (const path of paths) {
    const decision = caller.decide({ operation, path: `sys/${path}`, data: {}, wrapTtlSeconds: undefined })
    const isAllowed = decision.allowed || decision.reason === 'second factor'
    // A restore deletes all entries.
    if (!isAllowed || (operation === 'update' && !decision.sudo)) throw denied()
    for (const name of decision.mfaMethods) methods.add(name)
  }
  return [...methods]
}

type AdmissionResult = { readonly caller: AdmittedCaller } | { readonly error: unknown }

function admit(core: SecretsCore, call: Call): AdmissionResult {
  try {
    return { caller: core.admit(call.token, call.remote) }
  } catch (error) {
    return { error }
  }
}

/** Undefined if there is no audit device. */
function auditOf(
  core: SecretsCore,
  call: Call,
  head: AuditContext['head'],
  admission: AdmissionResult,
): RequestAudit | undefined {
  const { audit } = core
  if (!audit?.isOn) return undefined
  const { caller } = 'caller' in admission ? admission.caller : core.anonymous
  const { raw, remote, requestId, token } = call
  const context = { head, requestId, token, remote, caller, nowMs: core.now(), mount: undefined, data: undefined }
  return new RequestAudit(audit, { ...context, isReadOnly: false }, raw)
}

async function recordSuccess(requestAudit: RequestAudit | undefined): Promise<void> {
  try {
    await requestAudit?.recordReply(undefined)
  } catch (error) {
    throw unrecorded(error)
  } finally {
    requestAudit?.close()
  }
}

async function recordError(requestAudit: RequestAudit | undefined, error: unknown): Promise<void> {
  try {
    if (!(error instanceof AuditFault)) await requestAudit?.recordError(error)
  } finally {
    requestAudit?.close()
  }
}

async function runAudited(requestAudit: RequestAudit | undefined, work: () => Promise<void>): Promise<void> {
  try {
    await work()
  } catch (error) {
    await recordError(requestAudit, error)
    throw error
  }
  await recordSuccess(requestAudit)
}

function saveOperation({ name, path }: SnapshotEndpoint): EndpointBinding<SnapshotParts> {
  return handle(
    {
      name,
      summary: 'Save a snapshot of the encrypted secrets while the server runs',
      http: [`GET /v1/sys/${path}`],
      target: 'server',
      input: schema(codes),
      output: 'stream',
      errorFormat: 'errors',
      ownToken: true,
      authorize: () => undefined,
    },
    ({ core, snapshots }: SnapshotParts) => ({
      run: (_input, call) => streamSnapshot(core, snapshots, path, call),
    }),
  )
}

async function* streamSnapshot(
  core: SecretsCore,
  snapshots: SnapshotService,
  path: SnapshotEndpoint['path'],
  call: Call,
): AsyncIterable<Chunk> {
  const { requestAudit, checkAgain: check, origin } = await authorize(core, call, 'read', [path])
  // The response is recorded before the first byte is sent.
  await recordSuccess(requestAudit)
  const out = new PassThrough()
  const written = snapshots.save(out, call.signal)
  // A failure before the first byte becomes the status, because the stream is destroyed with the same error.
  written.catch((error: unknown) => out.destroy(error instanceof Error ? error : new Fault(String(error))))
  let isStarted = false
  for await (const chunk of out as AsyncIterable<Buffer>) {
    if (!isStarted) yield { status: 200, contentType: 'application/gzip', headers: { 'Cache-Control': 'no-store' } }
    isStarted = true
    check()
    yield chunk
  }
  await written
  snapshots.onSaved()
  core.options.logger.info('snapshot saved', { path: `sys/${path}`, ...origin })
}

function restoreOperation({ name, path }: SnapshotEndpoint): EndpointBinding<SnapshotParts> {
  return handle(
    {
      name,
      summary: 'Restore a snapshot, which replaces all secrets',
      http: [`POST /v1/sys/${path}`, `PUT /v1/sys/${path}`],
      target: 'server',
      input,
      output: 'empty',
      emptyStatus: 204,
      errorFormat: 'errors',
      ownToken: true,
      takesStream: true,
      authorize: () => undefined,
    },
    ({ core, snapshots }: SnapshotParts) => ({
      async run({ force: isForced }, call) {
        const force = isForced || path === FORCED
        const { body } = call
        const paths = force ? ([path, FORCED] as const) : ([path] as const)
        const { requestAudit, checkAgain: check, origin } = await authorize(core, call, 'update', paths)
        const inTurn = (replace: () => Promise<void>) => {
          check()
          return replace()
        }
        const options = { force, signal: call.signal, withLock: inTurn, onReplaced: () => core.suspend() }
        try {
          await runAudited(requestAudit, async () => {
            if (!body) throw new Refusal('invalid_request', 'missing snapshot in the request body')
            await snapshots.restore(Readable.from(body, { objectMode: false }), options)
          })
          core.options.logger.warn('snapshot restored', { path: `sys/${path}`, force, ...origin })
        } finally {
          // After the response was recorded: this closes the previous devices and opens the files again.
          await core.resume()
        }
        return undefined
      },
    }),
  )
}

const INITIALISED =
  'this server is already initialized, nothing was changed: to replace its secrets with a snapshot, run ' +
  '"outpost operator snapshot restore FILE" with a token'

/** Concurrent uploads of unauthenticated clients. Each uses the disk space of a copy. */
const UPLOADS_MAX = 4

/** Limits the uploads of unauthenticated clients. */
class UploadLimit {
  readonly #addresses = new Set<string>()

  /** Returns the function that ends the upload. Throws a Refusal at the limit. */
  enter(remote = ''): () => void {
    // Loopback clients have separate slots, so that other hosts cannot block the operator.
    const isLocal = isLoopback(remote)
    const others = [...this.#addresses].filter((each) => isLoopback(each) === isLocal)
    if (this.#addresses.has(remote) || others.length >= UPLOADS_MAX) {
      throw new Refusal('conflict', 'another snapshot is being restored, try again later')
    }
    this.#addresses.add(remote)
    return () => this.#addresses.delete(remote)
  }
}

function isLoopback(address: string): boolean {
  return address === '::1' || address.startsWith('127.')
}

/** An alternative to `sys/init`. */
const restoreNew = handle(
  {
    name: 'secrets.snapshot_restore_new',
    summary: 'Restore a snapshot into an uninitialized server, which the key shares of the snapshot then unseal',
    http: [`POST /v1/sys/${NEW}`, `PUT /v1/sys/${NEW}`],
    target: 'server',
    input: schema({}),
    output: 'empty',
    emptyStatus: 204,
    errorFormat: 'errors',
    ownToken: true,
    takesStream: true,
    authorize: () => undefined,
  },
  ({ core, snapshots }: SnapshotParts) => {
    const { logger, seal } = core.options
    const refuseInitialised = () => {
      if (seal.status.initialised) throw new Refusal('invalid_request', INITIALISED)
      seal.refuseLost()
    }
    const uploads = new UploadLimit()
    return {
      async run(_input, call) {
        refuseInitialised()
        if (!call.body) throw new Refusal('invalid_request', 'missing snapshot in the request body')
        const leave = uploads.enter(call.remote)
        try {
          await snapshots.restore(Readable.from(call.body, { objectMode: false }), {
            force: true,
            signal: call.signal,
            requires: KEY_PATHS,
            withLock: (replace) =>
              seal.withLock(async () => {
                refuseInitialised()
                await replace()
                // Durable before the answer. The audit devices of the snapshot record it when the core is activated.
                const { remote = '', requestId } = call
                await seal.origin.write({ atMs: core.now(), requestId, remote })
              }),
            // The core was not active, so there is nothing to suspend.
            onReplaced: () => undefined,
          })
        } finally {
          leave()
        }
        const origin = { accessor: '', remote: call.remote ?? '' }
        logger.warn('snapshot restored into an uninitialized server', origin)
        return undefined
      },
    }
  },
)

const OPERATIONS: readonly EndpointBinding<SnapshotParts>[] = [
  saveOperation({ name: 'secrets.snapshot_save', path: PLAIN }),
  saveOperation({ name: 'secrets.snapshot_save_raft', path: RAFT }),
  restoreOperation({ name: 'secrets.snapshot_restore', path: PLAIN }),
  restoreOperation({ name: 'secrets.snapshot_restore_raft', path: RAFT }),
  restoreOperation({ name: 'secrets.snapshot_restore_force', path: FORCED }),
  restoreNew,
]

export function snapshotOperations(core: SecretsCore, snapshots: SnapshotService): AnyOperation[] {
  return OPERATIONS.map((each) => each.in({ core, snapshots }))
}
