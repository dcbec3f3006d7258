/** `/v1/openapi.json`: valid, complete, and true to what is served. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Validator } from '@seriousme/openapi-schema-validator'
import { documentedMethods, openApi, openApiDocument } from '../../src/telemetry/openapi.ts'
import { Router } from '../../src/http/router.ts'
import type { AnyOperation } from '../../src/platform/operation.ts'
import { startAgent, workDirectory, writeConfig } from '../helpers/agent-process.ts'
import { startEdge } from '../helpers/edge.ts'
import { ask } from '../helpers/raw-http.ts'
import { ALLOC, makeAllocation } from '../helpers/allocation.ts'

interface Described {
  readonly operationId: string
  readonly parameters: readonly { name: string; in: string; required: boolean; schema: Record<string, unknown> }[]
  readonly requestBody?: { content: { 'application/json': { schema: { required?: string[] } } } }
  readonly responses: Record<string, { content?: Record<string, { schema: Schema }> }>
  readonly security: readonly unknown[]
}
interface Schema {
  readonly type?: string
  readonly properties?: Record<string, Schema>
  readonly required?: readonly string[]
  readonly items?: Schema
  readonly additionalProperties?: Schema
  readonly anyOf?: readonly Schema[]
}
interface Document {
  readonly paths: Record<string, Record<string, Described>>
}

/** Routes as the document names them: `get /v1/x/{y}`. */
function routesOf(operations: readonly AnyOperation[]): string[] {
  return operations.flatMap(({ http }) =>
    http.flatMap((route) => {
      const [verb = '', path = ''] = route.split(' ')
      return documentedMethods(verb).map((method) => `${method} ${path.replaceAll(/:([^/]+)/g, '{$1}')}`)
    }),
  )
}

test('an agent returns a valid OpenAPI document without a token', async (t) => {
  const agent = await startAgent(t, ['-config', writeConfig(workDirectory(t), '')])
  const answer = await ask(agent.port, 'GET', '/v1/openapi.json')
  assert.equal(answer.status, 200)
  const document = JSON.parse(answer.body.toString()) as Document
  const { valid, errors } = await new Validator().validate(
    JSON.parse(answer.body.toString()) as Record<string, unknown>,
  )
  assert.ok(valid, JSON.stringify(errors))
  for (const [path, methods] of Object.entries(document.paths)) {
    for (const [method, { operationId, security, parameters }] of Object.entries(methods)) {
      const real = path.replaceAll(/\{[^}]+\}/g, ALLOC)
      const { status } = await ask(
        agent.port,
        method.toUpperCase(),
        `${real}?offset=0&limit=0&task=x`,
        'Content-Length: 0',
      )
      // Served, and closed to strangers exactly where it says so. Each caller may read its own permissions.
      const isOpen = security.length === 0 || operationId === 'agent.permissions'
      const expected = isOpen ? /^(200|500)$/ : /^(400|403|404)$/
      assert.match(String(status), expected, `${method} ${path} (${operationId})`)
      const named = [...path.matchAll(/\{([^}]+)\}/g)].map(([, name]) => name)
      assert.deepEqual(
        parameters.filter((one) => one.in === 'path').map(({ name }) => name),
        named,
      )
    }
  }
})

test('the document has exactly the routes of the agent, and unique names', async (t) => {
  const { host } = await startEdge(t)
  const operations: AnyOperation[] = [...host.operations]
  operations.push(openApi.in({ operations: () => operations, facts: { version: '1' } }))
  const { paths } = openApiDocument(operations, '1') as unknown as Document
  const described = Object.entries(paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((one) => `${one} ${path}`),
  )
  assert.deepEqual(described.sort(), routesOf(operations).sort())
  const ids = Object.values(paths).flatMap((methods) => Object.values(methods).map(({ operationId }) => operationId))
  assert.equal(new Set(ids).size, ids.length)
  const router = new Router(operations)
  for (const route of described) {
    const [method = '', path = ''] = route.split(' ')
    assert.ok(router.match(method.toUpperCase(), path.replaceAll(/\{[^}]+\}/g, ALLOC)))
  }
})

test('parameters have their requirement, choices and defaults', async (t) => {
  const { host } = await startEdge(t)
  const { paths } = openApiDocument(host.operations, '1') as unknown as Document
  const parameter = (path: string, name: string) => paths[path]?.['get']?.parameters.find((one) => one.name === name)
  const logs = '/v1/client/fs/logs/{alloc_id}'
  assert.equal(parameter(logs, 'alloc_id')?.required, true)
  assert.equal(parameter(logs, 'task')?.required, true)
  assert.deepEqual(parameter(logs, 'follow')?.schema, { type: 'boolean', default: false })
  assert.deepEqual(parameter(logs, 'origin')?.schema, { type: 'string', enum: ['start', 'end'], default: 'start' })
  assert.equal(parameter('/v1/client/fs/readat/{alloc_id}', 'offset')?.required, true)
  const apply = paths['/v1/client/metadata']?.['post']
  assert.deepEqual(apply?.requestBody?.content['application/json'].schema.required, ['Meta'])
  assert.ok(Object.hasOwn(apply?.responses['400']?.content ?? {}, 'text/plain; charset=utf-8'))
})

const fs = (kind: string) => `/v1/client/fs/${kind}/{alloc_id}`

/** What a value has that its schema does not say, or the other way round. */
function mismatches(value: unknown, schema: Schema, at = '$'): string[] {
  if (schema.anyOf) {
    return schema.anyOf.some((one) => mismatches(value, one, at).length === 0) ? [] : [`${at}: none of the kinds`]
  }
  if (value === null || schema.type === 'null') return value === null && schema.type === 'null' ? [] : [`${at}: null`]
  if (Array.isArray(value)) {
    const { items } = schema
    return schema.type === 'array' ? value.flatMap((item) => (items ? mismatches(item, items, `${at}[]`) : [])) : [at]
  }
  if (typeof value !== 'object') {
    const type = schema.type === 'integer' ? 'number' : schema.type
    const whole = schema.type !== 'integer' || Number.isInteger(value)
    return typeof value === type && whole ? [] : [`${at}: ${JSON.stringify(value)} is no ${schema.type}`]
  }
  const missing = (schema.required ?? [])
    .filter((name) => !Object.hasOwn(value, name))
    .map((name) => `${at}.${name}: missing`)
  return Object.entries(value)
    .flatMap(([name, inner]) => {
      const known = schema.properties?.[name] ?? schema.additionalProperties
      return known
        ? mismatches(inner, known, `${at}.${name}`)
        : name === 'ContentType'
          ? []
          : [`${at}.${name}: unknown`]
    })
    .concat(missing)
}

test('responses match their schemas', async (t) => {
  const { host, port, allocDir } = await startEdge(t)
  const other = 'a1b2c3d4-0000-4000-8000-000000000002'
  const started = new Date(Date.now() - process.uptime() * 1000).toISOString()
  makeAllocation(allocDir, other, { Tasks: { web: { State: 'running', StartedAt: started, Pids: [process.pid] } } })
  host.allocations.refresh(other)
  const { paths } = openApiDocument(host.operations, '1') as unknown as Document
  for (const [path, query] of [
    [fs('ls'), '?path=web'],
    [fs('stat'), '?path=web/local/hello.txt'],
    [fs('stat'), '?path=/'],
    ['/v1/client/stats', ''],
    ['/v1/client/metadata', ''],
    ['/v1/client/allocation/{alloc_id}/stats', ''],
  ] as const) {
    const answer = await ask(port, 'GET', path.replace('{alloc_id}', other) + query)
    assert.equal(answer.status, 200)
    const content = paths[path]?.['get']?.responses['200']?.content ?? {}
    const [schema] = Object.values(content).map((one) => one.schema)
    assert.ok(schema?.type, path)
    assert.deepEqual(mismatches(JSON.parse(answer.body.toString()), schema), [], path)
  }
})
