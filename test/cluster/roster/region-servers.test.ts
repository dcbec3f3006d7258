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

test('the state of other servers is unknown without a connection to NATS', async () => {
  assert.deepEqual(await statuses(false), ['first 2 unknown', 'own own alive', 'second 3 unknown'])
})
