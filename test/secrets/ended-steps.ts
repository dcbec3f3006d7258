/**
 * The steps of ended-crash.test.ts: leases end by expiry, by prefix, with their token and with their mount, and entities
 * are merged.
 */
import type { CoreAnswer, CoreWorld } from '../helpers/core-world.ts'

/** What is said after each answer, in this order. */
export const ENDED_STEPS = ['issued', 'expired', 'prefix', 'token', 'merged', 'disabled'] as const
export type EndedStep = (typeof ENDED_STEPS)[number]

export interface EndedSaid {
  readonly step: EndedStep
  readonly value: string
}

export const SHORT_SECONDS = 60
export const ALIAS = 'program'

async function asked(world: CoreWorld, method: string, path: string, body?: unknown, token?: string) {
  const answer: CoreAnswer = await world.ask(method, path, body, { token })
  if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`)
  return answer
}

/** What the caller of the merge needs to know. */
export interface Prepared {
  readonly source: string
  readonly target: string
  /** Of the source's entity, which may read `sys/auth`; as the target it may read `sys/mounts`, too. */
  readonly token: string
}

export async function prepareEnd(world: CoreWorld): Promise<Prepared> {
  await asked(world, 'POST', 'sys/mounts/lent', { type: 'lender' })
  for (const name of ['auth', 'mounts']) {
    const policy = `path "sys/${name}" { capabilities = ["read"] }`
    await asked(world, 'PUT', `sys/policies/acl/${name}`, { policy })
  }
  await asked(world, 'POST', 'auth/token/roles/r', { allowed_entity_aliases: '*', allowed_policies: 'default' })
  const made = (await asked(world, 'POST', 'auth/token/create/r', { entity_alias: ALIAS })).body.auth
  const source = String(made['entity_id'])
  await asked(world, 'POST', `identity/entity/id/${source}`, { policies: ['auth'] })
  await asked(world, 'POST', 'identity/group', { name: 'g', member_entity_ids: [source] })
  const target = await asked(world, 'POST', 'identity/entity', { name: 'target', policies: ['mounts'] })
  return { source, target: String(target.body.data['id']), token: String(made['client_token']) }
}

/** Issues nine leases and revokes each in one of three ways; merges the source into the target; disables a mount with two leases. */
export async function endAll(
  world: CoreWorld,
  { source, target }: Prepared,
  say: (said: EndedSaid) => void,
): Promise<void> {
  const made = await asked(world, 'POST', 'auth/token/create', { policies: ['root'] })
  const token = String(made.body.auth['client_token'])
  for (let at = 0; at < 3; at++) await asked(world, 'GET', `lent/creds/short?ttl=${SHORT_SECONDS}`)
  for (let at = 0; at < 3; at++) await asked(world, 'GET', 'lent/creds/many?ttl=3600')
  for (let at = 0; at < 3; at++) await asked(world, 'GET', 'lent/creds/own?ttl=3600', undefined, token)
  say({ step: 'issued', value: token })
  world.nowMs += (SHORT_SECONDS + 1) * 1000
  await world.core.open.leases.expiry.tick()
  say({ step: 'expired', value: '' })
  await asked(world, 'PUT', 'sys/leases/revoke-prefix/lent/creds/many')
  say({ step: 'prefix', value: '' })
  await asked(world, 'POST', 'auth/token/revoke', { token })
  say({ step: 'token', value: '' })
  await asked(world, 'POST', 'identity/entity/merge', { to_entity_id: target, from_entity_ids: [source] })
  say({ step: 'merged', value: '' })
  for (let at = 0; at < 2; at++) await asked(world, 'GET', 'lent/creds/last?ttl=3600')
  await asked(world, 'DELETE', 'sys/mounts/lent')
  say({ step: 'disabled', value: '' })
}
