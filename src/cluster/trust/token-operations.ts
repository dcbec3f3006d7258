/**
 * Operations about tokens between the processes of a cluster. They have no route, so only processes of the cluster can call
 * them.
 *
 * - An agent asks a server to resolve a token. The token is sent as the token of the call, so it occurs nowhere else; the
 *   answer has its permissions and never the token.
 * - A server whose secrets core was sealed orders agents to clear their token caches.
 */
import * as v from 'valibot'
import { Fault, Refusal } from '../../platform/errors.ts'
import type { AnyOperation, Grants, Identity, Operation } from '../../platform/operation.ts'
import { type InputOf, queryBoolean, schema } from '../../platform/schema.ts'

export const RESOLVE_TOKEN = 'cluster.resolve_token'
export const FORGET_TOKENS = 'cluster.forget_tokens'

const grantsSchema = v.object({
  accessor: v.string(),
  management: v.boolean(),
  policies: v.array(v.string()),
  expiresInMs: v.optional(v.pipe(v.number(), v.finite())),
  isUseLimited: v.optional(v.boolean()),
})

type GrantsOf = (
  token: string | undefined,
  remote?: string,
  isRecheck?: boolean,
  mayAsk?: boolean,
) => Grants | Promise<Grants>

/** Initial hop count of a request that the receiving server must answer without forwarding it. */
export const FINAL_HOPS = 1

const fields = {
  again: queryBoolean({ description: 'Check a caller again; does not count as a use of the token', fallback: false }),
}

export function resolveTokenOperation(grantsOf: GrantsOf): AnyOperation {
  const operation: Operation<InputOf<typeof fields>, Grants> = {
    name: RESOLVE_TOKEN,
    summary: 'Resolve the permissions of a token, for another process of the cluster',
    http: [],
    target: 'server',
    input: schema(fields),
    output: 'json',
    errorFormat: 'plain',
    // The holder of a token may know its permissions; an unknown token is refused by the handler.
    ownToken: true,
    authorize: () => undefined,
    run: async ({ again }, call) => grantsOf(call.token, call.remote, again, call.hops <= FINAL_HOPS),
  }
  return operation
}

/** Parses the answer of a server. Throws a Fault for a malformed one. */
export function parseGrants(json: string | undefined): Grants {
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), grantsSchema), json)
  if (!parsed.success) throw new Fault('malformed response from a server about a token')
  const { expiresInMs, isUseLimited, ...grants } = parsed.output
  return {
    ...grants,
    ...(expiresInMs === undefined ? {} : { expiresInMs }),
    ...(isUseLimited === undefined ? {} : { isUseLimited }),
  }
}

/** The identity in whose name a server calls `FORGET_TOKENS`. */
export const SERVER_IDENTITY: Identity = {
  accessor: 'server',
  allowsNode: () => false,
  allowsAgent: () => true,
  allowsNamespace: () => false,
}

export function forgetTokensOperation(forgetTokens: () => void): AnyOperation {
  const operation: Operation<Record<string, never>, unknown> = {
    name: FORGET_TOKENS,
    summary: 'Clear the cache of resolved tokens',
    http: [],
    target: 'node',
    input: schema({}),
    output: 'json',
    errorFormat: 'plain',
    authorize(_input, identity) {
      if (!identity.allowsAgent('write')) throw new Refusal('permission_denied', 'Permission denied')
    },
    async run() {
      forgetTokens()
      return {}
    },
  }
  return operation
}
