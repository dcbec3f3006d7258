/** Shared by tests of tokens: creating and validating them. */
import assert from 'node:assert/strict'
import type { TestContext } from 'node:test'
import { CoreWorld, type WorldOptions } from '../helpers/core-world.ts'

export interface Made {
  readonly token: string
  readonly accessor: string
  readonly auth: Readonly<Record<string, unknown>>
  readonly warnings: readonly string[] | null
}

/** Makes a token with the root token, or with `by`. */
export async function make(world: CoreWorld, body: object = {}, by?: string, path = 'create'): Promise<Made> {
  const answer = await world.ask('POST', `auth/token/${path}`, body, by === undefined ? {} : { token: by })
  assert.equal(answer.status, 200, answer.text)
  const { auth, warnings } = answer.body
  return { token: String(auth['client_token']), accessor: String(auth['accessor']), auth, warnings }
}

export async function isToken(world: CoreWorld, token: string): Promise<boolean> {
  const { status } = await world.ask('GET', 'auth/token/lookup-self', undefined, { token })
  assert.ok(status === 200 || status === 403, String(status))
  return status === 200
}

export async function lookup(world: CoreWorld, token: string): Promise<Readonly<Record<string, unknown>>> {
  const answer = await world.ask('POST', 'auth/token/lookup', { token })
  assert.equal(answer.status, 200, answer.text)
  return answer.body.data
}

/** Who may do everything with tokens but has no right beyond. */
export const TOKEN_POLICY = 'path "auth/token/*" { capabilities = ["create", "read", "update", "delete", "list"] }'

export async function writePolicy(world: CoreWorld, name: string, policy: string): Promise<void> {
  assert.equal((await world.ask('PUT', `sys/policies/acl/${name}`, { policy })).status, 204)
}

/** Every path of tokens that is there: entries, indexes, marks. */
export function tokenPathsIn(world: CoreWorld): string[] {
  return world.core.barrier.paths('sys/token/').filter((path) => !/^sys\/token\/(salt|batch-key|role\/)/.test(path))
}

/** What the next process finds, on the same files or on a copy of them. Closed with the test. */
export async function reopened(
  t: TestContext,
  world: CoreWorld,
  { directory = world.directory, ...options }: WorldOptions & { readonly directory?: string } = {},
): Promise<CoreWorld> {
  const next = await CoreWorld.reopen(directory, world.keys, { nowMs: world.nowMs, ...options })
  t.after(() => next.store.close())
  return next
}
