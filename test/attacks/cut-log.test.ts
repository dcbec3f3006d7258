/**
 * An attacker with access to the disk truncates the write-ahead log of a running server. A read of the database then
 * fails as on a broken disk, and SQLite ends the transaction of the read, which must not end the server.
 */
import assert from 'node:assert/strict'
import { readdirSync, truncateSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { freshProcess } from '../helpers/secrets-server.ts'

test('truncation of the write-ahead log under a running server fails requests and does not stop the server', {
  timeout: 280_000,
}, async (t) => {
  const { directory, agent, keys, token } = await freshProcess(t, '-key-shares=1 -key-threshold=1')
  const ask = async (method: string, path: string, body?: object) => {
    const options = { method, headers: { 'X-Vault-Token': token }, ...(body ? { body: JSON.stringify(body) } : {}) }
    const answer = await fetch(`${agent.url}/v1/${path}`, options)
    await answer.text()
    return answer.status
  }
  assert.equal(await ask('PUT', 'sys/unseal', { key: keys[0] }), 200)
  assert.equal(await ask('POST', 'sys/mounts/kv', { type: 'kv' }), 204)
  const server = join(directory, 'data/server')
  assert.ok(readdirSync(server).includes('secrets.db-wal'))
  // A server without orders empties the log by itself after a while, and has nothing to lose then: so write and cut at once.
  let failed = 0
  for (let round = 0; round < 20 && failed === 0; round++) {
    if ((await ask('POST', `kv/before-${round}`, { v: 'x' })) >= 500) failed++
    truncateSync(join(server, 'secrets.db-wal'))
    for (let each = 0; each < 5; each++) if ((await ask('GET', `kv/other-${round}-${each}`)) >= 500) failed++
  }
  assert.ok(failed > 0, 'a request needed what was cut')
  assert.ok([200, 503].includes(await ask('GET', 'sys/health')))
  assert.equal(await ask('GET', 'sys/seal-status'), 200)
  assert.equal(agent.child.exitCode, null)
})
