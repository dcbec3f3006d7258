/** How a drill opens a copy by the machine's own key, and how it ends without having come far: its copy is gone each time. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, renameSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { beginDrill } from '../../src/daemon/drill/drill.ts'
import { kv } from '../../src/engines/kv/kv.ts'
import { SqliteStore } from '../../src/storage/store/store.ts'
import { workDirectory } from '../helpers/agent-process.ts'
import { OUTPOST, start } from '../cli/outpost-process.ts'
import { CoreWorld, type WorldOptions } from '../helpers/core-world.ts'
import { eventually } from '../helpers/eventually.ts'
import { mountSmallDisk, unmount } from '../helpers/small-disk.ts'

/** The database of a secondary whose server is stopped, with one secret or none, and the configuration of that server. */
async function stopped(
  t: TestContext,
  options: WorldOptions,
  seal = '',
  hasSecret = true,
): Promise<{ config: string; copy: string }> {
  const directory = workDirectory(t)
  const world = await CoreWorld.create(directory, { ...options, raw: true, engines: [kv] })
  if (options.seal?.type === 'static') {
    const none = { shares: 0, threshold: 0, pgpKeys: [] }
    const request = { unseal: none, recovery: { ...none, shares: 1, threshold: 1 }, rootTokenPgpKey: '' }
    world.rootToken = (await world.seal.initialise(request, world.core.initialState())).rootToken
    await world.seal.autoUnseal()
    world.core.activate()
  } else await world.initialise()
  await world.ask('POST', 'sys/mounts/plain', { type: 'kv' })
  if (hasSecret) await world.ask('POST', 'plain/secret', { value: 'x' })
  await world.close()
  const store = await SqliteStore.open(join(directory, 'secrets.db'))
  await store.setRole('replica')
  await store.close()
  const config = join(directory, 'server.hcl')
  mkdirSync(join(directory, 'data'))
  const server = `server {\n enabled = true\n storage_path = "${directory}/secrets.db"\n ${seal}\n}`
  writeFileSync(config, `data_dir = "${directory}/data"\n${server}\n`)
  return { config, copy: join(directory, 'outpost-drill') }
}

test('the static key of the configuration unseals the copy', { timeout: 120_000 }, async (t) => {
  const keyFile = join(workDirectory(t), 'seal.key')
  writeFileSync(keyFile, Buffer.alloc(32, 7), { mode: 0o600 })
  const source = `file://${keyFile}`
  const settings = `seal "static" {\n current_key_id = "k"\n current_key = "${source}"\n }`
  const seal = { type: 'static', disabled: false, current: { id: 'k', source } } as const
  const { config, copy } = await stopped(t, { seal }, settings)
  const { code, stderr, stdout } = await start(OUTPOST, ['operator', 'dr', 'drill', '-config', config]).finished
  assert.equal(code, 0, stdout + stderr)
  assert.match(stdout, /unsealed with the static key\n[^]*read plain\/secret: ok\n[^]*succeeded\n$/)
  assert.equal(existsSync(copy), false)
})

test('a drill that has read nothing fails', { timeout: 120_000 }, async (t) => {
  const keyFile = join(workDirectory(t), 'seal.key')
  writeFileSync(keyFile, Buffer.alloc(32, 7), { mode: 0o600 })
  const source = `file://${keyFile}`
  const settings = `seal "static" {\n current_key_id = "k"\n current_key = "${source}"\n }`
  const seal = { type: 'static', disabled: false, current: { id: 'k', source } } as const
  const { config, copy } = await stopped(t, { seal }, settings, false)
  const { code, stderr, stdout } = await start(OUTPOST, ['operator', 'dr', 'drill', '-config', config]).finished
  assert.equal(code, 1, stdout + stderr)
  assert.match(stdout, /sampled 0 secrets\n[^]*failed: no secret to read: use -path/)
  assert.equal(existsSync(copy), false)
})

test('SIGINT ends a drill that waits for key shares, and leaves nothing behind', { timeout: 120_000 }, async (t) => {
  const { config, copy } = await stopped(t, {})
  const child = spawn(OUTPOST, ['operator', 'dr', 'drill', '-config', config, '-'], { stdio: 'pipe' })
  t.after(() => child.kill('SIGKILL'))
  const ended = new Promise<number | null>((done) => child.once('close', done))
  let [out, err] = ['', '']
  child.stdout.setEncoding('utf8').on('data', (text: string) => (out += text))
  child.stderr.setEncoding('utf8').on('data', (text: string) => (err += text))
  await eventually(
    () => out.includes('1 key shares required'),
    () => `it waits: ${out}${err}`,
  )
  assert.equal(existsSync(copy), true)
  child.kill('SIGINT')
  assert.equal(await ended, 130, out + err)
  assert.match(out, /removed the copy\n$/)
  assert.match(err, /drill interrupted, its copy was removed/)
  assert.equal(existsSync(copy), false)
})

test('a drill that is ended while it unseals the copy closes it', { timeout: 120_000 }, async (t) => {
  const { config, copy } = await stopped(t, {})
  const stop = new AbortController()
  const drill = await beginDrill({ config: [config], directory: undefined, port: 0 }, 'test', stop.signal)
  await drill.copy()
  const opening = drill.open().then(String, (error: Error) => error.name)
  stop.abort()
  await drill.close()
  assert.equal(await opening, 'AbortError')
  assert.equal(existsSync(copy), false)
})

test('a directory that is not a copy of a drill is not modified', { timeout: 120_000 }, async (t) => {
  const { config, copy } = await stopped(t, {})
  const directory = dirname(copy)
  const begin = (where?: string) =>
    beginDrill({ config: [config], directory: where, port: 0 }, 'test', new AbortController().signal)
  const names = () => readdirSync(copy, { recursive: true })
  const database = join(directory, 'secrets.db')

  await t.test('the database itself is refused as target, by its path and by a link', async () => {
    mkdirSync(copy)
    renameSync(database, join(copy, 'drill-copy.db'))
    symlinkSync(join(copy, 'drill-copy.db'), database)
    const before = names()
    await assert.rejects(
      begin(),
      /secrets\.db is in \S+outpost-drill, the directory of the copy: use another directory/,
    )
    const linked = join(workDirectory(t), 'linked')
    symlinkSync(directory, linked)
    await assert.rejects(begin(linked), /is in/)
    assert.deepEqual(names(), before)
    renameSync(join(copy, 'drill-copy.db'), database)
  })

  await t.test('files of other programs are not modified', async () => {
    writeFileSync(join(copy, 'drill-copy.db-wal'), '')
    for (const name of ['secrets.db', 'drill-copy.db/x']) {
      mkdirSync(dirname(join(copy, name)), { recursive: true })
      writeFileSync(join(copy, name), 'x')
      const before = names()
      await assert.rejects(begin(), /is not a file of a drill, nothing was removed: move it away/)
      assert.deepEqual(names(), before)
      renameSync(join(copy, name.split('/')[0] ?? ''), join(directory, `aside-${name.length}`))
    }
    renameSync(copy, join(directory, 'aside'))
    writeFileSync(copy, 'x')
    await assert.rejects(begin(), /is not a drill directory/)
    assert.equal(existsSync(copy), true)
  })
})

test('a disk without space for the copy is not written to', { timeout: 120_000 }, async (t) => {
  const { config } = await stopped(t, {})
  const disk = join(workDirectory(t), 'disk')
  if (!mountSmallDisk(disk, 16)) return t.skip('needs the right to mount')
  try {
    const line = ['operator', 'dr', 'drill', '-config', config, '-dir', disk, '-']
    const { code, stderr, stdout } = await start(OUTPOST, line, { input: 'share\n' }).finished
    assert.equal(code, 1, stdout)
    assert.match(
      stderr,
      /the copy needs \d+ bytes in \S+ and must leave 1048576 free, but only \d+ bytes are free: free space/,
    )
    assert.deepEqual(readdirSync(disk), ['outpost-drill.lock'])
  } finally {
    unmount(disk)
  }
})
