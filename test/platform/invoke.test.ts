/** How a call is made, whichever way it came. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Refusal } from '../../src/platform/errors.ts'
import {
  type IncomingCall,
  type Callers,
  type Chunk,
  type Endpoint,
  handle,
  type Identity,
  invoke,
  ANONYMOUS,
  type PermissionHolder,
} from '../../src/platform/operation.ts'
import { queryBoolean, schema } from '../../src/platform/schema.ts'
import { callOf, identity, root } from '../host/allocations/host-fixture.ts'

interface Input {
  readonly endless: boolean
}

const input = schema({ endless: queryBoolean({ description: '', fallback: false }) })

/** An endpoint about `thing`, and everything that happens to a call of it. */
function world(over: Partial<Endpoint<Input, string>> = {}, thing: () => string = () => 'thing') {
  const seen: string[] = []
  const endpoint: Endpoint<Input, string> = {
    name: 'test.thing',
    summary: '',
    http: ['GET /v1/thing'],
    target: 'server',
    input: {
      fields: input.fields,
      parse(raw) {
        seen.push('parse')
        return input.parse(raw)
      },
    },
    output: 'json',
    errorFormat: 'plain',
    endless: (asked) => asked.endless,
    authorize(_input, caller, about) {
      seen.push(`authorize ${caller.accessor} for ${about}`)
      if (caller !== ANONYMOUS && !caller.allowsNode('read')) throw new Refusal('permission_denied', 'no')
    },
    ...over,
  }
  const { promise: ended, resolve: end } = Promise.withResolvers<void>()
  const operation = handle(endpoint, (room: string) => ({
    find() {
      seen.push('find')
      return thing()
    },
    async run(asked, call, about) {
      seen.push(`run ${about} in ${room} for ${call.identity.accessor}`)
      if (asked.endless) await ended
      return about
    },
  })).in('a room')
  const answering = {
    admitted: (isEndless: boolean) => void seen.push(`admitted${isEndless ? ', endless' : ''}`),
    async value(value: unknown) {
      seen.push(`value ${String(value)}`)
    },
    stream: async (_chunks: AsyncIterable<Chunk>) => assert.fail('nothing streams here'),
    rightsLost: ({ message }: Refusal) => void seen.push(`lost: ${message}`),
  }
  return { operation, answering, seen, end }
}

function arrived(query: [string, string][] = [], token?: string): IncomingCall {
  return { ...callOf(ANONYMOUS), raw: { params: {}, query, headers: {}, body: undefined }, token }
}

/** Who has the token `t`, and what was asked. */
function callers(who: Identity | Promise<Identity> = root) {
  const asked: (string | undefined)[] = []
  const holders: PermissionHolder[] = []
  const keep = (_token: string | undefined, _remote: string | undefined, holder: PermissionHolder) => {
    kept.push(holder)
    holders.push(holder)
    return () => void holders.splice(holders.indexOf(holder), 1)
  }
  const kept: unknown[] = []
  const all: Callers = {
    resolve(token) {
      asked.push(token)
      return who
    },
    rights: { keep, keepLong: keep },
  }
  return { all, asked, holders, kept }
}

test('an operation is parsed, identified, looked up, authorized, run and answered, once each and in this order', async () => {
  for (const who of [root, Promise.resolve(root)]) {
    const { operation, answering, seen } = world()
    const { all, asked, kept } = callers(who)
    await invoke(operation, arrived([], 't'), answering, all)
    assert.deepEqual(seen, [
      'parse',
      'find',
      'authorize root for thing',
      'admitted',
      'run thing in a room for root',
      'value thing',
    ])
    assert.deepEqual([asked, kept], [['t'], []])
  }
})

const missing = () => {
  throw new Refusal('not_found', 'none')
}

test('a missing object is reported before a missing permission, and neither runs the operation', async () => {
  const unknown = world({}, missing)
  await assert.rejects(invoke(unknown.operation, arrived(), unknown.answering, callers(identity()).all), {
    code: 'not_found',
  })
  assert.deepEqual(unknown.seen, ['parse', 'find'])
  const denied = world()
  await assert.rejects(invoke(denied.operation, arrived(), denied.answering, callers(identity()).all), {
    code: 'permission_denied',
  })
  assert.deepEqual(denied.seen, ['parse', 'find', 'authorize test for thing'])
})

test('a token is not resolved if the endpoint is open, resolves it itself, or a server vouches for the caller', async () => {
  const open = callers()
  const first = world({ open: true })
  await invoke(first.operation, arrived([], 't'), first.answering, open.all)
  assert.deepEqual(open.asked, [undefined])
  const own = callers()
  const second = world({ ownToken: true })
  await invoke(second.operation, arrived([], 't'), second.answering, own.all)
  assert.deepEqual(own.asked, [])
  assert.ok(second.seen.includes('run thing in a room for '), 'the caller is anonymous')
  const vouched = callers()
  const third = world()
  const call = arrived([['endless', 'true']], 't')
  third.end()
  await invoke(third.operation, call, third.answering, vouched.all, identity('node:read'))
  assert.deepEqual([vouched.asked, vouched.kept, call.identity.accessor], [[], [], 'test'])
})

test('during an endless response the caller is authorized again with the current state', async () => {
  let thing = 'thing'
  const { operation, answering, seen, end } = world({}, () => thing)
  const { all, holders } = callers()
  const call = arrived([['endless', 'true']], 't')
  const invoked = invoke(operation, call, answering, all)
  const [holder] = holders
  assert.ok(holder)
  thing = 'another'
  holder.renew(identity('node:read'))
  assert.equal(call.identity.accessor, 'test')
  assert.throws(() => holder.renew(identity()), { code: 'permission_denied' })
  assert.equal(call.identity.accessor, 'test')
  holder.end(new Refusal('permission_denied', 'no'))
  assert.deepEqual(holders, [])
  end()
  await invoked
  assert.deepEqual(seen.slice(4), [
    'run thing in a room for root',
    'find',
    'authorize test for another',
    'find',
    'authorize test for another',
    'lost: no',
    'value thing',
  ])
})
