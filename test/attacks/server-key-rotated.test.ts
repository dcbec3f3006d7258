/** The key of a server is replaced, as after it was stolen, while calls are under way: none fails, and the old key is worth nothing. */
import '../helpers/short-timings.ts'
import assert from 'node:assert/strict'
import { renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { newSeed, signingKeyOf } from '../../src/cluster/nats/nkey.ts'
import { allocIdOf, answers, Member } from '../helpers/cluster.ts'
import { startNatsServer } from '../helpers/nats-server.ts'
import { ask } from '../helpers/raw-http.ts'
import { makeAllocation } from '../helpers/allocation.ts'
import { eventually } from '../helpers/eventually.ts'

const acl = 'acl { enabled = false }'
const taken = (member: Member) => member.stderr.split('configuration reloaded').length - 1

test('calls succeed while the key of a server is replaced', { timeout: 280_000 }, async (t) => {
  const nats = await startNatsServer(t)
  const [first, second] = [newSeed(), newSeed()]
  const [firstKey, secondKey] = [signingKeyOf(first).publicKey, signingKeyOf(second).publicKey]
  const common = { natsUrl: nats.url, acl, nats: `server_keys = ["${firstKey}"]` }
  const server = await Member.make(t, 's1', { ...common, role: 'server' })
  const host = await Member.make(t, 'w1', { ...common, role: 'client' })
  const keyFile = join(server.dataDir, 'server/server.nk')
  server.makeDirectory('server')
  writeFileSync(keyFile, `${first}\n`, { mode: 0o600 })
  makeAllocation(join(host.dataDir, 'alloc'), allocIdOf(0))
  await Promise.all([server.start(), host.start()])
  await answers(server.port, allocIdOf(0))

  const statuses = new Map<number, number>()
  const over = new AbortController()
  const calling = (async () => {
    while (!over.signal.aborted) {
      // To the host through the server, and to the server through the host.
      for (const [port, path] of [
        [server.port, `/v1/client/fs/ls/${allocIdOf(0)}`],
        [host.port, '/v1/nodes'],
      ] as const) {
        const { status } = await ask(port, 'GET', path)
        statuses.set(status, (statuses.get(status) ?? 0) + 1)
      }
    }
  })()
  const calls = () => statuses.get(200) ?? 0
  const moreCalls = async () => {
    const before = calls()
    await eventually(() => calls() > before + 20 || [...statuses.keys()].some((status) => status !== 200))
  }
  const reload = async (keys: readonly string[]) => {
    for (const member of [host, server]) {
      const before = taken(member)
      const list = keys.map((key) => `"${key}"`).join(', ')
      member.reconfigure((text) => text.replace(/server_keys = .*/, `server_keys = [${list}]`))
      await eventually(() => taken(member) > before)
    }
    await moreCalls()
  }
  await reload([firstKey, secondKey])
  writeFileSync(`${keyFile}.new`, `${second}\n`, { mode: 0o600 })
  renameSync(`${keyFile}.new`, keyFile)
  await reload([secondKey, firstKey])
  await reload([secondKey])
  over.abort()
  await calling
  assert.deepEqual([...statuses.keys()], [200])

  // A process with the old key is no longer trusted as a server.
  host.reconfigure((text) => text.replace(/server_keys = .*/, `server_keys = ["${firstKey}"]`))
  await eventually(() => host.stderr.includes('server announcement rejected'))
  const refused = async () => (await ask(host.port, 'GET', '/v1/nodes')).status === 503
  await eventually(refused, 'the host takes the old key for no server')
})
