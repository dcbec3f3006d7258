/**
 * A region with two versions of the program: this checkout and the version before it, each as server and as agent. So a server
 * works with agents of the version before and of the version after.
 *
 * The version before is the last tag before HEAD, else the commit 50 steps back. OUTPOST_VERSION_BEFORE names another one.
 */
import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, realpathSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { before, after, test } from 'node:test'
import { workDirectory } from '../helpers/agent-process.ts'
import { ALLOC, INSIDE, makeAllocation } from '../helpers/allocation.ts'
import { eventually } from '../helpers/eventually.ts'
import { permittedCluster, TOKEN } from '../helpers/permitted-cluster.ts'
import { commandsAt, jsonOf } from '../helpers/secrets-server.ts'

const ROOT = resolve(import.meta.dirname, '../..')
/** Not below node_modules, where Node runs no TypeScript. */
const CHECKOUT = realpathSync(mkdtempSync(join(tmpdir(), 'outpost-version-before-')))
const ARCHIVE_LIMIT_BYTES = 1 << 30
const STEPS_BACK = 50
const CURRENT = join(ROOT, 'bin/outpost')
const BEFORE = join(CHECKOUT, 'bin/outpost')

function git(...args: readonly string[]): string {
  return execFileSync('git', ['-C', ROOT, ...args], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] }).trim()
}

function versionBefore(): string {
  const given = process.env['OUTPOST_VERSION_BEFORE']
  if (given !== undefined) return given
  const { status, stdout } = spawnSync('git', ['-C', ROOT, 'describe', '--tags', '--abbrev=0', 'HEAD~'], {
    encoding: 'utf8',
  })
  return status === 0 ? stdout.trim() : `HEAD~${STEPS_BACK}`
}

const skip = existsSync(join(ROOT, '.git')) ? false : 'needs a git checkout'

// The files of the commit, without a worktree: those are shared by all checkouts of the repository.
before(() => {
  if (skip) return
  const archive = execFileSync('git', ['-C', ROOT, 'archive', versionBefore()], { maxBuffer: ARCHIVE_LIMIT_BYTES })
  execFileSync('tar', ['-x', '-C', CHECKOUT], { input: archive })
  symlinkSync(join(ROOT, 'node_modules'), join(CHECKOUT, 'node_modules'))
})
after(() => rmSync(CHECKOUT, { recursive: true, force: true }))

for (const [name, server, others] of [
  ['a server of this version, an agent and a second server of the version before', CURRENT, BEFORE],
  ['a server of the version before, an agent and a second server of this version', BEFORE, CURRENT],
] as const) {
  test(name, { skip }, async (t) => {
    t.diagnostic(`the version before: ${git('log', '-1', '--format=%h %cs', versionBefore())}`)
    const directory = workDirectory(t)
    const cluster = await permittedCluster(t, directory, ['-server', 'core', '-edge', 'edge', '-agent', 'worker'])
    assert.ok(cluster, 'needs openssl')
    makeAllocation(join(directory, 'worker/data/alloc'), ALLOC, { ClientStatus: 'running', DesiredStatus: 'run' })
    const [core, edge] = await Promise.all([cluster.start('core', server), cluster.start('edge', others)])
    await cluster.start('worker', others)
    const headers = { 'X-Nomad-Token': TOKEN }

    for (const { url } of [core, edge]) {
      const read = () => fetch(`${url}/v1/client/fs/cat/${ALLOC}?path=web/local/hello.txt`, { headers })
      await eventually(async () => (await read()).status === 200, `${url} forwards to the agent`)
      assert.equal(await (await read()).text(), INSIDE)
      const nodes = (await (await fetch(`${url}/v1/nodes`, { headers })).json()) as { Status: string }[]
      assert.deepEqual(
        nodes.map(({ Status }) => Status),
        ['ready'],
      )
      const logs = await fetch(`${url}/v1/client/fs/logs/${ALLOC}?task=web&type=stdout&plain=true`, { headers })
      assert.equal(logs.status, 200)
      await logs.body?.cancel()
    }

    const made = await jsonOf(commandsAt(core, directory), 'operator init -key-shares=1 -key-threshold=1')
    const [key = ''] = made['unseal_keys_b64'] as string[]
    const root = { 'X-Vault-Token': String(made['root_token']) }
    const unseal = await fetch(`${core.url}/v1/sys/unseal`, { method: 'PUT', body: JSON.stringify({ key }) })
    assert.equal(unseal.status, 200)
    const send = (url: string, path: string, method: string, body?: object) =>
      fetch(`${url}/v1/${path}`, { method, headers: root, ...(body ? { body: JSON.stringify(body) } : {}) })
    const mounted = await send(core.url, 'sys/mounts/kv', 'POST', { type: 'kv', options: { version: '2' } })
    assert.equal(mounted.status, 204, await mounted.text())
    // The second server forwards requests for secrets over NATS.
    const put = () => send(edge.url, 'kv/data/app', 'POST', { data: { password: 'from the edge' } })
    await eventually(async () => (await put()).status === 200, 'the second server forwards to the core')
    for (const { url } of [core, edge]) {
      const got = (await (await send(url, 'kv/data/app', 'GET')).json()) as { data: { data: object } }
      assert.deepEqual(got.data.data, { password: 'from the edge' })
    }
  })
}
