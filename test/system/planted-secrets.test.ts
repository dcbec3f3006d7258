/**
 * Fifty secrets and tokens are sent to a server in every valid and invalid way. Afterwards none is found, plain, in
 * base64 or in hexadecimal, in the files of the server, its log, or the responses to unauthorized callers. Names of
 * secrets are in no file either, except for the request log with the requested paths.
 */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { startAgent, workDirectory, writeConfig } from '../helpers/agent-process.ts'
import { send } from '../helpers/openbao-replay.ts'

const CONFIG = 'server {\n enabled = true\n}\nacl {\n enabled = true\n}\nlog_level = "TRACE"'

/** A text that is nowhere by chance. */
function planted(what: string): string {
  return `planted-${what}-${randomBytes(9).toString('hex')}`
}

/** Encodings of a text, in base64 at every alignment. */
function formsOf(text: string): Buffer[] {
  const inner = [0, 1, 2].map((shift) => {
    const encoded = Buffer.concat([Buffer.alloc(shift), Buffer.from(text)]).toString('base64')
    return encoded.slice(4, -4)
  })
  return [text, Buffer.from(text).toString('hex'), ...inner].map((form) => Buffer.from(form))
}

function filesBelow(directory: string): string[] {
  const entries = readdirSync(directory, { recursive: true, withFileTypes: true })
  return entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name))
}

test('fifty planted secrets appear only where they are authorized', async (t) => {
  const directory = workDirectory(t)
  const agent = await startAgent(t, ['-config', writeConfig(directory, CONFIG), '-http-port', '0'])
  const answers: string[] = []
  const api = async (method: string, path: string, body: unknown, token = '') => {
    const text = typeof body === 'string' ? body : JSON.stringify(body)
    const asked = { method, path: `/v1/${path}`, headers: { 'X-Vault-Token': token }, body: text }
    const { body: answer, status } = await send(agent.port, asked)
    // Errors and the answers to who may not know are looked through.
    if (status >= 400) answers.push(answer)
    return JSON.parse(answer || '{}') as { keys: string[]; root_token: string; auth?: { client_token: string } }
  }
  const made = await api('PUT', 'sys/init', { secret_shares: 3, secret_threshold: 2 })
  const root = made.root_token
  for (const key of made.keys.slice(0, 2)) await api('PUT', 'sys/unseal', { key })
  const secrets = [...made.keys, root]
  const names: string[] = []
  const plant = (what: string): string => {
    const text = planted(what)
    secrets.push(text)
    return text
  }
  await api('POST', 'sys/mounts/secret', { type: 'kv', options: { version: '2' } }, root)
  for (let at = 0; at < 15; at++) {
    const [value, name] = [plant('value'), planted('name')]
    names.push(name)
    await api('POST', `secret/data/${name}`, { data: { [plant('member')]: value } }, root)
    await api('POST', `cubbyhole/${at}`, { value: plant('cubbyhole') }, root)
  }
  for (let at = 0; at < 10; at++) {
    const token = (await api('POST', 'auth/token/create', { policies: ['default'] }, root)).auth?.client_token ?? ''
    assert.notEqual(token, '')
    secrets.push(token)
    const name = planted('denied')
    names.push(name)
    await api('GET', `secret/data/${name}`, '', token)
  }
  // Mistakes, each with something in it that must not come back or be written down.
  await api('POST', 'secret/data/a', `{"data":{"a":"${plant('json')}"`, root)
  await api('POST', 'secret/data/a', `{"data":"${plant('type')}"}`, root)
  await api('POST', 'secret/data/a', `{"data":{"a":1},"options":{"cas":"${plant('cas')}"}}`, root)
  await api('POST', 'auth/token/create', { ttl: plant('ttl') }, root)
  await api('GET', 'secret/data/a', '', plant('token'))
  await api('PUT', 'sys/unseal', { key: plant('key') })
  const policyPath = planted('path')
  names.push(policyPath)
  const rules = `path "${policyPath}" { capabilities = ["no"] }\npath "a" { unknown = "${plant('policy')}" }`
  await api('PUT', 'sys/policies/acl/p', { policy: rules }, root)
  await api('PUT', 'sys/policies/acl/p', { policy: `path "a" { unknown = "${plant('policy')}" }` }, root)
  await api('POST', `secret/data/a?token=${plant('query')}`, { data: {} }, 's.none')
  assert.ok(secrets.length >= 50)
  agent.child.kill('SIGKILL')
  await agent.ended
  const places = new Map(filesBelow(directory).map((file) => [file, readFileSync(file)]))
  places.set('the log', Buffer.from(agent.stderr() + agent.stdout()))
  places.set('answers that refuse', Buffer.from(answers.join('\n')))
  assert.ok([...places.keys()].some((file) => file.endsWith('secrets.db-wal')))
  const find = (text: string, among: readonly string[]) =>
    among.filter((place) => formsOf(text).some((form) => places.get(place)?.includes(form)))
  const files = [...places.keys()].filter((place) => place.startsWith('/'))
  const found = [
    ...secrets.flatMap((secret) => find(secret, [...places.keys()]).map((place) => `${secret} in ${place}`)),
    ...names.flatMap((name) => find(name, [...files, 'the log']).map((place) => `${name} in ${place}`)),
  ]
  assert.deepEqual(found, [])
  // The search itself finds what is there.
  assert.deepEqual(find('/data/hmac:', ['the log']), ['the log'])
})
