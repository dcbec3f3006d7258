import assert from 'node:assert/strict'
import crypto, { createHash } from 'node:crypto'
import { syncBuiltinESMExports } from 'node:module'
import { test } from 'node:test'
import { createAuthorizer } from '../../../src/cluster/trust/authorizer.ts'
import type { AuthorizerOptions } from '../../../src/cluster/trust/authorizer.ts'
import { Fault, Refusal } from '../../../src/platform/errors.ts'
import type { Identity } from '../../../src/platform/operation.ts'

const named = (accessor: string): Identity => ({
  accessor,
  allowsNode: () => false,
  allowsAgent: () => false,
  allowsNamespace: () => false,
})
const hash = (token: string) => createHash('sha256').update(token).digest('hex')
const entry = (name: string, token: string) => ({
  name,
  sha256: hash(token),
  identity: named(name),
  grants: { accessor: name, management: false, policies: [`policy of ${name}`] },
})

function accessorOf(token: string | undefined, options: Partial<AuthorizerOptions> = {}): Promise<string> {
  const tokens = [entry('first', 'token-1'), entry('second', 'token-2'), entry('third', 'tökén-3')]
  const authorizer = createAuthorizer({ enabled: true, tokens, anonymous: named('anonymous'), ...options })
  return Promise.resolve(authorizer.resolve(token)).then((identity) => identity.accessor)
}

test('each token resolves to its own identity', async () => {
  assert.equal(await accessorOf('token-1'), 'first')
  assert.equal(await accessorOf('token-2'), 'second')
  assert.equal(await accessorOf('tökén-3'), 'third')
  assert.equal(
    await accessorOf('T', { tokens: [{ ...entry('upper', 'T'), sha256: hash('T').toUpperCase() }] }),
    'upper',
  )
})

test('a call without a token is anonymous, and a wrong token is refused', async () => {
  assert.equal(await accessorOf(undefined), 'anonymous')
  assert.equal(await accessorOf(''), 'anonymous')
  for (const token of ['token-3', 'token-1 ', 'TOKEN-1', hash('token-1'), 'x'.repeat(16_000)]) {
    await assert.rejects(
      async () => accessorOf(token),
      (error) =>
        error instanceof Refusal && error.code === 'permission_denied' && error.message === 'Permission denied',
    )
  }
  await assert.rejects(async () => accessorOf('token-1', { tokens: [] }), Refusal)
})

test('with ACL off tokens are ignored and everything is allowed', async () => {
  const authorizer = createAuthorizer({
    enabled: false,
    tokens: [entry('first', 'token-1')],
    anonymous: named('anonymous'),
  })
  for (const token of [undefined, '', 'token-1', 'wrong']) {
    const identity = authorizer.resolve(token)
    assert.ok(identity.allowsNode('write') && identity.allowsAgent('write') && identity.allowsNamespace('x', 'read-fs'))
    assert.notEqual(identity.accessor, 'first')
  }
  assert.equal(await accessorOf('wrong', { enabled: false, management: named('root') }), 'root')
})

test('all hashes are compared for any token', async (t) => {
  const spy = t.mock.method(crypto, 'timingSafeEqual')
  syncBuiltinESMExports()
  t.after(() => {
    spy.mock.restore()
    syncBuiltinESMExports()
  })
  const tokens = Array.from({ length: 50 }, (_, index) => entry(`n${index}`, `token-${index}`))
  const authorizer = createAuthorizer({ enabled: true, tokens, anonymous: named('anonymous') })
  for (const [token, accessor] of [
    ['token-0', 'n0'],
    ['token-49', 'n49'],
  ] as const) {
    spy.mock.resetCalls()
    assert.equal(authorizer.resolve(token).accessor, accessor)
    assert.equal(spy.mock.callCount(), 50)
  }
  spy.mock.resetCalls()
  await assert.rejects(async () => authorizer.resolve('wrong'), Refusal)
  assert.equal(spy.mock.callCount(), 50)
})

test('a malformed hash is a fault that does not contain it', () => {
  for (const sha256 of ['', 'planted', `${'ab'.repeat(31)}zz`, 'ab'.repeat(33)]) {
    assert.throws(
      () =>
        createAuthorizer({ enabled: true, tokens: [{ ...entry('ops', 'x'), sha256 }], anonymous: named('anonymous') }),
      (error) => error instanceof Fault && error.message === 'the sha256 of token "ops" is malformed',
    )
  }
})
