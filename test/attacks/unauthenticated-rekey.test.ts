/**
 * A caller without a token, or with one without sudo, starts, fills and cancels attempts to change the key shares or to
 * generate root tokens. An operator who has lost the root token can still generate a new one.
 */
import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { loadConfig } from '../../src/config/load.ts'
import { type AskOptions, CoreWorld } from '../helpers/core-world.ts'
import { tokenWith } from '../helpers/kv-world.ts'
import { freshServer, jsonOf } from '../helpers/secrets-server.ts'

const CLOSED = { unauthed: { rekey: false, generateRoot: false } }
const NO_TOKEN: AskOptions = { token: null }
const SPLIT = { secret_shares: 1, secret_threshold: 1 }

/** Everything that takes or tells something about an attempt. */
const REQUESTS = [
  ...['init', 'verify'].flatMap((path) =>
    ['rekey', 'rekey-recovery-key'].flatMap((family) =>
      ['GET', 'PUT', 'DELETE'].map((method) => [method, `sys/${family}/${path}`] as const),
    ),
  ),
  ['PUT', 'sys/rekey/update'],
  ['PUT', 'sys/rekey-recovery-key/update'],
  ...['GET', 'PUT', 'DELETE'].map((method) => [method, 'sys/generate-root/attempt'] as const),
  ['PUT', 'sys/generate-root/update'],
] as const

test('without a token no attempt is started, shown or canceled, and the error names the setting', async (t) => {
  const world = await CoreWorld.open(t, CLOSED)
  const begun = await world.ask('PUT', 'sys/rekey/init', SPLIT)
  assert.equal(begun.status, 200, begun.text)
  await world.ask('PUT', 'sys/generate-root/attempt', {})
  const nonce = String(begun.body['nonce'])
  for (const [method, path] of REQUESTS) {
    for (const spelled of [path, `${path}/`]) {
      if (spelled.endsWith('/') && method === 'PUT') continue
      const body = method === 'PUT' ? { ...SPLIT, key: world.unsealKey.toString('hex'), nonce } : undefined
      const answer = await world.ask(method, spelled, body, NO_TOKEN)
      assert.equal(answer.status, 405, `${method} ${spelled}: ${answer.text}`)
      assert.equal(answer.body.errors[0], 'unsupported operation')
      assert.match(
        answer.body.errors[1] ?? '',
        /token with sudo.*disable_unauthed_(rekey|generate_root)_endpoints = false/,
      )
      assert.ok(!answer.text.includes(nonce))
    }
  }
  for (const path of ['sys/rekey/init', 'sys/generate-root/attempt']) {
    assert.equal((await world.ask('GET', path)).body['started'], true, path)
  }
  for (const path of ['sys/seal-status', 'sys/health']) {
    assert.equal((await world.ask('GET', path, undefined, NO_TOKEN)).status, 200)
  }
  assert.equal((await world.ask('PUT', 'sys/unseal', { reset: true }, NO_TOKEN)).status, 400, 'it is open')
})

test('a token without sudo, or an unknown one, does nothing there either', async (t) => {
  const world = await CoreWorld.open(t, CLOSED)
  const weak = await tokenWith(world, 'path "sys/*" { capabilities = ["create", "read", "update", "delete", "list"] }')
  for (const token of [weak, 's.nothing']) {
    for (const [method, path] of REQUESTS) {
      const answer = await world.ask(method, path, method === 'PUT' ? SPLIT : undefined, { token })
      assert.equal(answer.status, 403, `${method} ${path}: ${answer.text}`)
    }
  }
  assert.equal((await world.ask('GET', 'sys/rekey/init')).body['started'], false)
})

test('a token with sudo changes the shares and generates a root token, under the old and the new paths', async (t) => {
  const world = await CoreWorld.open(t, CLOSED)
  const token = await tokenWith(world, 'path "sys/*" { capabilities = ["create", "read", "update", "delete", "sudo"] }')
  let key = world.unsealKey.toString('hex')
  for (const family of ['sys/rekey', 'sys/rotate/root']) {
    const ask = async (path: string, body: object) => {
      const answer = await world.ask('PUT', `${family}/${path}`, body, { token })
      assert.equal(answer.status, 200, answer.text)
      return answer.body.data ?? answer.body
    }
    const { nonce } = await ask('init', SPLIT)
    const done = await ask('update', { key, nonce })
    assert.equal(done['complete'], true)
    key = String((done['keys'] as string[])[0])
  }
  for (const family of ['sys/generate-root', 'sys/generate-root-token']) {
    const started = await world.ask('PUT', `${family}/attempt`, {}, { token })
    const { nonce, otp } = started.body.data ?? started.body
    const made = await world.ask('PUT', `${family}/update`, { key, nonce }, { token })
    const { encoded_token } = made.body.data ?? made.body
    const decoded = await world.ask('PUT', 'sys/decode-token', { encoded_token, otp }, NO_TOKEN)
    const root = String(decoded.body.data['token'])
    assert.equal((await world.ask('GET', 'sys/host-info', undefined, { token: root })).status, 200)
  }
})

test('if unauthenticated rekey is enabled, only its nonce or sudo cancels an attempt', async (t) => {
  const world = await CoreWorld.open(t, { unauthed: { rekey: true, generateRoot: true } })
  const weak = await tokenWith(world, 'path "sys/*" { capabilities = ["create", "read", "update", "delete"] }')
  for (const [path, body] of [
    ['sys/rekey/init', SPLIT],
    ['sys/generate-root/attempt', {}],
  ] as const) {
    const begin = async () => String((await world.ask('PUT', path, body, NO_TOKEN)).body['nonce'])
    const end = async (more: string, given: object | undefined, options: AskOptions) =>
      (await world.ask('DELETE', path + more, given, options)).status
    const isStarted = async () => (await world.ask('GET', path, undefined, NO_TOKEN)).body['started']
    let nonce = await begin()
    // A token that is none, or may not, is let in as no token.
    for (const options of [NO_TOKEN, { token: weak }, { token: 's.nothing' }]) {
      assert.equal(await end('', undefined, options), 400)
      assert.equal(await end('?nonce=', undefined, options), 400)
      assert.equal(await end('?nonce=other', undefined, options), 400)
      assert.equal(await end('', { nonce: 'other' }, options), 400)
      assert.equal(await isStarted(), true, path)
    }
    assert.equal(await end(`?nonce=${nonce}`, undefined, NO_TOKEN), 204)
    assert.equal(await isStarted(), false)
    nonce = await begin()
    assert.equal(await end('', { nonce }, { token: weak }), 204)
    await begin()
    assert.equal(await end('', undefined, {}), 204, 'the root token has sudo')
    assert.equal(await end('', undefined, NO_TOKEN), 204, 'there is nothing to cancel')
  }
})

test('a verification is restarted only by its nonce or by sudo', async (t) => {
  const world = await CoreWorld.open(t, { unauthed: { rekey: true, generateRoot: false } })
  const { body } = await world.ask('PUT', 'sys/rekey/init', { ...SPLIT, require_verification: true }, NO_TOKEN)
  const key = world.unsealKey.toString('hex')
  const made = await world.ask('PUT', 'sys/rekey/update', { key, nonce: body['nonce'] }, NO_TOKEN)
  const nonce = String(made.body['verification_nonce'])
  assert.equal((await world.ask('DELETE', 'sys/rekey/verify', undefined, NO_TOKEN)).status, 400)
  assert.equal((await world.ask('GET', 'sys/rekey/verify', undefined, NO_TOKEN)).body['nonce'], nonce)
  assert.equal((await world.ask('DELETE', 'sys/rekey/verify', { nonce }, NO_TOKEN)).status, 200)
  // The one setting is not the other.
  assert.equal((await world.ask('PUT', 'sys/generate-root/attempt', {}, NO_TOKEN)).status, 405)
})

test('-dev enables both settings', () => {
  const { server } = loadConfig({ paths: [], dev: true, flags: { dataDir: '/tmp/none' }, checkPolicy: () => [] }).config
  assert.equal(server.disableUnauthedRekeyEndpoints, false)
  assert.equal(server.disableUnauthedGenerateRootEndpoints, false)
})

test('the error for a lost root token names the steps that generate a new one without a restart', async (t) => {
  const { agent, directory, keys, run, token } = await freshServer(t)
  await run('operator unseal -', keys.join('\n'))
  for (const [line, setting] of [
    ['operator generate-root -init', 'disable_unauthed_generate_root_endpoints'],
    ['operator rekey -init', 'disable_unauthed_rekey_endpoints'],
  ] as const) {
    for (const [bad, status, why] of [
      ['', 405, 'no token was sent, set OUTPOST_TOKEN'],
      ['s.expired', 403, 'the token from OUTPOST_TOKEN lacks the permission'],
    ] as const) {
      const refused = await run(line, '', bad)
      assert.equal(refused.code, 1)
      const advice = new RegExp(`sudo \\(HTTP ${status}\\): ${why}.*server \\{ ${setting} = false \\}.*reload outpost`)
      assert.match(refused.stderr, advice)
      assert.equal(refused.stderr.trim().split('\n').length, 1, refused.stderr)
    }
  }
  const file = join(directory, 'server.hcl')
  const before = readFileSync(file, 'utf8')
  const reload = async () => {
    const headers = { 'X-Vault-Token': token }
    const response = await fetch(`${agent.url}/v1/agent/reload`, { method: 'PUT', headers })
    assert.equal(response.status, 200, await response.clone().text())
    return await response.json()
  }
  writeFileSync(
    file,
    before.replace('enabled = true', 'enabled = true\n disable_unauthed_generate_root_endpoints = false'),
  )
  assert.deepEqual(await reload(), {
    NeedsRestart: [],
    Reloaded: ['server.disable_unauthed_generate_root_endpoints'],
  })
  const begun = await jsonOf(run, 'operator generate-root -init')
  const given = await jsonOf(run, `operator generate-root -nonce=${String(begun['nonce'])} -`, '', keys.join('\n'))
  const another = await jsonOf(run, 'operator generate-root -init')
  const cancelled = await fetch(`${agent.url}/v1/sys/generate-root/attempt`, {
    method: 'DELETE',
    body: JSON.stringify({ nonce: another['nonce'] }),
  })
  assert.equal(cancelled.status, 204)
  const pair = `${String(given['encoded_token'])}\n${String(begun['otp'])}\n`
  const root = (await run('operator generate-root -decode=- -otp=-', pair)).stdout.trim()
  assert.equal((await run('token lookup', '', root)).code, 0)
  writeFileSync(file, before)
  await reload()
  assert.equal((await run('operator generate-root -status')).code, 1)
  // With a token it goes on without the setting.
  assert.equal((await run('operator generate-root -init', '', root)).code, 0)
  assert.match((await run('operator generate-root -cancel', '', root)).stdout, /canceled/)
})
