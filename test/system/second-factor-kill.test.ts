/** A server with second factors is killed (SIGKILL): the next process refuses used codes and keeps lock-outs. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { bytesOfBase32, codeAt, stepAt } from '../../src/engines/totp/codes.ts'
import { agentHere } from '../helpers/agent-here.ts'
import { startAgent, workDirectory } from '../helpers/agent-process.ts'
import { send } from '../helpers/openbao-replay.ts'

/** So that the codes of the test are good for as long as it takes, and a lock-out lasts as long. */
const FORM = { algorithm: 'SHA1', digits: 6, periodSeconds: 3600 } as const
const POLICY = 'path "cubbyhole/safe" { capabilities = ["read"] mfa_methods = ["app"] }'

const secondsLeft = (text: string) => Number(/try again in (\d+) seconds/.exec(text)?.[1])

interface Person {
  readonly token: string
  readonly key: Uint8Array
}

test('used codes stay used and lock-outs remain when the server is killed', async (t) => {
  const args = ['-dev', '-dev-no-demo', '-http-port', '0', '-cluster-port', '0', '-dev-root-token-id', 'root']
  const directory = workDirectory(t)
  const victim = await startAgent(t, [...args, '-data-dir', directory])
  let { port } = victim
  const ask = async (method: string, path: string, body?: object, headers: Record<string, string> = {}) => {
    const sent = { 'X-Vault-Token': 'root', ...headers }
    const asked = { method, path: `/v1/${path}`, headers: sent, ...(body && { body: JSON.stringify(body) }) }
    const answer = await send(port, asked)
    return { ...answer, json: JSON.parse(answer.body || '{}') as Record<string, Record<string, string>> }
  }
  await ask('PUT', 'sys/policies/acl/p', { policy: POLICY })
  await ask('POST', 'sys/auth/userpass', { type: 'userpass' })
  await ask('POST', 'sys/mfa/method/totp/app', { issuer: 'outpost', qr_size: 0, period: FORM.periodSeconds })
  const person = async (name: string): Promise<Person> => {
    await ask('POST', `auth/userpass/users/${name}`, { password: 'right', token_policies: 'p' })
    const { auth } = (await ask('POST', `auth/userpass/login/${name}`, { password: 'right' })).json
    const made = await ask('POST', 'sys/mfa/method/totp/app/admin-generate', { entity_id: auth?.['entity_id'] ?? '' })
    const key = bytesOfBase32(made.json['data']?.['secret'] ?? '') ?? assert.fail(made.body)
    return { token: auth?.['client_token'] ?? '', key }
  }
  const codeOf = ({ key }: Person, steps = 0) => codeAt(key, FORM, stepAt(FORM, Date.now()) + steps)
  const read = (who: Person, code: string) =>
    ask('GET', 'cubbyhole/safe', undefined, { 'X-Vault-Token': who.token, 'X-Vault-MFA': `app:${code}` })
  const [ada, bob] = [await person('ada'), await person('bob')]
  const right = new Set([-2, -1, 0, 1, 2].map((steps) => codeOf(bob, steps)))
  const wrong = Array.from({ length: 20 }, (_, at) => String(111_111 + at)).filter((code) => !right.has(code))
  for (const code of wrong.slice(0, 5)) assert.equal((await read(bob, code)).status, 403)
  const locked = await read(bob, codeOf(bob))
  assert.equal(locked.status, 429)
  const code = codeOf(ada)
  const accepted = await read(ada, code)
  assert.equal(accepted.status, 404, accepted.body)
  victim.child.kill('SIGKILL')
  await once(victim.child, 'exit')

  ;({ port } = await agentHere(t, [...args, '-data-dir', directory]))
  const again = await read(ada, code)
  assert.equal(again.status, 403, again.body)
  assert.match(again.body, /second factor/)
  const still = await read(bob, codeOf(bob))
  assert.equal(still.status, 429)
  assert.ok(secondsLeft(still.body) <= secondsLeft(locked.body) && secondsLeft(still.body) > 0)
  assert.equal((await read(ada, codeOf(ada, 1))).status, 404, 'her next code is good')
})
