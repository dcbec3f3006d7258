/** The host is gone, and docs/operating/backup.md says what to do: the document is followed literally. And what is refused on the way. */
import assert from 'node:assert/strict'
import { readFileSync, renameSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { gzipSync } from 'node:zlib'
import { type AgentHere, agentHere } from '../helpers/agent-here.ts'
import { workDirectory } from '../helpers/agent-process.ts'
import { runShell, shellBlocks } from '../helpers/document.ts'
import { quietPort } from '../helpers/quiet-port.ts'
import { commandsAt, freshServer, jsonOf, writeServer } from '../helpers/secrets-server.ts'
import { eventually } from '../helpers/eventually.ts'

const PAGE = 'docs/operating/backup.md'

/** What the operator has kept: `secrets.snap`, `init.txt` and `server.hcl`; and a port for the new server. */
async function kept(t: TestContext) {
  const directory = workDirectory(t)
  const port = await quietPort()
  const config = join(directory, 'server.hcl')
  const ports = `ports {\n http = ${port}\n cluster = 0\n}`
  writeFileSync(config, `data_dir = "${directory}/data"\n${ports}\nserver { enabled = true }\n`)
  // The document itself is the test of `secrets-walk.test.ts`.
  const agent = await agentHere(t, ['-config', config])
  const run = async (line: string, input = '', token = '') => {
    const { code, stderr, stdout } = await commandsAt(agent, directory)(line, input, token)
    assert.equal(code, 0, `${line}: ${stderr}`)
    return stdout
  }
  const init = await run('operator init -key-shares=3 -key-threshold=2')
  writeFileSync(join(directory, 'init.txt'), init)
  const [, ...shares] = /^Unseal Key 1: (.+)\nUnseal Key 2: (.+)$/m.exec(init) ?? []
  const token = /^Initial Root Token: (.+)$/m.exec(init)?.[1]
  await run('operator unseal -', shares.join('\n'))
  await run('secrets enable -path=secret -version=2 kv', '', token)
  await run('kv put secret/app/db user=app password=-', 's3cret', token)
  await run(`operator snapshot save ${join(directory, 'secrets.snap')}`, '', token)
  await agent.stop()
  return { directory, port, own: (text: string) => text.replaceAll('/tmp/secrets', `${directory}/data`) }
}

test('after the loss of the host an empty server is restored by the documented steps', {
  timeout: 280_000,
}, async (t) => {
  const { directory, own, port } = await kept(t)
  rmSync(join(directory, 'data'), { recursive: true })
  const [walk = ''] = shellBlocks(PAGE, '## Restore on a new host')
  const [damaged = ''] = shellBlocks(PAGE, '## Restore on the same host')
  const first = await runShell(directory, port, own(walk))
  assert.equal(first.code, 0, first.stderr)
  assert.match(first.stdout, /Success! The snapshot was restored\. Next: outpost operator unseal/)
  assert.match(first.stdout, /^Sealed +false$/m)
  assert.match(first.stdout, /^password {4}s3cret$/m)
  // The same with a database that is there and damaged.
  truncateSync(join(directory, 'data/server/secrets.db'), 8192)
  const second = await runShell(directory, port, own(`${damaged}\n${walk}`))
  assert.equal(second.code, 0, second.stderr)
  assert.match(second.stdout, /^password {4}s3cret$/m)
})

type Source = Awaited<ReturnType<typeof freshServer>>

/** A server that was never initialized. */
interface Empty {
  readonly directory: string
  readonly agent: AgentHere
}

/** What all of these need: a server that was initialized, and its snapshot. The order is part of it: the last one ends that server. */
test('a server is initialized completely from a snapshot, or not at all', async (t) => {
  const source = await freshServer(t)
  const directory = workDirectory(t)
  const empty = { directory, agent: await agentHere(t, ['-config', writeServer(directory)]) }
  const file = join(source.directory, 'a.snap')
  await t.test('-new is refused on an initialized server, sealed or active, and changes nothing', () =>
    refusesWhereInitialised(source, empty, file),
  )
  await t.test('of a concurrent init and -new one initializes the server', () => beginsOnce(empty.agent.url, file))
  await t.test('a malformed snapshot is refused, and a truncated one leaves the server uninitialized', (each) =>
    refusesWhatIsCut(each, source, file),
  )
  await t.test('init and -new are refused on an empty database in place of a used one until .seen is moved away', () =>
    refusesWhereWritten(t, source, file),
  )
})

async function refusesWhatIsCut(t: TestContext, { keys, token }: Source, file: string): Promise<void> {
  const whole = readFileSync(file)
  const other = workDirectory(t)
  const empty = await agentHere(t, ['-config', writeServer(other)])
  const at = commandsAt(empty, other)
  const restore = async (name: string, bytes: Buffer | string) => {
    writeFileSync(join(other, name), bytes)
    return await at(`operator snapshot restore -new ${join(other, name)}`)
  }
  const cases: readonly [string, Buffer | string, RegExp][] = [
    ['cut', whole.subarray(0, whole.length >> 1), /is damaged: it is truncated.*nothing was changed/],
    ['text', 'not an archive', /is damaged: it is truncated, or not a gzip archive; nothing was changed/],
    ['foreign', gzipSync(Buffer.alloc(10_240)), /damaged|not a snapshot of outpost/],
    ['empty', '', /is damaged: it is truncated/],
  ]
  for (const [name, bytes, why] of cases) {
    const { code, stderr } = await restore(name, bytes)
    assert.equal(code, 1)
    assert.match(stderr, why, name)
  }
  // A caller that leaves in the middle.
  const leaving = new AbortController()
  const upload = new ReadableStream({
    pull(controller) {
      controller.enqueue(new Uint8Array(whole.subarray(0, 1000)))
      setTimeout(() => leaving.abort(), 50)
      return new Promise<void>(() => undefined)
    },
  })
  const sent = fetch(`${empty.url}/v1/sys/storage/snapshot-new`, {
    method: 'POST',
    body: upload,
    duplex: 'half',
    signal: leaving.signal,
  })
  await assert.rejects(sent)
  assert.equal((await at('operator init -status')).code, 2)
  // It does not block others for ever, and a complete snapshot is accepted afterwards.
  await eventually(async () => (await restore('whole', whole)).code === 0, 'the snapshot is taken')
  assert.equal((await at('operator init -status')).code, 0)
  for (const key of keys.slice(0, 2)) assert.equal((await at('operator unseal -', `${key}\n`)).code, 0)
  assert.equal((await at('token lookup', '', token)).code, 0, 'the root token is the one of the snapshot')
}

async function refusesWhereInitialised({ keys, run, token }: Source, empty: Empty, file: string): Promise<void> {
  const refused = async () => {
    const { code, stderr } = await run(`operator snapshot restore -new ${file}`)
    assert.equal(code, 1)
    assert.match(stderr, /this server is already initialized, nothing was changed/)
  }
  writeFileSync(file, 'whatever it is')
  await refused()
  for (const key of keys.slice(0, 2)) assert.equal((await run('operator unseal -', `${key}\n`)).code, 0)
  await refused()
  assert.equal((await run(`operator snapshot save ${file}`, '', token)).code, 0)
  await refused()
  assert.equal((await run('operator init -status')).code, 0)
  assert.equal((await run('token lookup', '', token)).code, 0)
  // Without -new the answer of a server that is not initialized names the way.
  const plain = await commandsAt(empty.agent, empty.directory)(`operator snapshot restore ${file}`, '', token)
  assert.equal(plain.code, 1)
  assert.match(plain.stderr, /not initialized.*snapshot restore -new FILE/)
}

async function beginsOnce(url: string, file: string): Promise<void> {
  const send = (path: string, body: Uint8Array<ArrayBuffer> | string) =>
    fetch(`${url}/v1/sys/${path}`, { method: 'PUT', body })
  const snapshot = new Uint8Array(readFileSync(file))
  const answers = await Promise.all([
    send('storage/snapshot-new', snapshot),
    send('init', '{"secret_shares":1,"secret_threshold":1}'),
    send('storage/snapshot-new', snapshot),
    send('init', '{"secret_shares":1,"secret_threshold":1}'),
  ])
  const statuses = answers.map(({ status }) => status)
  assert.equal(statuses.filter((status) => status < 300).length, 1, String(statuses))
}

test('a restored server with a static seal unseals itself', async (t) => {
  const first = workDirectory(t)
  const key = 'a5'.repeat(32)
  const seal = `seal "static" {\n current_key_id = "k"\n current_key = "${key}"\n }`
  const server = await agentHere(t, ['-config', writeServer(first, seal)])
  const run = commandsAt(server, first)
  const made = await jsonOf(run, 'operator init -recovery-shares=1 -recovery-threshold=1')
  const token = String(made['root_token'])
  const file = join(first, 'a.snap')
  await eventually(async () => (await run(`operator snapshot save ${file}`, '', token)).code === 0, 'it is open')
  const second = workDirectory(t)
  const at = commandsAt(await agentHere(t, ['-config', writeServer(second, seal)]), second)
  const restored = await at(`operator snapshot restore -new ${file}`)
  assert.equal(restored.code, 0, restored.stderr)
  assert.match(restored.stdout, /unseals itself/)
  await eventually(async () => (await at('token lookup', '', token)).code === 0, 'it has opened by itself')
})

async function refusesWhereWritten(t: TestContext, source: Source, file: string): Promise<void> {
  const { agent, directory, keys, token } = source
  await agent.stop()
  const database = join(directory, 'data/server/secrets.db')
  for (const end of ['', '-wal', '-shm']) rmSync(`${database}${end}`, { force: true })
  const again = await agentHere(t, ['-config', join(directory, 'server.hcl')])
  const at = commandsAt(again, directory)
  const why = /nothing was changed: the database .*secrets\.db is empty.*move .*secrets\.db\.seen away first/
  for (const line of ['operator init', `operator snapshot restore -new ${file}`]) {
    const { code, stderr } = await at(line)
    assert.equal(code, 1, line)
    assert.match(stderr, why)
    assert.equal((await at('operator init -status')).code, 2, 'it is not initialized')
  }
  const init = await fetch(`${again.url}/v1/sys/init`, {
    method: 'PUT',
    body: '{"secret_shares":1,"secret_threshold":1}',
  })
  assert.equal(init.status, 409, await init.text())
  const status = await at('status')
  assert.match(status.stderr, /the database is empty and was not empty before/)
  assert.doesNotMatch(status.stderr, /next: outpost operator init/)
  // The one step of an operator who means it; the server may go on running.
  renameSync(`${database}.seen`, join(directory, 'seen'))
  assert.equal((await at(`operator snapshot restore -new ${file}`)).code, 0)
  for (const key of keys.slice(0, 2)) assert.equal((await at('operator unseal -', `${key}\n`)).code, 0)
  assert.equal((await at('token lookup', '', token)).code, 0)
}
