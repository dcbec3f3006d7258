/** `sys/internal/specs/openapi`: the OpenAPI document of all paths, generated from their declarations. */
import { nextTurn } from '../../platform/scheduler.ts'
import { LRUCache } from 'lru-cache'
import { type Caller, path, type Path } from '../../engines/framework/engine.ts'
import { boolean, type EngineField } from '../../engines/framework/fields.ts'
import { type JsonSchema, JsonText } from '../../platform/operation.ts'
import type { PolicyEvaluator, WithOptions, OpenStores } from './core-parts.ts'
import type { Mount, MountTable } from '../mounts/mounts.ts'

/** A mount in the document, or a generic one for all mounts of its type. */
interface DocumentedMount {
  readonly prefix: string
  /** Name of the parameter in the prefix of a generic mount. */
  readonly parameter?: string
  readonly tag: string
  readonly mount: Mount
}

/** Mounts whose text is cached: about 15 kB each */
const CACHED_MAX = 256

type DocumentParts = PolicyEvaluator & WithOptions<'version'> & OpenStores<{ readonly mounts: MountTable }>

export function openApiPaths(core: DocumentParts): Path[] {
  const texts = new MountTexts()
  return [
    path({
      pattern: 'internal/specs/openapi',
      summary: 'Read the OpenAPI document of this server',
      tokenOptional: true,
      fields: {
        generic_mount_paths: boolean('Whether one generic path represents all mounts of a type', { fallback: false }),
      },
      read: async ({ generic_mount_paths: areGeneric }, { caller }) => {
        const parts: string[] = []
        for (const documented of documentedMounts(core, caller, areGeneric)) {
          // Each takes milliseconds the first time, so the thread is yielded in between.
          if (parts.length > 0) await nextTurn()
          parts.push(texts.of(documented))
        }
        const head = JSON.stringify(documentHead(core.options.version)).slice(0, -1)
        return { bare: new JsonText(`${head},"paths":{${parts.filter((each) => each !== '').join(',')}}}`) }
      },
    }),
  ]
}

/** The members of `paths` of a mount as JSON text. */
class MountTexts {
  readonly #cache = new LRUCache<string, { readonly paths: readonly Path[]; readonly text: string }>({
    max: CACHED_MAX,
  })

  of(documented: DocumentedMount): string {
    const { paths } = documented.mount.paths
    const cached = this.#cache.get(documented.prefix)
    if (cached?.paths === paths) return cached.text
    const items: Record<string, JsonSchema> = {}
    for (const declared of paths) {
      for (const [at, item] of itemsOf(documented, declared)) items[at] ??= item
    }
    const text = JSON.stringify(items).slice(1, -1)
    this.#cache.set(documented.prefix, { paths, text })
    return text
  }
}

/** A caller without a token sees the mounts that every core has, and no other mount's name. */
function documentedMounts(core: DocumentParts, caller: Caller, areGeneric: boolean): DocumentedMount[] {
  const acl = caller.tokenHash === '' ? undefined : core.aclOf(caller)
  const byPrefix = new Map<string, DocumentedMount>()
  for (const mount of core.open.mounts.all()) {
    const { path: at, type } = mount.record
    if (!mount.engine.isSingle && !acl?.allowsAnythingUnder(at)) continue
    const parameter = `${type}_mount_path`
    const documented =
      mount.engine.isSingle || !areGeneric
        ? { prefix: `/${at}`, tag: at.split('/')[0] ?? '', mount }
        : {
            prefix: mount.engine.kind === 'auth' ? `/auth/{${parameter}}/` : `/{${parameter}}/`,
            tag: type,
            mount,
            parameter,
          }
    byPrefix.set(documented.prefix, documented)
  }
  return [...byPrefix.values()]
}

function documentHead(version: string): JsonSchema {
  return {
    openapi: '3.0.2',
    info: {
      title: 'outpost secrets',
      description: 'Every path is served below /v1 and also without that prefix.',
      version,
      license: { name: 'Apache-2.0', url: 'https://www.apache.org/licenses/LICENSE-2.0' },
    },
    servers: [{ url: '/v1' }],
    components: {
      securitySchemes: { token: { type: 'apiKey', in: 'header', name: 'X-Vault-Token' } },
      schemas: {
        Errors: {
          type: 'object',
          properties: { errors: { type: 'array', items: { type: 'string' } } },
          required: ['errors'],
        },
      },
    },
  }
}

/** A list has a separate path, which ends with a slash. */
function itemsOf(documented: DocumentedMount, declared: Path): [string, JsonSchema][] {
  const { handlers, pattern } = declared
  const own = documented.prefix + pattern.replaceAll(/:([^/*+]+)[*+]?/g, '{$1}')
  const shared = {
    description: declared.summary,
    ...(parametersOf(documented, declared).length > 0 ? { parameters: parametersOf(documented, declared) } : {}),
    ...(declared.sudo ? { 'x-vault-sudo': true } : {}),
    ...(declared.unauthenticated ? { 'x-vault-unauthenticated': true } : {}),
    ...(declared.exists ? { 'x-vault-createSupported': true } : {}),
  }
  const operations = {
    ...(handlers.read && { get: operation(documented, declared, 'read', own) }),
    ...((handlers.update ?? handlers.create) && { post: operation(documented, declared, 'write', own) }),
    ...(handlers.patch && { patch: operation(documented, declared, 'patch', own) }),
    ...(handlers.delete && { delete: operation(documented, declared, 'delete', own) }),
  }
  const items: [string, JsonSchema][] = []
  if (Object.keys(operations).length > 0) items.push([own, { ...shared, ...operations }])
  if (handlers.list) {
    const get = operation(documented, declared, 'list', own)
    items.push([`${own.replace(/\/$/, '')}/`, { ...shared, get }])
  }
  return items
}

function parametersOf({ parameter }: DocumentedMount, { fields, pattern }: Path): JsonSchema[] {
  const names = [...pattern.matchAll(/:([^/*+]+)/g)].map(([, name = '']) => name)
  const mount = {
    name: parameter,
    in: 'path',
    required: true,
    description: 'Path of the mount',
    schema: { type: 'string' },
  }
  return [
    ...(parameter === undefined ? [] : [mount]),
    ...names.map((name) => ({
      name,
      in: 'path',
      required: true,
      description: fields[name]?.description ?? '',
      schema: { type: 'string' },
    })),
  ]
}

type OperationKind = 'read' | 'list' | 'write' | 'patch' | 'delete'

function operation(documented: DocumentedMount, declared: Path, kind: OperationKind, at: string): JsonSchema {
  const given = Object.entries(declared.fields).filter(([, field]) => !field.inPath)
  const isWritten = kind === 'write' || kind === 'patch'
  // Fields are declared for a path as a whole. If it can be written, they are members of the body.
  const isQueried = !isWritten && !declared.handlers.update && !declared.handlers.create
  const query = isQueried ? given.map(([name, field]) => queryParameter(name, field)) : []
  const list = { name: 'list', in: 'query', required: true, schema: { type: 'string', enum: ['true'] } }
  const parameters = kind === 'list' ? [list, ...query] : query
  return {
    summary: declared.summary,
    operationId: `${kind}-${at.replaceAll(/[^A-Za-z0-9]+/g, '-').replaceAll(/^-|-$/g, '')}`,
    tags: [documented.tag],
    ...(parameters.length > 0 ? { parameters } : {}),
    ...(isWritten ? { requestBody: bodyOf(given, kind) } : {}),
    responses: {
      200: { description: 'Success' },
      ...(isWritten || kind === 'delete' ? { 204: { description: 'Success without content' } } : {}),
      default: {
        description: 'Error',
        content: { 'application/json': { schema: { $ref: '#/components/schemas/Errors' } } },
      },
    },
    security: declared.unauthenticated ? [] : [{ token: [] }],
  }
}

function queryParameter(name: string, field: EngineField<unknown>): JsonSchema {
  return { name, in: 'query', required: false, description: field.description, schema: schemaOf(field) }
}

function bodyOf(given: readonly (readonly [string, EngineField<unknown>])[], kind: OperationKind): JsonSchema {
  const properties = Object.fromEntries(
    given.map(([name, field]) => [name, { ...schemaOf(field), description: field.description }]),
  )
  const type = kind === 'patch' ? 'application/merge-patch+json' : 'application/json'
  return { required: false, content: { [type]: { schema: { type: 'object', properties } } } }
}

function schemaOf({ fallback, kind }: EngineField<unknown>): JsonSchema {
  const isPlain = ['string', 'number', 'boolean'].includes(typeof fallback)
  return {
    type: kind,
    ...(kind === 'array' ? { items: {} } : {}),
    ...(isPlain && fallback !== '' ? { default: fallback } : {}),
  }
}
