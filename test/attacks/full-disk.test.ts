/**
 * A disk that is filled to the last byte, with an audit file on it: writes are refused with 507 and the directory, and
 * what an operator needs continues: reads, deletes, revocations, a snapshot to another disk, a restart.
 */
import assert from 'node:assert/strict'
import { rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { mayUseReserve } from '../../src/storage/sqlite/batch.ts'
import { checkDatabase } from '../../src/storage/store/database-check.ts'
import { startAgent, workDirectory } from '../helpers/agent-process.ts'
import { fill, mountSmallDisk, unmount } from '../helpers/small-disk.ts'
import { commandsAt, jsonOf } from '../helpers/secrets-server.ts'
import { eventually } from '../helpers/eventually.ts'
import { metricsOf } from '../helpers/exported-metrics.ts'

const SECRETS = 60
/** Attempts at something that needs space, each after the disk was filled again. */
const ATTEMPTS_MAX = 20

/**
 * Attempts something until it is refused for lack of space, and returns that response. Space freed since the disk
 * was filled (by a checkpoint, or a file that was removed) is taken again before each attempt.
 */
async function refusedOn(disk: string, attempt: () => Promise<Response>): Promise<string> {
  for (let at = 1; ; at++) {
    fill(disk)
    const answer = await attempt()
    const text = await answer.text()
    if (answer.ok && at < ATTEMPTS_MAX) continue
    assert.equal(answer.status, 507, text)
    return text
  }
}

async function server(t: TestContext, disk: string) {
  const config = join(disk, '../all.hcl')
  const roles = 'client {\n enabled = true\n}\nserver {\n enabled = true\n}\nacl {\n enabled = false\n}'
  writeFileSync(config, `data_dir = "${disk}/data"\nports {\n http = 0\n cluster = 0\n}\n${roles}\n`)
  const agent = await startAgent(t, ['-config', config])
  const run = commandsAt(agent, join(disk, '..'))
  const api = (method: string, path: string, token: string, body?: unknown) =>
    fetch(`${agent.url}/v1/${path}`, {
      method,
      headers: { 'X-Vault-Token': token },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
  return { agent, api, run }
}

test('a full disk answers 507 to requests that need space and serves all others', { timeout: 300_000 }, async (t) => {
  const disk = join(workDirectory(t), 'disk')
  if (!mountSmallDisk(disk, 32)) return t.skip('needs the right to mount')
  try {
    await onFullDisk(t, disk)
  } finally {
    unmount(disk)
  }
})

async function onFullDisk(t: TestContext, disk: string): Promise<void> {
  const directory = join(disk, 'data/server')
  let { agent, api, run } = await server(t, disk)
  const made = await jsonOf(run, 'operator init -key-shares=1 -key-threshold=1')
  const [key = ''] = made['unseal_keys_b64'] as string[]
  const token = String(made['root_token'])
  assert.equal((await run('operator unseal -', `${key}\n`)).code, 0)
  assert.equal((await run('secrets enable -path=kept -version=2 kv', '', token)).code, 0)
  const audit = join(disk, 'data/audit/audit.log')
  assert.equal((await run(`audit enable file file_path=${audit}`, '', token)).code, 0)
  const value = { data: { password: 'x'.repeat(4000) } }
  for (let at = 0; at < SECRETS; at++) assert.equal((await api('POST', `kept/data/s${at}`, token, value)).status, 200)
  const tokenOf = async (body: object) => {
    const answer = (await (await api('POST', 'auth/token/create', token, body)).json()) as {
      auth: { client_token: string }
    }
    return answer.auth.client_token
  }
  const stolen = await tokenOf({ policies: ['default'] })
  const twice = await tokenOf({ policies: ['default'], num_uses: 2 })
  const isReserved = () => statSync(`${audit}.reserve`, { throwIfNoEntry: false })?.size === 2 << 20
  await eventually(isReserved, 'the audit file has its reserve')
  fill(disk)

  const refused = async () => {
    const text = await refusedOn(disk, () => api('POST', 'kept/data/more', token, value))
    assert.match(text, /^\{"errors":\["no space left on the disk of .*: free space there, then write again/)
    assert.ok(text.includes(directory), text)
  }
  await t.test('a write, a token and metadata are refused with 507', async () => {
    await refused()
    await refusedOn(disk, () => api('POST', 'auth/token/create', token, {}))
    const put = () => {
      fill(disk)
      return run('kv put kept/more password=-', 'y'.repeat(4000), token)
    }
    let command = await put()
    for (let at = 1; command.code === 0 && at < ATTEMPTS_MAX; at++) command = await put()
    assert.equal(command.code, 1)
    assert.match(command.stderr, /no space left on the disk of .*free space there/)
    const said = await refusedOn(disk, () =>
      api('POST', 'client/metadata', token, { Meta: { rack: 'r'.repeat(5000) } }),
    )
    assert.ok(said.startsWith(`no space left on the disk of ${disk}/data/client`), said)
  })
  const failures = async (reason: string) =>
    (await metricsOf(agent)).value('outpost_store_failures_total', { reason }) ?? Number.NaN
  await t.test('the metrics count the refused writes as such', async () => {
    const before = await failures('full')
    await refused()
    assert.ok((await failures('full')) > before, 'another refused write')
    assert.deepEqual([await failures('failed'), await failures('busy')], [0, 0])
  })
  await t.test('reads, uses of a token, revocations and deletes succeed', async () => {
    assert.equal((await api('GET', 'kept/data/s1', token)).status, 200)
    assert.equal((await api('GET', 'auth/token/lookup-self', twice)).status, 200)
    assert.equal((await api('GET', 'auth/token/lookup-self', twice)).status, 200)
    assert.equal((await api('GET', 'auth/token/lookup-self', twice)).status, 403)
    assert.equal((await api('POST', 'auth/token/revoke', token, { token: stolen })).status, 204)
    assert.equal((await api('GET', 'auth/token/lookup-self', stolen)).status, 403)
    for (let at = 2; at < SECRETS; at += 2) {
      assert.equal((await api('DELETE', `kept/data/s${at}`, token)).status, 204, `version of s${at}`)
      assert.equal((await api('DELETE', `kept/metadata/s${at}`, token)).status, 204, `s${at}`)
    }
    await refused()
  })
  await t.test('a snapshot to another disk succeeds', async () => {
    const file = join(disk, '../elsewhere.snap')
    const saved = await run(`operator snapshot save ${file}`, '', token)
    assert.equal(saved.code, 0, saved.stderr)
    assert.ok(statSync(file).size > SECRETS * 2000)
  })
  await t.test('seal, unseal and a restart succeed', async () => {
    assert.equal((await api('PUT', 'sys/seal', token)).status, 204)
    assert.equal((await run('operator unseal -', `${key}\n`)).code, 0)
    fill(disk)
    agent.child.kill('SIGTERM')
    assert.equal(await agent.ended, 0)
    fill(disk)
    ;({ agent, api, run } = await server(t, disk))
    assert.equal((await run('operator unseal -', `${key}\n`)).code, 0)
    assert.equal((await api('GET', 'kept/data/s1', token)).status, 200)
    assert.equal((await api('GET', 'kept/data/s2', token)).status, 404)
    const removed = async () => (await api('DELETE', 'kept/metadata/s1', token)).status
    const first = await removed()
    // The first commit on a full disk, one of the server's own, takes those that are queued behind it with it.
    assert.equal(first === 507 ? await removed() : first, 204)
    await refused()
  })
  await t.test('once there is space, all requests succeed without a restart', async () => {
    rmSync(join(disk, 'ballast'))
    await eventually(
      async () => (await api('POST', 'kept/data/more', token, value)).status === 200,
      'writes work again',
    )
    assert.equal((await api('POST', 'client/metadata', token, { Meta: { rack: 'r' } })).status, 200)
    await eventually(
      () => statSync(join(directory, 'secrets.db.reserve')).size === 2 << 20,
      'the reserve is whole again',
    )
    await eventually(() => agent.stderr().includes('disk writable again'), 'the log says so')
  })
  agent.child.kill('SIGTERM')
  assert.equal(await agent.ended, 0)
  assert.deepEqual(checkDatabase(join(directory, 'secrets.db')), [])
}

const put = (path: string, bytes: number) => ({ path, value: Buffer.alloc(bytes) })

test('removals, and writes that hardly grow an entry, may use the reserve', () => {
  const sizes = new Map([
    ['there', 100],
    ['core/head', 67],
  ])
  const sizeOf = (path: string) => sizes.get(path)
  assert.ok(mayUseReserve({ puts: [], deletes: ['there'] }, sizeOf))
  assert.ok(mayUseReserve({ puts: [put('there', 200)], deletes: [] }, sizeOf))
  assert.ok(mayUseReserve({ puts: [put('mark', 40)], deletes: ['there'] }, sizeOf))
  assert.ok(mayUseReserve({ puts: [put('there', 90), put('mark', 40)], deletes: [] }, sizeOf))
  assert.ok(!mayUseReserve({ puts: [put('there', 300)], deletes: [] }, sizeOf))
  assert.ok(!mayUseReserve({ puts: [put('mark', 40)], deletes: [] }, sizeOf), 'a small entry that is new')
  const head = put('core/head', 67)
  assert.ok(
    !mayUseReserve({ puts: [put('mark', 40), head], deletes: [] }, sizeOf),
    'the head is written with each batch',
  )
  assert.ok(mayUseReserve({ puts: [put('there', 200), head], deletes: [] }, sizeOf))
  assert.ok(!mayUseReserve({ puts: [put('new', 100)], deletes: ['there'] }, sizeOf))
})
