/** What issued-crash.test.ts cuts short: leases and wrapped answers, given out, used and taken back. */
import type { CoreAnswer, CoreWorld } from '../helpers/core-world.ts'

/** What is said after each answer, in this order. */
export const STEPS = ['issued', 'wrapped', 'unwrapped', 'again', 'rewrapped', 'revoked', 'ended'] as const
export type Step = (typeof STEPS)[number]

/** An answered step, with the lease or the token that its caller got. */
export interface Said {
  readonly step: Step
  readonly value: string
}

export async function prepare(world: CoreWorld): Promise<void> {
  await world.ask('POST', 'sys/mounts/lent', { type: 'lender' })
}

/** Gives out two leases, one of them wrapped, unwraps it, rewraps another answer, revokes one lease and the token of the other. */
export async function issueAndTakeBack(world: CoreWorld, say: (said: Said) => void): Promise<void> {
  const ask = async (
    method: string,
    path: string,
    body?: unknown,
    headers = {},
    token?: string,
  ): Promise<CoreAnswer> => {
    const answer = await world.ask(method, path, body, { headers, token })
    if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`)
    return answer
  }
  const wrapping = { 'X-Vault-Wrap-TTL': '600' }
  const first = await ask('GET', 'lent/creds/app?ttl=3600')
  say({ step: 'issued', value: String(first.body['lease_id']) })
  const wrapped = tokenOf(await ask('GET', 'lent/creds/app?ttl=3600', undefined, wrapping))
  say({ step: 'wrapped', value: wrapped })
  const unwrapped = await ask('POST', 'sys/wrapping/unwrap', { token: wrapped })
  say({ step: 'unwrapped', value: String(unwrapped.body['lease_id']) })
  const again = tokenOf(await ask('POST', 'sys/wrapping/wrap', { a: 1 }, wrapping))
  say({ step: 'again', value: again })
  const rewrapped = tokenOf(await ask('POST', 'sys/wrapping/rewrap', { token: again }))
  say({ step: 'rewrapped', value: rewrapped })
  await ask('PUT', 'sys/leases/revoke', { lease_id: String(first.body['lease_id']) })
  say({ step: 'revoked', value: '' })
  await ask('PUT', 'sys/leases/revoke-prefix/lent')
  say({ step: 'ended', value: '' })
}

function tokenOf({ body }: CoreAnswer): string {
  return (body['wrap_info'] as { token: string }).token
}
