/** The list of servers of a region: which runs it has, and the status of those that do not answer. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { RegionServers } from '../../../src/cluster/roster/region-servers.ts'
import type { KnownServer } from '../../../src/cluster/trust/server-trust.ts'

const self = () => ({
  ID: 'own',
  Name: 'own',
  Version: '',
  Address: '',
  HasCore: false,
  CoreState: '',
  ClusterID: '',
})

const selfWithCore = () => ({ ...self(), HasCore: true })

function run(serverId: string, key: string, announcedAtMs: number): KnownServer {
  return {
    serverId,
    key,
    name: key,
    announcedAtMs,
    hasCore: true,
    curveKey: new Uint8Array(32),
    clockMs: 0,
    sequence: 0,
  }
}

async function statuses(isConnected: boolean): Promise<string[]> {
  // Before the requests of the lists.
  const longAgo = performance.now() - 1000
  const runs = [run('1', 'first', longAgo), run('2', 'first', longAgo + 200), run('3', 'second', longAgo)]
  const keys = {
    servers: () => runs,
    unreachableServers: () => [],
    requestAnnouncements: () => undefined,
  }
  const servers = new RegionServers({ keys: () => keys, hasOthers: true, isConnected: () => isConnected, self })
  return (await servers.list()).map(({ ID, Name, Status }) => `${Name} ${ID} ${Status}`)
}

test('a server that has restarted and does not answer is listed once', async () => {
  assert.deepEqual(await statuses(true), ['first 2 silent', 'own own alive', 'second 3 silent'])
})

test('servers of a highly available core have their roles, also those that no longer announce themselves', async () => {
  const member = { version: '1', position: 5, lag: 0, lastSeenMs: Date.now(), isSelf: false }
  const members = [
    { ...member, name: 'own', serverId: 'own', apiAddress: 'http://own:1', role: 'active', isSelf: true },
    { ...member, name: 'first', serverId: '1', apiAddress: 'http://first:1', role: 'standby', lag: 3 },
    {
      ...member,
      name: 'gone',
      serverId: '9',
      apiAddress: 'http://gone:1',
      role: 'lost',
      lastSeenMs: Date.now() - 90_000,
    },
  ]
  const listed = async (coreMembers: () => Promise<typeof members>) => {
    const keys = {
      servers: () => [run('1', 'first', performance.now())],
      unreachableServers: () => [],
      requestAnnouncements: () => undefined,
    }
    const servers = new RegionServers({
      keys: () => keys,
      hasOthers: true,
      isConnected: () => true,
      self: selfWithCore,
      coreMembers,
    })
    return (await servers.list()).map(({ Lag, Name, Position, Role, SecondsSinceAnnouncement, Status }) =>
      [Name, Status, Role, Position, Lag, SecondsSinceAnnouncement].join(' '),
    )
  }
  assert.deepEqual(await listed(async () => members), [
    'first alive standby 5 3 0',
    'gone silent lost 5 0 90',
    'own alive active 5 0 0',
  ])
  const unreadable = await listed(() => Promise.reject(new Error('NATS is away')))
  assert.deepEqual(unreadable, ['first alive  0 0 0', 'own alive  0 0 0'])
})

test('the state of other servers is unknown without a connection to NATS', async () => {
  assert.deepEqual(await statuses(false), ['first 2 unknown', 'own own alive', 'second 3 unknown'])
})
