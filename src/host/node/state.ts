/**
 * The durable state of this node: `<state_dir>/state.json` with its ID, its key and its dynamic metadata.
 *
 * Promises: a resolved update is durable; a failed update changed nothing on the disk or in memory; the file is complete at
 * every instant (`platform/program-file.ts`); updates are serialized, and those that wait for the same write share it. The file
 * is 0600 in a directory 0700, because it has the node's private key. The ID, the key and the metadata are in ONE file, so
 * that a crash never leaves one without the others.
 *
 * An invalid file fails the start with instructions. A new ID instead would appear to all servers as an unknown node,
 * without an explanation.
 *
 * The node ID is the one in the file; at the first start the configured one, else a random UUID. A configured ID that
 * differs from the file's is refused: servers have pinned this node's key to the old ID, so another ID is a new node, which
 * the operator confirms by moving the file. Always lower case.
 *
 * Records of collected allocations have a separate file (`collected-records.ts`): they are many and best effort, and a metadata
 * update must not rewrite them.
 *
 * Assumes that no other process uses the same directory (`state-lock.ts`).
 */
import { createPrivateKey, generateKeyPairSync, randomUUID } from 'node:crypto'
import { chmod, mkdir, readFile, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import * as v from 'valibot'
import { Fault, isErrno, messageOf, Refusal } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import {
  accessFault,
  type DiskSteps,
  diskSteps,
  createDurably,
  removeLeftovers,
  RenamedButNotSynced,
  writeDurably,
} from '../../platform/program-file.ts'
import { isUuid } from '../../platform/schema.ts'

/** Dynamic metadata; `null` is a tombstone of a static key. */
export type DynamicMeta = ReadonlyMap<string, string | null>

const VERSION = 1
/** Of all dynamic keys and values: the limit of a request, and half of that of a message to a server. */
export const DYNAMIC_BYTES_MAX = 512 << 10
export const KEYS_MAX = 10_000
/** Above metadata at its limits with every byte escaped as six. */
const FILE_BYTES_MAX = 4 << 20

const FileSchema = v.object({
  version: v.literal(VERSION),
  nodeId: v.pipe(v.string(), v.check(isUuid)),
  nodeKey: v.pipe(v.string(), v.check(isEd25519)),
  dynamicMeta: v.pipe(
    v.custom<Record<string, unknown>>(
      (value) => typeof value === 'object' && value !== null && !Array.isArray(value),
      'not an object',
    ),
    v.transform((object) => Object.entries(object)),
    v.maxLength(KEYS_MAX),
    v.array(v.strictTuple([v.string(), v.nullable(v.string())])),
    // Servers reject larger metadata, and the node would be missing there without an error.
    v.check((entries) => bytesOf(entries) <= DYNAMIC_BYTES_MAX),
  ),
})

interface StoredNodeState {
  readonly nodeId: string
  readonly nodeKey: string
  readonly dynamicMeta: DynamicMeta
}

interface PendingUpdate {
  readonly change: (current: DynamicMeta) => DynamicMeta
  readonly resolve: (after: DynamicMeta) => void
  readonly reject: (error: unknown) => void
}

export interface HostStateOptions {
  /** Absolute path; created with mode 0700 if missing. */
  readonly stateDir: string
  /** `client { node_id }` or `-node-id`. */
  readonly nodeId?: string
  readonly log: Logger
  readonly steps?: DiskSteps
}

export class HostState {
  readonly #path: string
  readonly #steps: DiskSteps
  readonly #log: Logger
  #content: StoredNodeState
  readonly #queue: PendingUpdate[] = []
  #writing: Promise<void> | undefined

  private constructor(path: string, content: StoredNodeState, options: HostStateOptions) {
    this.#path = path
    this.#content = content
    this.#steps = options.steps ?? diskSteps
    this.#log = options.log
  }

  /**
   * Reads the state of `stateDir`, or creates it. Rejects with a `Fault` if the file is damaged, unreadable, written by a
   * newer version, or belongs to another node than `nodeId`.
   */
  static async open(options: HostStateOptions): Promise<HostState> {
    const configuredId = options.nodeId?.toLowerCase()
    if (configuredId !== undefined && !isUuid(configuredId)) throw new Fault('the configured node ID is not a UUID')
    await mkdir(options.stateDir, { recursive: true, mode: 0o700 })
    await restrictMode(options.stateDir, 0o700, options.log)
    const path = pathIn(options.stateDir)
    await removeLeftovers(path)
    const stored = await read(path)
    if (stored) {
      if (configuredId !== undefined && configuredId !== stored.nodeId)
        throw otherNode(path, stored.nodeId, configuredId)
      await restrictMode(path, 0o600, options.log)
      return new HostState(path, stored, options)
    }
    const fresh: StoredNodeState = { nodeId: configuredId ?? randomUUID(), nodeKey: newKey(), dynamicMeta: new Map() }
    await createDurably(path, textOf(fresh), options.steps)
    return new HostState(path, fresh, options)
  }

  /** Lower-case UUID. */
  get nodeId(): string {
    return this.#content.nodeId
  }

  /** The node's private Ed25519 key, PKCS8 in PEM. Never log it. */
  get nodeKeyPem(): string {
    return this.#content.nodeKey
  }

  /** As of the last durable update. */
  get dynamicMeta(): DynamicMeta {
    return this.#content.dynamicMeta
  }

  /**
   * Replaces the dynamic metadata by the result of `change`, which runs after all earlier updates and must not modify its
   * argument; if it returns the argument, nothing is written. Resolves with the metadata of this update when it is durable.
   * Rejects with the error of `change` or of the disk; then nothing has changed.
   */
  updateDynamicMeta(change: (current: DynamicMeta) => DynamicMeta): Promise<DynamicMeta> {
    return new Promise((resolve, reject) => {
      this.#queue.push({ change, resolve, reject })
      this.#writing ??= this.#drain()
    })
  }

  /** Resolves when all updates so far are settled. */
  async settled(): Promise<void> {
    await this.#writing
  }

  async #drain(): Promise<void> {
    await Promise.resolve() // updates of the same turn share the first write
    while (this.#queue.length > 0) await this.#commit(this.#queue.splice(0))
    // Synchronous with the check of the queue: an update in between would never be written.
    this.#writing = undefined
  }

  /** One write for all of `updates`. */
  async #commit(updates: readonly PendingUpdate[]): Promise<void> {
    let next = this.#content.dynamicMeta
    const done: { update: PendingUpdate; after: DynamicMeta }[] = []
    for (const update of updates) {
      try {
        next = update.change(next)
        done.push({ update, after: next })
      } catch (error) {
        update.reject(error)
      }
    }
    try {
      if (next !== this.#content.dynamicMeta) await this.#write({ ...this.#content, dynamicMeta: next })
    } catch (error) {
      for (const { update } of done) update.reject(error)
      return
    }
    for (const { update, after } of done) update.resolve(after)
  }

  async #write(next: StoredNodeState): Promise<void> {
    try {
      await writeDurably(this.#path, textOf(next), this.#steps)
    } catch (error) {
      this.#log.error('cannot write the node state', { path: this.#path, error: messageOf(error) })
      // The update is rejected as unchanged, so a file that was replaced is restored.
      if (error instanceof RenamedButNotSynced) {
        await writeDurably(this.#path, textOf(this.#content), this.#steps).catch((again) => {
          this.#log.error('cannot restore the node state after a failed write', {
            path: this.#path,
            error: messageOf(again),
          })
        })
      }
      if (isErrno(error, 'ENOSPC', 'EDQUOT')) throw new Refusal('insufficient_storage', noSpace(this.#path))
      throw error
    }
    this.#content = next
  }
}

function noSpace(path: string): string {
  return `no space left on the disk of ${dirname(path)} (ENOSPC), nothing was changed: free space there, then retry`
}

function textOf(content: StoredNodeState): string {
  const { nodeId, nodeKey, dynamicMeta } = content
  return `${JSON.stringify({ version: VERSION, nodeId, nodeKey, dynamicMeta: Object.fromEntries(dynamicMeta) }, null, 2)}\n`
}

function newKey(): string {
  return generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()
}

function isEd25519(pem: string): boolean {
  try {
    return createPrivateKey(pem).asymmetricKeyType === 'ed25519'
  } catch {
    return false
  }
}

/** Of all keys and values, in UTF-8. */
export function bytesOf(dynamic: Iterable<readonly [string, string | null]>): number {
  let bytes = 0
  for (const [key, value] of dynamic) bytes += Buffer.byteLength(key) + Buffer.byteLength(value ?? '')
  return bytes
}

/** The content of the file; undefined if it does not exist. */
/** The ID in the state of `stateDir`; undefined if there is none yet. Rejects as `HostState.open`; changes nothing. */
export async function readNodeId(stateDir: string): Promise<string | undefined> {
  return (await read(pathIn(stateDir)))?.nodeId
}

function pathIn(stateDir: string): string {
  return join(stateDir, 'state.json')
}

async function read(path: string): Promise<StoredNodeState | undefined> {
  let text: string
  try {
    const stats = await stat(path)
    if (!stats.isFile()) throw damaged(path, 'it is not a regular file')
    if (stats.size > FILE_BYTES_MAX) throw damaged(path, `it is larger than ${FILE_BYTES_MAX} bytes`)
    text = await readFile(path, 'utf8')
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return undefined
    if (error instanceof Fault) throw error
    throw new Fault(`cannot read the node state: ${accessFault(path, error).message}`, { cause: error })
  }
  const value = parseJson(path, text)
  if (typeof value === 'object' && value !== null && 'version' in value) {
    if (typeof value.version === 'number' && value.version > VERSION) {
      throw new Fault(
        `${path} was written by a newer version of outpost (format ${value.version}, this version supports ${VERSION})`,
      )
    }
  }
  const parsed = v.safeParse(FileSchema, value)
  if (!parsed.success) {
    const field = parsed.issues[0].path?.[0]?.key
    throw damaged(path, typeof field === 'string' ? `"${field}" is missing or wrong` : 'it is not a JSON object')
  }
  const { nodeId, nodeKey, dynamicMeta } = parsed.output
  return { nodeId: nodeId.toLowerCase(), nodeKey, dynamicMeta: new Map(dynamicMeta) }
}

function parseJson(path: string, text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    // V8's message quotes the text, which contains a private key.
    throw damaged(path, text.trim() === '' ? 'it is empty' : 'it is not valid JSON')
  }
}

function damaged(path: string, why: string): Fault {
  return new Fault(
    `the node state ${path} is damaged: ${why}. It contains this node's ID, key and metadata: ` +
      'restore it from a backup, or move it away to start as a new node',
  )
}

function otherNode(path: string, kept: string, configuredId: string): Fault {
  return new Fault(
    `node_id is configured as ${configuredId}, but ${path} belongs to node ${kept}: ` +
      'remove node_id from the configuration, or move the file away to start as a new node',
  )
}

/** Removes permissions of group and others. If the owner is another user, only a warning is logged. */
async function restrictMode(path: string, mode: number, log: Logger): Promise<void> {
  const stats = await stat(path)
  if ((stats.mode & 0o777 & ~mode) === 0) return
  try {
    await chmod(path, mode)
    log.warn('removed permissions of group and others', { path, before: (stats.mode & 0o777).toString(8) })
  } catch (error) {
    log.warn('node state is readable by other users', { path, error: messageOf(error) })
  }
}
