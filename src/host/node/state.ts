/**
 * What this node must not forget: `<state_dir>/state.json` with its ID, its key and its dynamic metadata.
 *
 * Promises: what a resolved update said is on the disk; a failed update changed nothing, neither on the disk nor in
 * memory; the file is whole at every instant (`platform/own-file.ts`); updates happen one after the other, those that wait
 * for the same write share it. The file is 0600 in a directory 0700, because it holds the node's private key.
 * The ID, the key and the metadata live in ONE file so that no crash can leave one without the others.
 *
 * A file that cannot be read for what it is stops the start, and the message says what to do. Going on with a new ID
 * instead would make every server see a stranger on this machine, and nobody would know why.
 *
 * The node ID: the one in the file; on the first start the configured one, else a new random UUID. A configured ID that
 * differs from the file's is refused: servers have pinned this node's key to the old ID, so changing it is a new node,
 * and that must be said by moving the file away. Always lower case.
 *
 * Collected allocations are remembered in a file of their own (`collected.ts`): they are many and not precious, and a
 * metadata update must not rewrite them.
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
  makeDurably,
  removeLeftovers,
  RenamedButNotSynced,
  writeDurably,
} from '../../platform/own-file.ts'
import { isUuid } from '../../platform/schema.ts'

/** Dynamic metadata; `null` marks a static key that was unset. */
export type DynamicMeta = ReadonlyMap<string, string | null>

const VERSION = 1
/** All dynamic keys and values: what one request can carry, and half of what one message to a server can. */
export const DYNAMIC_BYTES_MAX = 512 << 10
export const KEYS_MAX = 10_000
/** The metadata at its limits, with each byte written as an escape of six. */
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
    // More than that no server would take, and the node would be missing there without a word.
    v.check((entries) => bytesOf(entries) <= DYNAMIC_BYTES_MAX),
  ),
})

interface Content {
  readonly nodeId: string
  readonly nodeKey: string
  readonly dynamicMeta: DynamicMeta
}

interface Update {
  readonly change: (current: DynamicMeta) => DynamicMeta
  readonly resolve: (after: DynamicMeta) => void
  readonly reject: (error: unknown) => void
}

export interface HostStateOptions {
  /** Absolute path; made with mode 0700 when it is missing. */
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
  #content: Content
  readonly #queue: Update[] = []
  #writing: Promise<void> | undefined

  private constructor(path: string, content: Content, options: HostStateOptions) {
    this.#path = path
    this.#content = content
    this.#steps = options.steps ?? diskSteps
    this.#log = options.log
  }

  /**
   * Reads the state of `stateDir`, or makes a new one and writes it. Rejects with a `Fault` whose text is meant for the
   * operator when the file is damaged, from a newer version, unreadable, or of another node than `nodeId`.
   */
  static async open(options: HostStateOptions): Promise<HostState> {
    const asked = options.nodeId?.toLowerCase()
    if (asked !== undefined && !isUuid(asked)) throw new Fault('the configured node ID is not a UUID')
    await mkdir(options.stateDir, { recursive: true, mode: 0o700 })
    await narrow(options.stateDir, 0o700, options.log)
    const path = join(options.stateDir, 'state.json')
    await removeLeftovers(path)
    const found = await read(path)
    if (found) {
      if (asked !== undefined && asked !== found.nodeId) throw otherNode(path, found.nodeId, asked)
      await narrow(path, 0o600, options.log)
      return new HostState(path, found, options)
    }
    const fresh: Content = { nodeId: asked ?? randomUUID(), nodeKey: newKey(), dynamicMeta: new Map() }
    await makeDurably(path, textOf(fresh), options.steps)
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

  /** As of the last durable write. */
  get dynamicMeta(): DynamicMeta {
    return this.#content.dynamicMeta
  }

  /**
   * Replaces the dynamic metadata by what `change` makes of it. `change` runs after every update before it and must not
   * alter its argument; returning the argument means that there is nothing to write. Resolves, with the map as of this
   * update, once it is durable. Rejects with what `change` threw, or with the disk's error; then nothing has changed.
   */
  updateDynamicMeta(change: (current: DynamicMeta) => DynamicMeta): Promise<DynamicMeta> {
    return new Promise((resolve, reject) => {
      this.#queue.push({ change, resolve, reject })
      this.#writing ??= this.#drain()
    })
  }

  /** Resolves once every update asked for so far has been answered. */
  async settled(): Promise<void> {
    await this.#writing
  }

  async #drain(): Promise<void> {
    await Promise.resolve() // whoever calls in the same turn shares the first write
    while (this.#queue.length > 0) await this.#commit(this.#queue.splice(0))
    // In the same turn as the look at the queue: an update between the two would wait for ever.
    this.#writing = undefined
  }

  /** One write for all of `updates`. */
  async #commit(updates: readonly Update[]): Promise<void> {
    let next = this.#content.dynamicMeta
    const done: { update: Update; after: DynamicMeta }[] = []
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

  async #write(next: Content): Promise<void> {
    try {
      await writeDurably(this.#path, textOf(next), this.#steps)
    } catch (error) {
      this.#log.error('cannot write the node state', { path: this.#path, error: messageOf(error) })
      // The caller will be told that nothing changed, so a file that did change must change back.
      if (error instanceof RenamedButNotSynced) {
        await writeDurably(this.#path, textOf(this.#content), this.#steps).catch((again) => {
          this.#log.error('cannot put the node state back', { path: this.#path, error: messageOf(again) })
        })
      }
      if (isErrno(error, 'ENOSPC', 'EDQUOT')) throw new Refusal('insufficient_storage', noSpace(this.#path))
      throw error
    }
    this.#content = next
  }
}

function noSpace(path: string): string {
  return `no space left on the disk of ${dirname(path)} (ENOSPC), nothing was changed: free some there, then try again`
}

function textOf(content: Content): string {
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

/** The content of the file, or undefined when there is none. */
async function read(path: string): Promise<Content | undefined> {
  let text: string
  try {
    const found = await stat(path)
    if (!found.isFile()) throw damaged(path, 'it is not a regular file')
    if (found.size > FILE_BYTES_MAX) throw damaged(path, 'it is far too large')
    text = await readFile(path, 'utf8')
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return undefined
    if (error instanceof Fault) throw error
    throw new Fault(`cannot read the node state: ${accessFault(path, error).message}`, { cause: error })
  }
  const value = parseJson(path, text)
  if (typeof value === 'object' && value !== null && 'version' in value) {
    if (typeof value.version === 'number' && value.version > VERSION) {
      throw new Fault(`${path} was written by a newer outpost (format ${value.version}, this one knows ${VERSION})`)
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
    // V8's message quotes the text, which holds a private key.
    throw damaged(path, text.trim() === '' ? 'it is empty' : 'it is not whole JSON')
  }
}

function damaged(path: string, why: string): Fault {
  return new Fault(
    `the node state ${path} is damaged: ${why}. It holds this node's ID, key and metadata: ` +
      'restore it from a backup, or move it away to start as a new node',
  )
}

function otherNode(path: string, kept: string, asked: string): Fault {
  return new Fault(
    `node_id is configured as ${asked}, but ${path} belongs to node ${kept}: ` +
      'remove node_id from the configuration, or move that file away to start as a new node',
  )
}

/** Takes access away from everybody but the owner. A directory of somebody else's is left alone, with a warning. */
async function narrow(path: string, mode: number, log: Logger): Promise<void> {
  const found = await stat(path)
  if ((found.mode & 0o777 & ~mode) === 0) return
  try {
    await chmod(path, mode)
    log.warn('took away access that others had', { path, before: (found.mode & 0o777).toString(8) })
  } catch (error) {
    log.warn('others can read the node state', { path, error: messageOf(error) })
  }
}
