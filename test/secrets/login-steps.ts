/** Logins with a password and with a secret ID of three uses, some at the same time; said is a token with its accessor. */
import assert from 'node:assert/strict'
import { approle } from '../../src/auth/approle/approle.ts'
import type { CoreWorld } from '../helpers/core-world.ts'
import type { Said, Scenario } from './crash-scenario.ts'
import { quickUserpass } from '../helpers/quick-userpass.ts'

const USES = 3
const PASSWORD = { password: 'a long password' }
const AT_ALICE = 'auth/userpass/login/alice'
const AT_ROLE = 'auth/approle/login'

export const logins: Scenario = {
  engines: () => [quickUserpass, approle],
  steps: ['alice', 'secret', 'web', 'web', 'web', 'refused', 'renewed', 'revoked'],
  async prepare(world) {
    for (const type of ['userpass', 'approle']) await asked(world, 'POST', `sys/auth/${type}`, { type })
    await asked(world, 'POST', 'auth/userpass/users/alice', { ...PASSWORD, token_ttl: '1h' })
    await asked(world, 'POST', 'auth/approle/role/web', { token_ttl: '1h', secret_id_num_uses: USES })
    await asked(world, 'POST', 'auth/approle/role/web/role-id', { role_id: 'role-of-web' })
  },
  run: logIn,
  look,
}

const tokenIn = (value: string) => value.split(' ')[0] ?? ''

async function asked(world: CoreWorld, method: string, path: string, body?: unknown, token?: string) {
  const answer = await world.ask(method, path, body, { token })
  if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`)
  return answer.body
}

const withSecret = (world: CoreWorld, secretId: string) =>
  world.ask('POST', AT_ROLE, { role_id: 'role-of-web', secret_id: secretId }, { token: null })

async function logIn(world: CoreWorld, say: (said: Said) => void): Promise<void> {
  const took = (step: string, { auth }: Pick<Awaited<ReturnType<typeof asked>>, 'auth'>) => {
    say({ step, value: `${String(auth['client_token'])} ${String(auth['accessor'])}` })
    return String(auth['client_token'])
  }
  const alice = took('alice', await asked(world, 'POST', AT_ALICE, PASSWORD))
  const made = await asked(world, 'POST', 'auth/approle/role/web/secret-id', {})
  const secretId = String(made.data['secret_id'])
  say({ step: 'secret', value: secretId })
  const first = took('web', (await withSecret(world, secretId)).body)
  // One more than there are uses, at the same time.
  const refused: string[] = []
  const each = async () => {
    const answer = await withSecret(world, secretId)
    if (answer.status === 200) took('web', answer.body)
    else refused.push(answer.text)
  }
  await Promise.all(Array.from({ length: USES }, each))
  assert.equal(refused.length, 1)
  say({ step: 'refused', value: '' })
  await asked(world, 'PUT', 'auth/token/renew-self', { increment: '2h' }, alice)
  say({ step: 'renewed', value: '' })
  await asked(world, 'PUT', 'auth/token/revoke-self', {}, first)
  say({ step: 'revoked', value: '' })
}

async function look(world: CoreWorld, said: readonly Said[], what: string): Promise<void> {
  const isGood = async (value: string) =>
    (await world.ask('GET', 'auth/token/lookup-self', undefined, { token: tokenIn(value) })).status === 200
  const heard = (step: string) => said.filter((each) => each.step === step).map(({ value }) => value)
  const tokens = await loginTokens(world)
  const at = (path: string) => tokens.filter((each) => each['path'] === path)

  // Nothing answered is lost: only the first token of the role may be revoked, and is once that was answered.
  const [first] = heard('web')
  const isRevoked = first !== undefined && !(await isGood(first))
  if (isRevoked) assert.ok(heard('renewed').length > 0, `${what}: a token is lost`)
  if (heard('revoked').length > 0) assert.ok(isRevoked, `${what}: a revoked token is good`)
  for (const value of [...heard('alice'), ...heard('web').slice(1)]) {
    assert.ok(await isGood(value), `${what}: a token is lost`)
  }
  // Nothing is doubled, and each token has its end.
  assert.ok(at(AT_ALICE).length <= 1, what)
  for (const each of tokens) assert.ok(Number(each['ttl']) > 0 && Number(each['ttl']) <= 7200, `${what}: no end`)
  const entities = (await world.ask('LIST', 'identity/entity/id')).body.data?.['keys'] ?? []
  const people = Number(at(AT_ALICE).length > 0) + Number(at(AT_ROLE).length > 0 || isRevoked)
  assert.equal((entities as string[]).length, people, `${what}: an entity for each who has logged in`)

  // A use of the secret ID and the token that it gave are one.
  const [secretId] = heard('secret')
  if (secretId === undefined) return
  const found = await world.ask('POST', 'auth/approle/role/web/secret-id/lookup', { secret_id: secretId })
  const left = found.status === 200 ? Number(found.body.data['secret_id_num_uses']) : 0
  assert.equal(left + at(AT_ROLE).length + Number(isRevoked), USES, `${what}: uses of the secret ID`)
  for (let use = 0; use < left; use++) assert.equal((await withSecret(world, secretId)).status, 200, what)
  assert.equal((await withSecret(world, secretId)).status, 400, `${what}: more logins than uses`)
  assert.equal((await world.ask('POST', AT_ALICE, PASSWORD, { token: null })).status, 200, what)
}

/** What lookups tell of all tokens that logins have made. */
async function loginTokens(world: CoreWorld) {
  const { data } = (await world.ask('LIST', 'auth/token/accessors')).body
  const all = await Promise.all(
    (data['keys'] as string[]).map(async (accessor) => {
      const found = await world.ask('POST', 'auth/token/lookup-accessor', { accessor })
      return found.body.data
    }),
  )
  return all.filter((each) => [AT_ALICE, AT_ROLE].includes(String(each?.['path'])))
}
