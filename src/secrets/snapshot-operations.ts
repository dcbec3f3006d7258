/**
 * Snapshots over HTTP: `GET` takes one while everything goes on, `POST` puts one in the place of all there is. They are
 * streams of any length, so they are operations of their own; who may do it is asked of the core like anything else.
 *
 * The paths with `raft` in them are those that stock commands know.
 */
import { PassThrough, Readable } from 'node:stream'
import { Rejection } from '../engines/engine.ts'
import { Fault, Refusal, type RefusalCode } from '../kit/errors.ts'
import type { AnyOperation, Call, Chunk, Operation } from '../kit/operation.ts'
import { queryBoolean, schema } from '../kit/schema.ts'
import type { SecretsCore } from './core.ts'
import type { Question } from './handle.ts'

/** What the room needs of the store, which it may not import. */
export interface Snapshots {
  /** Writes a snapshot and ends the stream. */
  save(out: PassThrough, signal: AbortSignal): Promise<unknown>
  /** Throws a Refusal for what is no snapshot, or another cluster's without `force`. */
  restore(input: Readable, options: { readonly force: boolean; readonly signal: AbortSignal }): Promise<unknown>
}

const PATHS = ['storage/snapshot', 'storage/raft/snapshot'] as const
const FORCED = 'storage/raft/snapshot-force'
const CODES: Readonly<Record<number, RefusalCode>> = { 403: 'permission_denied', 503: 'unavailable' }

const input = schema({
  force: queryBoolean({ description: 'Also take the snapshot of another cluster', fallback: false }),
})

export function snapshotOperations(core: SecretsCore, snapshots: Snapshots): AnyOperation[] {
  return [saving(core, snapshots), restoring(core, snapshots, PATHS, false), restoring(core, snapshots, [FORCED], true)]
}

/** Throws a Refusal for who may not. A use of a token that is limited is counted before anything is done. */
async function admitted(core: SecretsCore, call: Call, question: Pick<Question, 'operation' | 'path'>): Promise<void> {
  try {
    if (!core.isActive) throw new Rejection(503, 'Vault is sealed')
    const caller = core.admit(call.token, call.remote)
    const { allowed, sudo } = caller.judge({ ...question, data: {}, wrapTtlSeconds: undefined })
    await caller.used
    await caller.spent?.()
    // A restore takes everything away that there is.
    if (!allowed || (question.operation === 'update' && !sudo)) throw new Rejection(403, 'permission denied')
  } catch (error) {
    if (!(error instanceof Rejection)) throw error
    throw new Refusal(CODES[error.status] ?? 'invalid_request', error.errors.join('; '))
  }
}

function saving(core: SecretsCore, snapshots: Snapshots): AnyOperation {
  const operation: Operation<unknown, never> = {
    name: 'secrets.snapshot_save',
    summary: 'A snapshot of the secrets core, while it runs: ciphertext, to be restored with the same key shares',
    http: PATHS.map((path) => `GET /v1/sys/${path}` as const),
    target: 'server',
    input: schema({}),
    output: 'stream',
    errorFormat: 'errors',
    ownToken: true,
    authorize: () => undefined,
    run: (_input, call) => saved(core, snapshots, call),
  }
  return operation
}

async function* saved(core: SecretsCore, snapshots: Snapshots, call: Call): AsyncIterable<Chunk> {
  await admitted(core, call, { operation: 'read', path: `sys/${PATHS[1]}` })
  const out = new PassThrough()
  const written = snapshots.save(out, call.signal)
  // Where it fails before the first byte, that is a status; the stream is destroyed with the same error.
  written.catch((error: unknown) => out.destroy(error instanceof Error ? error : new Fault(String(error))))
  let isBegun = false
  for await (const chunk of out as AsyncIterable<Buffer>) {
    if (!isBegun) yield { status: 200, contentType: 'application/gzip', headers: { 'Cache-Control': 'no-store' } }
    isBegun = true
    yield chunk
  }
  await written
}

function restoring(core: SecretsCore, snapshots: Snapshots, paths: readonly string[], isForced: boolean): AnyOperation {
  const operation: Operation<{ readonly force: boolean }, undefined> = {
    name: isForced ? 'secrets.snapshot_restore_force' : 'secrets.snapshot_restore',
    summary: 'Puts a snapshot in the place of everything that the secrets core has',
    http: paths.flatMap((path) => [`POST /v1/sys/${path}`, `PUT /v1/sys/${path}`] as const),
    target: 'server',
    input,
    output: 'empty',
    emptyStatus: 204,
    errorFormat: 'errors',
    ownToken: true,
    takesStream: true,
    authorize: () => undefined,
    async run({ force }, call) {
      await admitted(core, call, { operation: 'update', path: `sys/${paths.at(-1) ?? ''}` })
      if (!call.body) throw new Refusal('invalid_request', 'the snapshot belongs into the body of the request')
      const options = { force: force || isForced, signal: call.signal }
      await snapshots.restore(Readable.from(call.body, { objectMode: false }), options)
      await core.reopen()
      return undefined
    },
  }
  return operation
}
