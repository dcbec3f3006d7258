/** `sys/internal/specs/openapi`: everything that can be asked here, made from the declarations of paths. */
import { nextTurn } from '../../platform/scheduler.ts'
import { LRUCache } from 'lru-cache'
import { type Caller, path, type Path } from '../../engines/framework/engine.ts'
import { boolean, type EngineField } from '../../engines/framework/fields.ts'
import { type JsonSchema, JsonText } from '../../platform/operation.ts'
import type { Judging, MadeWith, Opened } from './core-parts.ts'
import type { Mount, MountTable } from '../mounts/mounts.ts'

/** A mount's place in the document: its own, or one that stands for all of its type. */
interface Place {
  readonly prefix: string
  /** Name of the parameter in `prefix`, where there is one. */
  readonly parameter?: string
  readonly tag: string
  readonly mount: Mount
}

/** Places whose text is kept: some fifteen kilobytes each. */
const KEPT_MAX = 256

type DocumentParts = Judging & MadeWith<'version'> & Opened<{ readonly mounts: MountTable }>

export function openApiPaths(core: DocumentParts): Path[] {
  const texts = new PlaceTexts()
  return [
    path({
      pattern: 'internal/specs/openapi',
      summary: 'This document',
      tokenOptional: true,
      fields: {
        generic_mount_paths: boolean('Whether one place stands for all mounts of a type', { fallback: false }),
      },
      read: async ({ generic_mount_paths: areGeneric }, { caller }) => {
        const parts: string[] = []
        for (const place of placesOf(core, caller, areGeneric)) {
          // Each takes milliseconds the first time: others have their turn in between.
          if (parts.length > 0) await nextTurn()
          parts.push(texts.of(place))
        }
        const head = JSON.stringify(documentHead(core.options.version)).slice(0, -1)
        return { bare: new JsonText(`${head},"paths":{${parts.filter((each) => each !== '').join(',')}}}`) }
      },
    }),
  ]
}

/** The members of `paths` that belong to a place, as JSON text. */
class PlaceTexts {
  readonly #kept = new LRUCache<string, { readonly paths: readonly Path[]; readonly text: string }>({ max: KEPT_MAX })

  of(place: Place): string {
    const { paths } = place.mount.paths
    const kept = this.#kept.get(place.prefix)
    if (kept?.paths === paths) return kept.text
    const items: Record<string, JsonSchema> = {}
    for (const declared of paths) {
      for (const [at, item] of itemsOf(place, declared)) items[at] ??= item
    }
    const text = JSON.stringify(items).slice(1, -1)
    this.#kept.set(place.prefix, { paths, text })
    return text
  }
}

/** Who has no token is told what every core has, and no mount's name. */
function placesOf(core: DocumentParts, caller: Caller, areGeneric: boolean): Place[] {
  const acl = caller.tokenHash === '' ? undefined : core.aclOf(caller)
  const places = new Map<string, Place>()
  for (const mount of core.open.mounts.all()) {
    const { path: at, type } = mount.record
    if (!mount.engine.isSingle && !acl?.allowsAnythingUnder(at)) continue
    const parameter = `${type}_mount_path`
    const place =
      mount.engine.isSingle || !areGeneric
        ? { prefix: `/${at}`, tag: at.split('/')[0] ?? '', mount }
        : {
            prefix: mount.engine.kind === 'auth' ? `/auth/{${parameter}}/` : `/{${parameter}}/`,
            tag: type,
            mount,
            parameter,
          }
    places.set(place.prefix, place)
  }
  return [...places.values()]
}

function documentHead(version: string): JsonSchema {
  return {
    openapi: '3.0.2',
    info: {
      title: 'outpost secrets',
      description: 'Every path is below /v1, and is served without it too.',
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

/** A declaration's place or places: what is listed stands at a path of its own, which ends with a slash. */
function itemsOf(place: Place, declared: Path): [string, JsonSchema][] {
  const { handlers, pattern } = declared
  const own = place.prefix + pattern.replaceAll(/:([^/*+]+)[*+]?/g, '{$1}')
  const shared = {
    description: declared.summary,
    ...(parametersOf(place, declared).length > 0 ? { parameters: parametersOf(place, declared) } : {}),
    ...(declared.sudo ? { 'x-vault-sudo': true } : {}),
    ...(declared.unauthenticated ? { 'x-vault-unauthenticated': true } : {}),
    ...(declared.exists ? { 'x-vault-createSupported': true } : {}),
  }
  const operations = {
    ...(handlers.read && { get: operation(place, declared, 'read', own) }),
    ...((handlers.update ?? handlers.create) && { post: operation(place, declared, 'write', own) }),
    ...(handlers.patch && { patch: operation(place, declared, 'patch', own) }),
    ...(handlers.delete && { delete: operation(place, declared, 'delete', own) }),
  }
  const items: [string, JsonSchema][] = []
  if (Object.keys(operations).length > 0) items.push([own, { ...shared, ...operations }])
  if (handlers.list) {
    const get = operation(place, declared, 'list', own)
    items.push([`${own.replace(/\/$/, '')}/`, { ...shared, get }])
  }
  return items
}

function parametersOf({ parameter }: Place, { fields, pattern }: Path): JsonSchema[] {
  const names = [...pattern.matchAll(/:([^/*+]+)/g)].map(([, name = '']) => name)
  const mount = {
    name: parameter,
    in: 'path',
    required: true,
    description: 'Where it is enabled',
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

type Kind = 'read' | 'list' | 'write' | 'patch' | 'delete'

function operation(place: Place, declared: Path, kind: Kind, at: string): JsonSchema {
  const given = Object.entries(declared.fields).filter(([, field]) => !field.inPath)
  const isWritten = kind === 'write' || kind === 'patch'
  // Fields are declared for a path as a whole: where it is written they are the body's.
  const isQueried = !isWritten && !declared.handlers.update && !declared.handlers.create
  const query = isQueried ? given.map(([name, field]) => queryParameter(name, field)) : []
  const list = { name: 'list', in: 'query', required: true, schema: { type: 'string', enum: ['true'] } }
  const parameters = kind === 'list' ? [list, ...query] : query
  return {
    summary: declared.summary,
    operationId: `${kind}-${at.replaceAll(/[^A-Za-z0-9]+/g, '-').replaceAll(/^-|-$/g, '')}`,
    tags: [place.tag],
    ...(parameters.length > 0 ? { parameters } : {}),
    ...(isWritten ? { requestBody: bodyOf(given, kind) } : {}),
    responses: {
      200: { description: 'What the endpoint says' },
      ...(isWritten || kind === 'delete' ? { 204: { description: 'Done; there is nothing to say' } } : {}),
      default: {
        description: 'What is wrong',
        content: { 'application/json': { schema: { $ref: '#/components/schemas/Errors' } } },
      },
    },
    security: declared.unauthenticated ? [] : [{ token: [] }],
  }
}

function queryParameter(name: string, field: EngineField<unknown>): JsonSchema {
  return { name, in: 'query', required: false, description: field.description, schema: schemaOf(field) }
}

function bodyOf(given: readonly (readonly [string, EngineField<unknown>])[], kind: Kind): JsonSchema {
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
