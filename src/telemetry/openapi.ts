/**
 * `/v1/openapi.json`: an OpenAPI 3.1 document, generated from the operations, so it always matches what is served.
 */
import { type AnyEndpoint, handle, type JsonSchema } from '../platform/operation.ts'
import { type Field, schema } from '../platform/schema.ts'

const ERROR_STATUSES: Readonly<Record<string, string>> = {
  400: 'Invalid request; the text contains the reason',
  403: 'Permission denied, or unknown token',
  404: 'Not found',
  429: 'Too many requests, try again later',
  500: 'Error of the host, with its text, or internal error',
  503: 'Unavailable: the process is stopping or has no free file descriptors',
}

const TOKEN_HEADERS = {
  nomadToken: { type: 'apiKey', in: 'header', name: 'X-Nomad-Token' },
  vaultToken: { type: 'apiKey', in: 'header', name: 'X-Vault-Token' },
  bearer: { type: 'http', scheme: 'bearer' },
}

/** Headers that OpenAPI does not allow as parameters. */
const RESERVED_HEADERS = new Set(['accept', 'authorization', 'content-type'])
const NO_CONTENT_METHODS = new Set(['get', 'head', 'delete'])

/** OpenAPI methods of a route. `*` is documented as GET, which clients send. */
export function documentedMethods(method: string): string[] {
  if (method === '*') return ['get']
  // OpenAPI does not support this verb.
  return method === 'LIST' ? [] : [method.toLowerCase()]
}

function fieldSchema(field: Field<unknown>): JsonSchema {
  return {
    type: field.type,
    ...(field.choices ? { enum: field.choices } : {}),
    ...(field.fallback === undefined ? {} : { default: field.fallback }),
  }
}

function parametersOf({ input }: AnyEndpoint, path: string): JsonSchema[] {
  return Object.entries(input.fields).flatMap(([name, field]): JsonSchema[] => {
    if (field.in === 'body' || (field.in === 'path' && !path.includes(`{${name}}`))) return []
    const sent = field.in === 'header' ? name.replaceAll('_', '-') : name
    if (field.in === 'header' && RESERVED_HEADERS.has(sent.toLowerCase())) return []
    const { description, required } = field
    return [{ name: sent, in: field.in, description, required, schema: fieldSchema(field) }]
  })
}

function bodyOf({ input, bodyBytesMax }: AnyEndpoint): JsonSchema | undefined {
  const fields = Object.entries(input.fields).filter(([, field]) => field.in === 'body')
  if (fields.length === 0) return undefined
  const properties = Object.fromEntries(
    fields.map(([name, field]) => [name, { ...fieldSchema(field), description: field.description }]),
  )
  const required = fields.filter(([, field]) => field.required).map(([name]) => name)
  return {
    description: `At most ${bodyBytesMax ?? 0} bytes`,
    required: required.length > 0,
    content: { 'application/json': { schema: { type: 'object', properties, ...(required[0] ? { required } : {}) } } },
  }
}

function answerOf({ output, produces, result }: AnyEndpoint): JsonSchema {
  if (output === 'answer') return { description: 'Response in the format of the endpoint' }
  if (output === 'empty') return { description: 'Success without content' }
  if (output === 'stream' && produces === undefined) {
    const bytes = { schema: { type: 'string', format: 'binary' } }
    return { description: 'Raw bytes, or frames as concatenated JSON objects', content: { '*/*': bytes } }
  }
  const type = produces ?? 'application/json'
  const description = type === 'text/plain' ? 'JSON; with this content type if the Accept header requests it' : 'JSON'
  return {
    description,
    content: { [type === 'text/plain' ? 'text/plain; charset=utf-8' : type]: { schema: result ?? {} } },
  }
}

function responsesOf(operation: AnyEndpoint): JsonSchema {
  const content =
    operation.errorFormat === 'plain'
      ? { 'text/plain; charset=utf-8': { schema: { type: 'string' } } }
      : { 'application/json': { schema: { $ref: '#/components/schemas/Errors' } } }
  const errors = Object.entries(ERROR_STATUSES).filter(([status]) => !(operation.open && status === '403'))
  return {
    [operation.emptyStatus ?? 200]: answerOf(operation),
    ...Object.fromEntries(errors.map(([status, description]) => [status, { description, content }])),
  }
}

function describe(operation: AnyEndpoint, path: string, method: string, anyVerb: boolean): JsonSchema {
  const [tag = ''] = operation.name.split('.')
  const body = NO_CONTENT_METHODS.has(method) ? undefined : bodyOf(operation)
  return {
    // Unique for operations with several routes.
    operationId: method === 'get' || anyVerb ? operation.name : `${operation.name}.${method}`,
    summary: operation.summary,
    tags: [tag],
    parameters: parametersOf(operation, path),
    ...(body ? { requestBody: body } : {}),
    responses: responsesOf(operation),
    security: operation.open ? [] : Object.keys(TOKEN_HEADERS).map((name) => ({ [name]: [] })),
    ...(anyVerb ? { 'x-any-method': true } : {}),
  }
}

/** Builds the document. Every path is also served without `/v1`. */
export function openApiDocument(operations: readonly AnyEndpoint[], version: string): JsonSchema {
  const paths: Record<string, Record<string, unknown>> = {}
  for (const operation of operations) {
    for (const route of operation.http) {
      const [verb = '', pattern = ''] = route.split(' ')
      const path = pattern.replaceAll(/:([^/]+)/g, '{$1}')
      for (const method of documentedMethods(verb)) {
        const known = (paths[path] ??= {})
        known[method] = describe(operation, path, method, verb === '*')
      }
    }
  }
  const tags = [...new Set(operations.map(({ name }) => name.split('.')[0] ?? ''))]
  return {
    openapi: '3.1.0',
    info: {
      title: 'outpost',
      version,
      description:
        'Every path is also served without /v1. Every GET endpoint accepts HEAD. Every endpoint with a JSON response accepts ?pretty.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/' }],
    tags: tags.map((name) => ({ name })),
    paths,
    components: {
      securitySchemes: TOKEN_HEADERS,
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

interface OpenApiParts {
  /** All operations of the process, read with the first request. */
  readonly operations: () => readonly AnyEndpoint[] | Promise<readonly AnyEndpoint[]>
  readonly facts: { readonly version: string }
}

export const openApi = handle(
  {
    name: 'agent.openapi',
    summary: 'Read this document',
    http: ['GET /v1/openapi.json'],
    target: 'server',
    input: schema({}),
    output: 'json',
    result: { type: 'object' },
    errorFormat: 'plain',
    open: true,
    authorize: () => undefined,
  },
  ({ facts, operations }: OpenApiParts) => {
    let document: JsonSchema | undefined
    return {
      run: async () => (document ??= openApiDocument(await operations(), facts.version)),
    }
  },
)
