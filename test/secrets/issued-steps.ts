/** Leases and wrapped answers are issued, used and revoked; `said` is the lease or the token in the response. */
import assert from 'node:assert/strict'
import type { CoreAnswer, CoreWorld } from '../helpers/core-world.ts'
import { leaseTestEngine } from '../helpers/lease-test-engine.ts'
import type { Said, Scenario } from './crash-scenario.ts'

const INVALID = 'wrapping token is not valid or does not exist'

export const issued: Scenario = {
  engines: () => [leaseTestEngine().engine],
  steps: ['issued', 'wrapped', 'unwrapped', 'again', 'rewrapped', 'revoked', 'ended'],
  async prepare(world) {
    await world.ask('POST', 'sys/mounts/lent', { type: 'lender' })
  },
  run: issueAndTakeBack,
  look: (world, said, what) => look(world, new Map(said.map(({ step, value }) => [step, value])), what),
}

/** Issues two leases, one of them wrapped, unwraps it, rewraps another answer, revokes one lease and the token of the other. */
async function issueAndTakeBack(world: CoreWorld, say: (said: Said) => void): Promise<void> {
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

async function look(world: CoreWorld, said: ReadonlyMap<string, string>, what: string): Promise<void> {
  const leases = () => world.store.paths('sys/lease/id/').length
  const out = () => world.store.paths('logical/').filter((path) => path.includes('/out/')).length
  const lasts = async (id: string) => (await world.ask('PUT', 'sys/leases/lookup', { lease_id: id })).status === 200
  assert.equal(leases(), out(), `${what}: what is out has a lease, and nothing else has one`)
  const first = said.get('issued')
  if (first !== undefined && !said.has('rewrapped'))
    assert.ok(await lasts(first), `${what}: an answered lease is there`)
  if (first !== undefined && said.has('revoked')) assert.ok(!(await lasts(first)), `${what}: a revoked lease is gone`)
  await checkToken(world, said.get('wrapped'), said.has('unwrapped'), what)
  await checkToken(world, said.get('again'), said.has('rewrapped'), what)
  if (said.has('rewrapped')) await checkToken(world, said.get('rewrapped'), false, what)
  if (said.has('ended')) assert.equal(leases(), 0, what)
  assert.equal((await world.ask('PUT', 'sys/leases/revoke-prefix/lent')).status, 204)
  assert.deepEqual([leases(), out()], [0, 0], `${what}: everything can be revoked`)
}

/** A token is good for one answer at most, and for none where it was used. */
async function checkToken(world: CoreWorld, token: string | undefined, isUsed: boolean, what: string): Promise<void> {
  if (token === undefined) return
  const unwrap = async () => world.ask('POST', 'sys/wrapping/unwrap', { token })
  const first = await unwrap()
  if (isUsed) assert.equal(first.body.errors[0], INVALID, `${what}: a used token`)
  assert.ok(first.status === 200 || first.body.errors[0] === INVALID, `${what}: ${first.text}`)
  assert.equal((await unwrap()).body.errors[0], INVALID, `${what}: twice`)
}
