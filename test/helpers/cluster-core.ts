/** The secrets core of a cluster: initialized, unsealed, with tokens for requests to hosts. */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { type ClusterWorld, ROOT_TOKEN } from './cluster.ts'
import { send } from './openbao-replay.ts'

const sha256 = createHash('sha256').update(ROOT_TOKEN).digest('hex')
const POLICY = 'node { policy = \\"write\\" }\\nnamespace \\"default\\" { policy = \\"write\\" }'
/** Configures `ROOT_TOKEN` with all permissions on hosts, also while the core is sealed. */
export const OPS_ACL = `acl {\n enabled = true\n token "ops" {\n sha256 = "${sha256}"\n policy = "${POLICY}"\n }\n}`

export interface Core {
  /** The only unseal key. */
  readonly key: string
  readonly rootToken: string
}

export async function api(world: ClusterWorld, method: string, path: string, body: unknown, token: string) {
  const headers = { 'X-Vault-Token': token }
  const answer = await send(world.server().port, { method, path: `/v1/${path}`, headers, body: JSON.stringify(body) })
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${answer.body}`)
  // Response bodies of the server in the form that these tests need.
  return JSON.parse(answer.body || '{}') as {
    keys: string[]
    root_token: string
    auth: { client_token: string; accessor: string }
  }
}

export async function openCore(world: ClusterWorld): Promise<Core> {
  const made = await api(world, 'PUT', 'sys/init', { secret_shares: 1, secret_threshold: 1 }, '')
  const [key = ''] = made.keys
  await api(world, 'PUT', 'sys/unseal', { key }, '')
  return { key, rootToken: made.root_token }
}

/** A token with this one policy, which is written first. `more` has further parameters of the token. */
export async function tokenWith(
  world: ClusterWorld,
  { rootToken }: Core,
  policy: { readonly name: string; readonly text: string },
  more: Readonly<Record<string, unknown>> = {},
) {
  await api(world, 'PUT', `sys/policies/acl/${policy.name}`, { policy: policy.text }, rootToken)
  const wanted = { policies: [policy.name], no_default_policy: true, ...more }
  return (await api(world, 'POST', 'auth/token/create', wanted, rootToken)).auth
}
