/**
 * The question that an agent has for its servers: who is this token? The token travels as the token of the call, so that
 * it is nowhere else; the answer is what it may do, and never the token.
 *
 * It has no route: only another process of the cluster can ask.
 */
import * as v from 'valibot'
import { Fault } from '../../platform/errors.ts'
import type { AnyOperation, Grants, Operation } from '../../platform/operation.ts'
import { type InputOf, queryBoolean, schema } from '../../platform/schema.ts'

export const RESOLVE_TOKEN = 'cluster.resolve_token'

const grantsSchema = v.object({
  accessor: v.string(),
  management: v.boolean(),
  policies: v.array(v.string()),
  expiresInMs: v.optional(v.pipe(v.number(), v.finite())),
  isUseLimited: v.optional(v.boolean()),
})

type GrantsOf = (token: string | undefined, remote?: string, again?: boolean) => Grants | Promise<Grants>

const fields = {
  again: queryBoolean({ description: 'The caller was admitted before: no use of the token is taken', fallback: false }),
}

export function tokenOperation(grantsOf: GrantsOf): AnyOperation {
  const operation: Operation<InputOf<typeof fields>, Grants> = {
    name: RESOLVE_TOKEN,
    summary: 'What a token may do, for another process of the cluster',
    http: [],
    target: 'server',
    input: schema(fields),
    output: 'json',
    errorFormat: 'plain',
    // Whoever has the token may know what it may do; one that is none is refused with the answer.
    ownToken: true,
    authorize: () => undefined,
    run: async ({ again }, call) => grantsOf(call.token, call.remote, again),
  }
  return operation
}

/** The answer of a server. Throws a Fault for what is none. */
export function parseGrants(json: string | undefined): Grants {
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), grantsSchema), json)
  if (!parsed.success) throw new Fault('a server did not say what a token may do')
  const { expiresInMs, isUseLimited, ...grants } = parsed.output
  return {
    ...grants,
    ...(expiresInMs === undefined ? {} : { expiresInMs }),
    ...(isUseLimited === undefined ? {} : { isUseLimited }),
  }
}
