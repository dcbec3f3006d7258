/**
 * Node metadata: static from the configuration, dynamic from the API, and the merged view that schedulers read.
 *
 * Merge rules: a value sets a key, also `""`, and overrides a static key. `null` removes a dynamic key and leaves a durable
 * tombstone over a static key. Other keys are not changed. A tombstone whose key is not static any more is deleted.
 *
 * Promises: an acknowledged update is durable; updates are serialized, and each response has the state directly after its
 * update; an update is atomic. Static keys are read at the start, not at a reload, and may have names that an update would
 * refuse, because the configuration's rule is less strict.
 *
 * Every node has some built-in static keys (`builtInMeta`), because clients expect a new node to have metadata. Nomad's
 * defaults configure its service mesh; these describe the node.
 */
import { Refusal, messageOf } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import { type Endpoint, handle } from '../../platform/operation.ts'
import { type Schema, schema } from '../../platform/schema.ts'
import { requireOwnNode } from '../allocations/allocation.ts'
import { authorizeNode, nodeIdQuery } from '../allocations/allocation-operation.ts'
import { type MetadataBody, parseMetadataBody } from './metadata-body.ts'
import { bytesOf, DYNAMIC_BYTES_MAX, type DynamicMeta, type HostState, KEYS_MAX } from './state.ts'
import { METADATA } from '../allocations/result-schemas.ts'

const BODY_BYTES_MAX = 512 << 10
const VALUE_BYTES_MAX = 64 << 10

export interface MetadataView {
  readonly Dynamic: Readonly<Record<string, string | null>>
  readonly Meta: Readonly<Record<string, string>>
  readonly Static: Readonly<Record<string, string>>
}

/** Default static keys. */
export function builtInMeta(version: string): Readonly<Record<string, string>> {
  return { 'outpost.version': version, 'outpost.os': process.platform, 'outpost.arch': process.arch }
}

/** The dynamic metadata after `patch`; `dynamic` itself if nothing changes. Does not validate the keys of `patch`. */
function mergeMeta(dynamic: DynamicMeta, patch: DynamicMeta, isStatic: (key: string) => boolean): DynamicMeta {
  const next = new Map(dynamic)
  for (const [key, value] of patch) {
    if (value === null && !isStatic(key)) next.delete(key)
    else next.set(key, value)
  }
  for (const [key, value] of next) if (value === null && !isStatic(key)) next.delete(key)
  const same = next.size === dynamic.size && [...next].every(([key, value]) => dynamic.get(key) === value)
  return same ? dynamic : next
}

const KEY_PART = /^[_\p{ID_Start}][\p{ID_Continue}-]*$/u

/** Throws a Refusal (400) for an invalid key or value. */
function checkPatch(patch: DynamicMeta | undefined): asserts patch is DynamicMeta {
  if (!patch || patch.size === 0) throw new Refusal('invalid_request', 'missing required Meta object')
  for (const [key, value] of patch) {
    if (key === '') throw new Refusal('invalid_request', 'metadata keys must not be empty')
    const shown = JSON.stringify(key.length > 128 ? `${key.slice(0, 125).toWellFormed()}...` : key)
    if (!key.split('.').every((part) => KEY_PART.test(part))) {
      throw new Refusal('invalid_request', `${shown} is invalid; metadata keys must be valid dotted hcl identifiers`)
    }
    if (value !== null && Buffer.byteLength(value) > VALUE_BYTES_MAX) {
      throw new Refusal('invalid_request', `the value of ${shown} is longer than ${VALUE_BYTES_MAX} bytes`)
    }
  }
}

function checkLimits(dynamic: DynamicMeta): void {
  if (dynamic.size > KEYS_MAX) {
    throw new Refusal('invalid_request', `a node can have at most ${KEYS_MAX} dynamic metadata keys; unset some`)
  }
  if (bytesOf(dynamic) > DYNAMIC_BYTES_MAX) {
    throw new Refusal('invalid_request', `dynamic metadata can have at most ${DYNAMIC_BYTES_MAX} bytes; unset some`)
  }
}

export class NodeMetadata {
  readonly #state: HostState
  readonly #static: ReadonlyMap<string, string>
  readonly #listeners = new Set<() => void>()

  private constructor(state: HostState, fixed: ReadonlyMap<string, string>) {
    this.#state = state
    this.#static = fixed
  }

  /** `staticMeta` is `client { meta {} }` over `builtInMeta`. Deletes stale tombstones. */
  static async open(options: {
    state: HostState
    staticMeta: Readonly<Record<string, string>>
    log: Logger
  }): Promise<NodeMetadata> {
    const metadata = new NodeMetadata(options.state, new Map(Object.entries(options.staticMeta)))
    try {
      await options.state.updateDynamicMeta((current) => metadata.#merge(current, new Map()))
    } catch (error) {
      // Views omit stale tombstones anyway; a full disk must not prevent the start.
      options.log.warn('cannot delete stale metadata tombstones', { error: messageOf(error) })
    }
    return metadata
  }

  view(): MetadataView {
    return this.#viewOf(this.#state.dynamicMeta)
  }

  /**
   * Applies `patch` and resolves with the state directly after it when that is durable. Rejects with a Refusal (400) for an
   * invalid key, value or size, else with the disk's error; then nothing has changed.
   */
  async apply(patch: DynamicMeta | undefined): Promise<MetadataView> {
    checkPatch(patch)
    const before = this.#state.dynamicMeta
    const after = await this.#state.updateDynamicMeta((current) => {
      const next = this.#merge(current, patch)
      if (next !== current) checkLimits(next)
      return next
    })
    if (after !== before) for (const listener of this.#listeners) listener()
    return this.#viewOf(after)
  }

  /** Calls `listener` after each change. Returns a function that removes it. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  #merge(current: DynamicMeta, patch: DynamicMeta): DynamicMeta {
    return mergeMeta(current, patch, (key) => this.#static.has(key))
  }

  #viewOf(stored: DynamicMeta): MetadataView {
    const dynamic = this.#merge(stored, new Map())
    const meta = new Map(this.#static)
    for (const [key, value] of dynamic) {
      if (value === null) meta.delete(key)
      else meta.set(key, value)
    }
    // `fromEntries` defines properties, so the valid key `__proto__` is safe.
    return {
      Dynamic: Object.fromEntries(dynamic),
      Meta: Object.fromEntries(meta),
      Static: Object.fromEntries(this.#static),
    }
  }
}

const readInput = schema({ node_id: nodeIdQuery })

const applyInput: Schema<{ node_id: string | undefined; meta: MetadataBody['meta'] }> = {
  fields: {
    node_id: nodeIdQuery,
    NodeID: {
      in: 'body',
      type: 'string',
      description: 'The same in the body; node_id takes precedence',
      required: false,
      parse: (raw) => parseMetadataBody(raw.body).nodeId,
    },
    Meta: {
      in: 'body',
      type: 'object',
      description: 'Keys to change: a string sets a key, null unsets it',
      required: true,
      parse: (raw) => parseMetadataBody(raw.body).meta,
    },
  },
  parse(raw) {
    const body = parseMetadataBody(raw.body)
    return { node_id: nodeIdQuery.parse(raw, 'node_id') ?? body.nodeId, meta: body.meta }
  },
}

interface MetadataHost {
  readonly metadata: NodeMetadata
  readonly nodeId: string
}

const readEndpoint: Endpoint<{ readonly node_id: string | undefined }> = {
  name: 'host.metadata_read',
  summary: 'Read the metadata of a node',
  http: ['GET /v1/client/metadata'],
  target: 'node',
  input: readInput,
  output: 'json',
  result: METADATA,
  errorFormat: 'plain',
  crossOrigin: ['GET', 'HEAD'],
  head: false,
  locate: (input) => ({ nodeId: input.node_id }),
  authorize: authorizeNode('read'),
}

export const metadataRead = handle(readEndpoint, ({ metadata, nodeId }: MetadataHost) => ({
  find: (input) => requireOwnNode(input.node_id, nodeId),
  run: async () => metadata.view(),
}))

const applyEndpoint: Endpoint<{ readonly node_id: string | undefined; readonly meta: MetadataBody['meta'] }> = {
  name: 'host.metadata_apply',
  summary: 'Change the dynamic metadata of a node',
  http: ['POST /v1/client/metadata'],
  target: 'node',
  input: applyInput,
  output: 'json',
  result: METADATA,
  errorFormat: 'plain',
  bodyBytesMax: BODY_BYTES_MAX,
  locate: (input) => ({ nodeId: input.node_id }),
  authorize: authorizeNode('write'),
}

export const metadataApply = handle(applyEndpoint, ({ metadata, nodeId }: MetadataHost) => ({
  find: (input) => requireOwnNode(input.node_id, nodeId),
  run: (input) => metadata.apply(input.meta),
}))
