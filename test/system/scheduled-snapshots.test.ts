/** Scheduled snapshots of a real server: saved, restored into a new server, reported when they fail. */
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { agentHere } from '../helpers/agent-here.ts'
import { workDirectory } from '../helpers/agent-process.ts'
import { programVersion } from '../../src/cli/commands/version.ts'
import { eventually } from '../helpers/eventually.ts'
import { commandsAt, freshServer, jsonOf, writeServer } from '../helpers/secrets-server.ts'

const SNAPSHOTS = /^outpost-[0-9a-f-]{36}-\d{8}T\d{6}Z\.snap$/

async function serverWith(t: TestContext, path: string) {
  const directory = workDirectory(t)
  const agent = await agentHere(t, [
    '-config',
    writeServer(directory, `snapshot {\n interval = "1h"\n keep = 2\n path = "${path}"\n}`),
  ])
  return { agent, run: commandsAt(agent, directory) }
}

test('a server saves a snapshot after its initialization, and a new server is restored from it', async (t) => {
  const backups = join(workDirectory(t), 'backups')
  const { agent, run } = await serverWith(t, backups)
  const made = await jsonOf(run, 'operator init -key-shares=1 -key-threshold=1')
  const name = await eventually(
    () => existsSync(backups) && readdirSync(backups).find((each) => SNAPSHOTS.test(each)),
    'a snapshot',
  )
  const text = await (await fetch(`${agent.url}/v1/metrics?format=prometheus`)).text()
  const at = /^outpost_snapshot_scheduled_last_success_timestamp_seconds\S* (\S+)$/m.exec(text)?.[1]
  assert.ok(Math.abs(Number(at) * 1000 - Date.now()) < 600_000, `${at}`)
  assert.match(text, /^outpost_snapshot_scheduled_failures_total\S* 0$/m)

  const inspected = await jsonOf(run, `operator snapshot inspect ${join(backups, name)}`)
  assert.equal(inspected['outpost_version'], programVersion())

  const other = workDirectory(t)
  const restored = await agentHere(t, ['-config', writeServer(other)])
  const runThere = commandsAt(restored, other)
  const ran = await runThere(`operator snapshot restore -new ${join(backups, name)}`)
  assert.equal(ran.code, 0, ran.stderr)
  const [share = ''] = made['unseal_keys_b64'] as string[]
  assert.equal((await runThere('operator unseal -', share)).code, 0)
  const listed = await runThere('secrets list', '', String(made['root_token']))
  assert.equal(listed.code, 0, listed.stderr)
})

test('a failed snapshot is a warning with its cause, and the server stays ready', async (t) => {
  const blocked = join(workDirectory(t), 'file')
  writeFileSync(blocked, '')
  const { agent, run } = await serverWith(t, join(blocked, 'backups'))
  const made = await jsonOf(run, 'operator init -key-shares=1 -key-threshold=1')
  const [share = ''] = made['unseal_keys_b64'] as string[]
  assert.equal((await run('operator unseal -', share)).code, 0)
  await eventually(async () => {
    const answer = await fetch(`${agent.url}/v1/agent/ready`)
    const { warnings } = (await answer.json()) as { readonly warnings: readonly string[] }
    return (
      answer.status === 200 &&
      warnings.some((each) => /^the last scheduled snapshot to \S+\/file\/backups failed: ENOTDIR/.test(each))
    )
  }, 'the warning')
  const text = await (await fetch(`${agent.url}/v1/metrics?format=prometheus`)).text()
  assert.match(text, /^outpost_snapshot_scheduled_failures_total\S* 1$/m)
})

test('the policy of the guide saves a snapshot, and permits nothing else', async (t) => {
  const guide = readFileSync(join(import.meta.dirname, '../../docs/operating/scheduled-snapshots.md'), 'utf8')
  const policy = /^path "sys\/storage\/.*$/m.exec(guide)?.[0] ?? ''
  const { keys, run, token } = await freshServer(t)
  for (const key of keys.slice(0, 2)) assert.equal((await run('operator unseal -', key)).code, 0)
  assert.equal((await run('policy write backup -', policy, token)).code, 0)
  const limited = (await run('token create -policy=backup -no-default-policy -field=token', '', token)).stdout.trim()
  const file = join(workDirectory(t), 'one.snap')
  const saved = await run(`operator snapshot save ${file}`, '', limited)
  assert.equal(saved.code, 0, saved.stderr)
  for (const line of ['secrets list', `operator snapshot restore -yes ${file}`]) {
    const refused = await run(line, '', limited)
    assert.equal(refused.code, 1, line)
    assert.match(refused.stderr, /permission denied/, line)
  }
})

test('invalid settings are refused with their position', async (t) => {
  const wrong = [
    { block: 'interval = "30s"\n path = "/backups"', text: /server\.hcl:\d+:\d+: .*at least 1m0s/ },
    { block: 'keep = 3', text: /server\.snapshot needs path: an absolute directory or s3:\/\/bucket\/prefix/ },
    { block: 'path = "backups"', text: /expected an absolute directory or s3:\/\/bucket\/prefix/ },
    { block: 'path = "s3:///prefix"', text: /expected s3:\/\/bucket\/prefix/ },
    {
      block: 'path = "/backups"\n endpoint = "https://minio:9000"',
      text: /region and endpoint are for a path with s3/,
    },
    { block: 'path = "/backups"\n keep = 0', text: /keep/ },
  ]
  const directory = workDirectory(t)
  const run = commandsAt({ url: 'http://127.0.0.1:1' }, directory)
  for (const { block, text } of wrong) {
    const ran = await run(`validate ${writeServer(directory, `snapshot {\n ${block}\n}`)}`)
    assert.equal(ran.code, 1, block)
    assert.match(ran.stdout + ran.stderr, text)
  }
})
