/**
 * Snapshots over HTTP: `GET` takes one while everything goes on, `POST` puts one in the place of all there is. They are
 * streams of any length, so they are operations of their own; who may do it is asked of the core like anything else, and the
 * audit devices record it.
 *
 * The paths with `raft` in them are those that stock commands know.
 *
 * `storage/snapshot-new` needs no token, because an uninitialised server has none: whoever reaches it may restore a snapshot
 * into it, as whoever reaches it may initialise it. It is refused from the moment on in which the server is initialised,
 * by whichever of the two; both are decided in the same turn. One that is cut short leaves the server uninitialised. Each caller's
 * address has one upload at a time, so that a caller who sends slowly keeps nobody at another address out.
 */
import { PassThrough, Readable } from 'node:stream'
import { isOutOfSpace, isUntimely } from '../storage/barrier/barrier.ts'
import { KEY_PATHS } from '../storage/seal/seal.ts'
import { denied } from '../engines/framework/engine.ts'
import { Fault, Refusal, sealed } from '../platform/errors.ts'
import { type AnyOperation, type Call, type Chunk, handle, type RoomEndpoint } from '../platform/operation.ts'
import { header, queryBoolean, schema } from '../platform/schema.ts'
import type { SecretsCore } from './core.ts'
import { Account, type AccountOf } from './audit/account.ts'
import { AuditFault } from './audit/audit.ts'
import { parseMfaHeader } from './mfa/mfa-header.ts'
import { stepUp } from './mfa/step-up.ts'
import { originOf } from './system/seal/seal-log.ts'
import { type AdmittedCaller, finishUse } from './tokens/token-admission.ts'

export interface RestoreOptions {
  readonly force: boolean
  readonly signal: AbortSignal
  /** Called at the moment from which on the other entries are there. */
  readonly onReplaced: () => void
  /** Paths without which it is refused. */
  readonly requires?: readonly string[]
  /** Called with what puts the snapshot in place, once all of it has arrived. */
  readonly withLock?: (replace: () => Promise<void>) => Promise<void>
}

/** What the room needs of the store, which it may not import. */
export interface Snapshots {
  /** Writes a snapshot and ends the stream. */
  save(out: PassThrough, signal: AbortSignal): Promise<unknown>
  /** Throws a Refusal for what is no snapshot, or another cluster's without `force`. */
  restore(input: Readable, options: RestoreOptions): Promise<unknown>
  /** A snapshot was saved and its caller has taken all of it. */
  onSaved(): void
}

const PLAIN = 'storage/snapshot'
const RAFT = 'storage/raft/snapshot'
const FORCED = 'storage/raft/snapshot-force'
const NEW = 'storage/snapshot-new'

const codes = {
  x_vault_mfa: header('Codes of MFA methods that a policy asks for: `METHOD:CODE`, several separated by commas'),
}
const input = schema({
  ...codes,
  force: queryBoolean({ description: 'Also take the snapshot of another cluster', fallback: false }),
})

/** What the handlers are made of. */
interface SnapshotParts {
  readonly core: SecretsCore
  readonly snapshots: Snapshots
}

/** What is asked of policies is the path of the request: a rule about one of them says nothing of the others. */
interface Door {
  readonly name: string
  readonly path: typeof PLAIN | typeof RAFT | typeof FORCED
}

interface Entrance {
  /** Of the request, whose first line is recorded; undefined where there is no audit device. */
  readonly account: Account | undefined
  /** Throws a Refusal where the caller, who was let in, would not be let in again. */
  readonly checkAgain: () => void
  /** For the log. */
  readonly origin: ReturnType<typeof originOf>
}

/** Throws a Refusal for who may not. A use of a token that is limited is counted before anything is done. */
async function admitted(
  core: SecretsCore,
  call: Call,
  operation: 'read' | 'update',
  paths: readonly [Door['path'], ...Door['path'][]],
): Promise<Entrance> {
  if (core.isSecondary) throw core.disabledOnSecondary()
  if (!core.isActive) throw sealed()
  const entry = entryOf(core, call)
  const account = accountOf(core, call, { verb: operation, path: `sys/${paths[0]}`, wrapping: undefined }, entry)
  let isUsed = false
  try {
    await account?.begin()
    if ('error' in entry) throw entry.error
    const question = { caller: entry.caller, call, operation, paths }
    const [judged] = await Promise.allSettled([judge(core, question)])
    isUsed = true
    await finishUse(entry.caller)
    if (judged.status === 'rejected') throw judged.reason
    const origin = originOf({ caller: entry.caller.caller, remote: call.remote })
    return { account, checkAgain: () => checkAgain(core, question, judged.value), origin }
  } catch (error) {
    // No device has recorded the first line: the use of the token is taken all the same.
    if (!isUsed && 'caller' in entry) await finishUse(entry.caller).catch(() => undefined)
    await failed(account, error)
    if (isOutOfSpace(error)) throw new Refusal('insufficient_storage', error.message)
    if (isUntimely(error)) throw new Refusal('unavailable', error.message)
    throw unrecorded(error)
  }
}

/** An AuditFault as a Refusal, whose text callers see; the core's other endpoints answer with the same text. */
function unrecorded(error: unknown): unknown {
  return error instanceof AuditFault ? new Refusal('host_error', error.message) : error
}

interface Question {
  readonly caller: AdmittedCaller
  readonly call: Call
  readonly operation: 'read' | 'update'
  readonly paths: readonly Door['path'][]
}

/** Throws a Rejection for who may not, and takes the codes that policies ask for; returns the methods that took one. */
async function judge(core: SecretsCore, question: Question): Promise<readonly string[]> {
  const { call, caller } = question
  const credentials = parseMfaHeader(call.raw.headers['x_vault_mfa'])
  const methods = methodsOf(question)
  if (methods.length === 0) return methods
  await stepUp(core.mfa, caller.caller, methods, credentials)
  // The policies may have changed meanwhile.
  refuseOthers(question, methods)
  return methods
}

/** Throws a Rejection where policies ask for more codes than those that were taken. */
function refuseOthers(question: Question, taken: readonly string[]): void {
  if (methodsOf(question).some((name) => !taken.includes(name))) throw denied()
}

/** A snapshot may take hours on its way: its caller must still be allowed what it asked for as long as it lasts. */
function checkAgain(core: SecretsCore, question: Question, taken: readonly string[]): void {
  const { caller } = question
  if (!core.isActive) throw sealed()
  // The last use of a token that is limited has ended it.
  if (!caller.use && !caller.isValid()) throw denied()
  refuseOthers(question, taken)
}

/** MFA methods whose codes the caller's policies ask for. Throws a Rejection for who may not, with them either. */
function methodsOf({ caller, operation, paths }: Question): string[] {
  const methods = new Set<string>()
  for (const path of paths) {
    const decision = caller.decide({ operation, path: `sys/${path}`, data: {}, wrapTtlSeconds: undefined })
    const isAllowed = decision.allowed || decision.reason === 'second factor'
    // A restore takes everything away that there is.
    if (!isAllowed || (operation === 'update' && !decision.sudo)) throw denied()
    for (const name of decision.mfaMethods) methods.add(name)
  }
  return [...methods]
}

type Entry = { readonly caller: AdmittedCaller } | { readonly error: unknown }

function entryOf(core: SecretsCore, call: Call): Entry {
  try {
    return { caller: core.admit(call.token, call.remote) }
  } catch (error) {
    return { error }
  }
}

/** Undefined where there is no audit device. */
function accountOf(core: SecretsCore, call: Call, head: AccountOf['head'], entry: Entry): Account | undefined {
  const { audit } = core
  if (!audit?.isOn) return undefined
  const { caller } = 'caller' in entry ? entry.caller : core.nobody
  const { raw, remote, requestId, token } = call
  const of = { head, requestId, token, remote, caller, nowMs: core.now(), mount: undefined, data: undefined }
  return new Account(audit, { ...of, changesNothing: false }, raw)
}

/** Records that it was done. */
async function done(account: Account | undefined): Promise<void> {
  try {
    await account?.end(undefined)
  } catch (error) {
    throw unrecorded(error)
  } finally {
    account?.leave()
  }
}

/** Records that it was refused or has failed. */
async function failed(account: Account | undefined, error: unknown): Promise<void> {
  try {
    if (!(error instanceof AuditFault)) await account?.fail(error)
  } finally {
    account?.leave()
  }
}

async function accounted(account: Account | undefined, work: () => Promise<void>): Promise<void> {
  try {
    await work()
  } catch (error) {
    await failed(account, error)
    throw error
  }
  await done(account)
}

function saving({ name, path }: Door): RoomEndpoint<SnapshotParts> {
  return handle(
    {
      name,
      summary: 'A snapshot of the secrets core, while it runs: ciphertext, to be restored with the same keys',
      http: [`GET /v1/sys/${path}`],
      target: 'server',
      input: schema(codes),
      output: 'stream',
      errorFormat: 'errors',
      ownToken: true,
      authorize: () => undefined,
    },
    ({ core, snapshots }: SnapshotParts) => ({
      run: (_input, call) => saved(core, snapshots, path, call),
    }),
  )
}

async function* saved(core: SecretsCore, snapshots: Snapshots, path: Door['path'], call: Call): AsyncIterable<Chunk> {
  // The second line is recorded before the first byte leaves.
  const { account, checkAgain: check, origin } = await admitted(core, call, 'read', [path])
  await done(account)
  const out = new PassThrough()
  const written = snapshots.save(out, call.signal)
  // Where it fails before the first byte, that is a status; the stream is destroyed with the same error.
  written.catch((error: unknown) => out.destroy(error instanceof Error ? error : new Fault(String(error))))
  let isBegun = false
  for await (const chunk of out as AsyncIterable<Buffer>) {
    if (!isBegun) yield { status: 200, contentType: 'application/gzip', headers: { 'Cache-Control': 'no-store' } }
    isBegun = true
    // A caller that takes hours for it must still be allowed it.
    check()
    yield chunk
  }
  await written
  snapshots.onSaved()
  core.options.logger.info('snapshot saved', { path: `sys/${path}`, ...origin })
}

function restoring({ name, path }: Door): RoomEndpoint<SnapshotParts> {
  return handle(
    {
      name,
      summary: 'Puts a snapshot in the place of everything that the secrets core has',
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
      async run({ force: isAsked }, call) {
        const force = isAsked || path === FORCED
        const { body } = call
        const entrance = await admitted(core, call, 'update', force ? [path, FORCED] : [path])
        const { account, checkAgain: check, origin } = entrance
        const inTurn = (replace: () => Promise<void>) => {
          check()
          return replace()
        }
        const options = { force, signal: call.signal, withLock: inTurn, onReplaced: () => core.suspend() }
        try {
          await accounted(account, async () => {
            if (!body) throw new Refusal('invalid_request', 'the snapshot belongs into the body of the request')
            await snapshots.restore(Readable.from(body, { objectMode: false }), options)
          })
          core.options.logger.warn('snapshot restored', { path: `sys/${path}`, force, ...origin })
        } finally {
          // Behind the account: the devices of before end with it, and the same files are opened anew.
          await core.resume()
        }
        return undefined
      },
    }),
  )
}

const INITIALISED =
  'this server is initialised already, nothing was changed: with a token, "outpost operator snapshot restore FILE" puts a ' +
  'snapshot in the place of what it has'

/** Of callers who have not shown who they are, at once: each takes the disk space of a copy. */
const UPLOADS_MAX = 4

/** Uploads without a token that are under way. */
class Uploads {
  readonly #from = new Set<string>()

  /** Returns how to leave. Throws a Refusal when there is no room. */
  enter(remote = ''): () => void {
    // Callers on the host itself have places of their own: no other host can take them from the operator.
    const isLocal = isLoopback(remote)
    const others = [...this.#from].filter((each) => isLoopback(each) === isLocal)
    if (this.#from.has(remote) || others.length >= UPLOADS_MAX) {
      throw new Refusal('conflict', 'a snapshot is being restored already, try again')
    }
    this.#from.add(remote)
    return () => this.#from.delete(remote)
  }
}

function isLoopback(address: string): boolean {
  return address === '::1' || address.startsWith('127.')
}

/** What a server without anything in it begins with, instead of `sys/init`. */
const beginning = handle(
  {
    name: 'secrets.snapshot_restore_new',
    summary: 'Restores a snapshot into a server that was not initialised; then the keys of the snapshot open it',
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
    const underWay = new Uploads()
    return {
      async run(_input, call) {
        refuseInitialised()
        if (!call.body) throw new Refusal('invalid_request', 'the snapshot belongs into the body of the request')
        const leave = underWay.enter(call.remote)
        try {
          await snapshots.restore(Readable.from(call.body, { objectMode: false }), {
            force: true,
            signal: call.signal,
            requires: KEY_PATHS,
            withLock: (replace) =>
              seal.withLock(async () => {
                refuseInitialised()
                await replace()
                // Durable before the answer; the devices of the snapshot record it when the core opens.
                const { remote = '', requestId } = call
                await seal.origin.write({ atMs: core.now(), requestId, remote })
              }),
            // Nothing was open, so nothing is remembered.
            onReplaced: () => undefined,
          })
        } finally {
          leave()
        }
        const origin = { accessor: '', remote: call.remote ?? '' }
        logger.warn('snapshot restored into a server that was not initialised', origin)
        return undefined
      },
    }
  },
)

/** A line each. */
const TABLE: readonly RoomEndpoint<SnapshotParts>[] = [
  saving({ name: 'secrets.snapshot_save', path: PLAIN }),
  saving({ name: 'secrets.snapshot_save_raft', path: RAFT }),
  restoring({ name: 'secrets.snapshot_restore', path: PLAIN }),
  restoring({ name: 'secrets.snapshot_restore_raft', path: RAFT }),
  restoring({ name: 'secrets.snapshot_restore_force', path: FORCED }),
  beginning,
]

export function snapshotOperations(core: SecretsCore, snapshots: Snapshots): AnyOperation[] {
  return TABLE.map((each) => each.in({ core, snapshots }))
}
