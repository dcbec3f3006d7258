/** `kv watch` as a process: what it prints, how it ends, and what becomes of it when connections break. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import type { CoreWorld } from '../helpers/core-world.ts'
import { cuttingProxy } from '../helpers/cutting-proxy.ts'
import { kvCommands } from '../helpers/kv-commands.ts'
import { expectStatus, tokenWith, writeSecret } from '../helpers/kv-world.ts'
import { OUTPOST, type Running } from './outpost-process.ts'
import { eventually } from '../helpers/eventually.ts'

/** What a process has printed so far. */
function heard({ child }: Running): { out: () => string; err: () => string } {
  const said = { out: '', err: '' }
  child.stdout?.on('data', (text: string) => (said.out += text))
  child.stderr?.on('data', (text: string) => (said.err += text))
  return { out: () => said.out, err: () => said.err }
}

async function cursorOf(world: CoreWorld): Promise<string> {
  return String((await world.ask('GET', 'secret/watch')).body.data['cursor'])
}

test('each change is a line as it happens, until Ctrl-C', async (t) => {
  const { begin, run, world } = await kvCommands(t)
  const cursor = (await run('watch -print-cursor secret/app')).stdout.trim()
  assert.match(cursor, /^\d+-\d+$/)
  const watching = begin(`watch -cursor=${cursor} secret/app`)
  const { out } = heard(watching)
  await writeSecret(world, 'app/db', { x: 1 })
  await eventually(() => out() === 'write    1    secret/app/db\n', 'the first line')
  await writeSecret(world, 'other', {})
  await expectStatus(world, 204, 'DELETE', 'secret/metadata/app/db')
  await eventually(() => out().endsWith('remove   -    secret/app/db\n'), 'the last line')
  assert.ok(!out().includes('other'))
  watching.child.kill('SIGINT')
  const { code, stderr } = await watching.finished
  assert.deepEqual([code, stderr], [0, ''])
})

test('a script can continue with the cursor of any line, also within a commit', async (t) => {
  const { run, world } = await kvCommands(t)
  const start = (await run('watch -print-cursor secret')).stdout.trim()
  const operations = ['a', 'b', 'c'].map((path) => ({ op: 'put', path, data: {} }))
  await expectStatus(world, 200, 'POST', 'secret/transaction', { operations })
  await writeSecret(world, 'd', {})
  const lines = async (cursor: string) => {
    const { code, stdout } = await run(`watch -once -format=json -cursor=${cursor} secret`)
    assert.equal(code, 0)
    return stdout
      .split('\n')
      .filter(Boolean)
      .map((line) => JSON.parse(line) as { path: string; cursor: string })
  }
  const all = await lines(start)
  assert.deepEqual(all.map(({ path }) => path).join(''), 'abcd')
  for (const [at, { cursor }] of all.slice(0, -1).entries()) assert.deepEqual(await lines(cursor), all.slice(at + 1))
  const idle = await run(`watch -wait=0s -cursor=${all[3]?.cursor} secret`)
  assert.deepEqual([idle.code, idle.stdout, idle.stderr], [0, '', ''])
})

test('it ends if it cannot continue, and reports a gap', async (t) => {
  const { run, world } = await kvCommands(t)
  const reset = await run('watch -once -format=json -cursor=1-999999999 secret')
  assert.deepEqual([reset.code, Object.keys(JSON.parse(reset.stdout) as object)], [0, ['reset', 'cursor']])
  assert.match(reset.stderr, /^outpost: the cursor has expired or belongs to another server/)
  assert.match((await run('watch -cursor=x secret')).stderr, /malformed cursor/)
  assert.equal((await run('watch -wait=soon secret')).code, 2)
  const token = await tokenWith(world, 'path "secret/data/*" { capabilities = ["read"] }')
  assert.match((await run('watch secret', { token })).stderr, /permission denied \(HTTP 403\)/)
})

test('it ends when its reader leaves, when its token does, and when the store is disabled', async (t) => {
  const { begin, directory, port, world } = await kvCommands(t)
  const given = { OUTPOST_ADDR: `http://127.0.0.1:${port}`, OUTPOST_TOKEN: world.rootToken, HOME: directory }
  const first = await cursorOf(world)
  await writeSecret(world, 'before', {})
  const line = `${OUTPOST} kv watch -cursor=${first} secret | head -1; exit \${PIPESTATUS[0]}`
  const pipeline = spawn('bash', ['-c', line], { env: { ...process.env, ...given } })
  assert.equal(await new Promise((done) => pipeline.on('exit', done)), 0)

  const token = await tokenWith(world, 'path "secret/*" { capabilities = ["read"] }')
  const cursor = await cursorOf(world)
  const watching = begin(`watch -cursor=${cursor} secret`, { token })
  const { out } = heard(watching)
  await writeSecret(world, 'a', {})
  await eventually(() => out() !== '', 'it watches')
  await expectStatus(world, 204, 'POST', 'auth/token/revoke', { token })
  await writeSecret(world, 'b', {})
  await writeSecret(world, 'c', {})
  const revoked = await watching.finished
  assert.deepEqual([revoked.code, /HTTP 403/.test(revoked.stderr)], [1, true])
  const other = begin(`watch -cursor=${cursor} secret`)
  const heardToo = heard(other)
  await eventually(() => heardToo.out() !== '', 'it watches')
  await expectStatus(world, 204, 'DELETE', 'sys/mounts/secret')
  assert.equal((await other.finished).code, 1)
})

test('connections that break again and again lose nothing and repeat nothing', async (t) => {
  const { begin, port, world } = await kvCommands(t)
  const proxy = await cuttingProxy(t, port)
  const cursor = await cursorOf(world)
  const watching = begin(`watch -format=json -cursor=${cursor} secret`, { at: proxy.url })
  const { err, out } = heard(watching)
  await writeSecret(world, 'k0', {})
  await eventually(() => out().includes('k0'), 'it watches')
  for (let at = 1; at <= 300; at++) {
    await writeSecret(world, `k${at}`, {})
    if (at % 20 === 0) {
      proxy.isDown = at % 40 === 0
      proxy.cut()
      await delay(20)
    }
    proxy.isDown &&= at % 10 !== 5
  }
  proxy.isDown = true
  proxy.cut()
  await eventually(() => err().trim().endsWith('resuming'), 'it says that the connection is lost')
  await writeSecret(world, 'last', {})
  proxy.isDown = false
  await eventually(() => out().includes('"last"'), 'the last line')
  const paths = out()
    .split('\n')
    .filter(Boolean)
    .map((line) => (JSON.parse(line) as { path: string }).path)
  assert.deepEqual(paths, [...Array.from({ length: 301 }, (_, at) => `k${at}`), 'last'])
  await eventually(() => err().endsWith('outpost: resumed\n'), 'it says that it goes on')
  watching.child.kill('SIGINT')
  assert.equal((await watching.finished).code, 0)
})

test('it continues after a time in which the secrets were sealed', async (t) => {
  const { begin, world } = await kvCommands(t)
  const cursor = await cursorOf(world)
  const watching = begin(`watch -cursor=${cursor} secret`)
  const { err, out } = heard(watching)
  await writeSecret(world, 'a', {})
  await eventually(() => out() !== '', 'it watches')
  await world.core.seal()
  await eventually(() => err().includes('is sealed'), 'the outage is reported')
  world.unseal()
  await writeSecret(world, 'b', {})
  await eventually(() => out().endsWith('secret/b\n'), 'it goes on')
  watching.child.kill('SIGINT')
  assert.equal((await watching.finished).code, 0)
})
