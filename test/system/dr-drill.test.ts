/** A drill promotes a copy of a secondary, reads from it and removes it; replication goes on as if there had been none. */
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { OUTPOST, start } from '../cli/outpost-process.ts'
import { drPair, type DrServer } from '../helpers/dr-pair.ts'
import { eventually } from '../helpers/eventually.ts'
import { entriesOf } from '../helpers/replica-pair.ts'
import { commandsAt } from '../helpers/secrets-server.ts'

const VALUE = 'a-value-that-is-never-shown'

async function filled(t: TestContext): Promise<{ a: DrServer; b: DrServer; audit: string }> {
  const { primary: a, secondary: b } = await drPair(t)
  await a.told('POST', 'sys/mounts/kv', { type: 'kv', options: { version: '2' } })
  await a.told('POST', 'sys/mounts/old', { type: 'kv' })
  for (const name of ['app/one', 'app/two', 'deleted'])
    await a.told('POST', `kv/data/${name}`, { data: { value: VALUE } })
  await a.told('DELETE', 'kv/data/deleted')
  await a.told('POST', 'old/plain', { value: VALUE })
  // Of a device that every server of the set would write to.
  const audit = join(a.directory, 'data/audit/lines.log')
  mkdirSync(join(a.directory, 'data/audit'), { recursive: true })
  await a.told('POST', 'sys/audit/file', { type: 'file', options: { file_path: audit } })
  // A second after its unseal the primary stores its time, which is the last of what it does by itself.
  const database = { path: join(a.directory, 'data/server/secrets.db') }
  await eventually(() => entriesOf(database).some((entry) => entry.startsWith('core/clock ')), 'the time is stored')
  await b.follows(a)
  return { a, b, audit }
}

test('a drill reads a copy of the secondary and changes nothing else', { timeout: 240_000 }, async (t) => {
  const { a, audit, b } = await filled(t)
  const config = join(b.directory, 'server.hcl')
  const copy = join(b.directory, 'data/server/outpost-drill')
  const shares = `${a.keys.shares.join('\n')}\n`
  const run = commandsAt(b.agent, b.directory)
  const drill = (more: string, input = shares, token = '') =>
    run(`operator dr drill -config ${config}${more} -`, input, token)
  const database = { path: join(b.directory, 'data/server/secrets.db') }
  const standing = async () => {
    const { epoch, merkle_root: root, secondaries, state } = await a.status()
    const [{ connection_status: connection } = {}] = secondaries as Record<string, unknown>[]
    const own = await b.status()
    return { epoch, root, state, connection, own: [own['mode'], own['state'], own['epoch'], own['merkle_root']] }
  }
  const [before, entries, lines] = [await standing(), entriesOf(database), readFileSync(audit)]
  const unchanged = async () => {
    assert.deepEqual(await standing(), before)
    assert.deepEqual(entriesOf(database), entries)
    assert.deepEqual(readFileSync(audit), lines)
    assert.equal(existsSync(copy), false)
  }

  await t.test('paths are read from a file and from options, with the given token', async () => {
    const list = join(b.directory, 'paths.txt')
    writeFileSync(list, '# of the shop\nkv/data/app/one\n\nold/plain\n')
    const named = ` -path-file ${list} -path kv/data/deleted -with-token`
    const { code, stderr, stdout } = await drill(named, shares, a.keys.token)
    assert.equal(code, 0, stdout + stderr)
    assert.match(stdout, /the copy needs up to \d+ bytes in \S+outpost-drill: \d+ free, \d+ must stay free\n/)
    assert.match(stdout, /copied \d+ entries \(\d+ bytes\) at position \d+, checksums verified; promoted to epoch 1/)
    assert.match(stdout, /unsealed with key shares of the primary\n/)
    assert.match(
      stdout,
      /read kv\/data\/deleted: deleted, metadata exists\n[^]*read kv\/data\/app\/one: ok\n[^]*read old\/plain: ok\n/,
    )
    assert.match(stdout, /integrity check passed\n[^]*removed the copy\nThe drill succeeded\n$/)
    assert.doesNotMatch(stdout + stderr, new RegExp(VALUE))
    await unchanged()
  })

  await t.test('unreadable paths and wrong shares fail the drill', async () => {
    const missing = await drill(' -path kv/data/none -path kv/data/app/one')
    assert.equal(missing.code, 1, missing.stdout)
    assert.match(missing.stdout, /read kv\/data\/none: not found\n[^]*failed: 1 of 2 paths could not be read\n$/)
    const wrong = await drill('', `${b.keys.shares.join('\n')}\n`)
    assert.equal(wrong.code, 1)
    assert.match(wrong.stderr, /unseal failed, invalid key/)
    const few = await drill('', `${a.keys.shares[0]}\n`)
    assert.match(few.stderr, /2 key shares of the primary are required, got 1/)
    const foreign = await run(`operator dr drill -config ${join(a.directory, 'server.hcl')} -`, shares)
    assert.match(foreign.stderr, /it is not the database of a DR secondary/)
    await unchanged()
  })

  const held = async (input = shares) => {
    const running = start(OUTPOST, ['operator', 'dr', 'drill', '-config', config, '-hold', '-'], { input })
    t.after(() => running.child.kill('SIGKILL'))
    let err = ''
    running.child.stderr?.setEncoding('utf8').on('data', (text: string) => (err += text))
    const url = await eventually(
      () => /Serving reads of the copy at (\S+) until/.exec(err)?.[1],
      () => `the copy serves: ${err}`,
    )
    return { ...running, url }
  }

  await t.test('with -hold the copy serves reads only, and Ctrl-C removes it', async () => {
    const copied = await held()
    const headers = { 'X-Vault-Token': a.keys.token }
    const ask = async (path: string, method = 'GET') => {
      const body = method === 'GET' || method === 'LIST' ? {} : { body: '{"data":{"value":"x"}}' }
      const answer = await fetch(`${copied.url}/v1/${path}`, { method, headers, ...body })
      return [answer.status, await answer.text()] as const
    }
    const [status, text] = await ask('kv/data/app/two')
    assert.equal(status, 200)
    assert.match(text, new RegExp(VALUE))
    assert.equal((await ask('kv/metadata/?list=true'))[0], 200)
    assert.equal((await ask('sys/health'))[0], 200)
    for (const method of ['POST', 'PUT', 'PATCH', 'DELETE'])
      assert.equal((await ask('kv/data/app/two', method))[0], 405)
    const second = await drill('')
    assert.match(second.stderr, /another drill is running in /)
    copied.child.kill('SIGINT')
    const { code, stdout } = await copied.finished
    assert.equal(code, 0, stdout)
    assert.match(stdout, /sampled [1-4] secrets\n[^]*removed the copy\n/)
    await unchanged()
  })

  await t.test('the copy of a killed drill is removed by the next one, without the primary', async () => {
    const killed = await held()
    killed.child.kill('SIGKILL')
    await killed.finished
    assert.equal(existsSync(copy), true)
    await a.kill()
    const { code, stderr, stdout } = await drill(' -sample 1')
    assert.equal(code, 0, stdout + stderr)
    assert.match(stdout, /removed the copy of a killed drill\n[^]*sampled 1 secrets\n/)
    assert.equal(existsSync(copy), false)
    await a.restart()
    await a.unseal(a.keys)
    await eventually(async () => (await b.status())['state'] === 'stream-wals', 'the secondary follows again')
    assert.notEqual((await a.status())['state'], 'fenced')
    assert.equal((await b.status())['epoch'], before.own[2])
  })
})
