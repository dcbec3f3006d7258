/**
 * An attacker with the key of a worker host announces its own address as that of the host. Stock commands call the
 * address in `/v1/node/:id` with the token of their user.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { UNRESTRICTED } from '../../src/cluster/trust/authorizer.ts'
import { root } from '../host/allocations/host-fixture.ts'
import { idOf, nodeOf, startFleetServer } from '../helpers/fleet-server.ts'

test('an authenticated caller does not learn the address that the host announced', async (t) => {
  const server = await startFleetServer(t)
  const id = idOf('11ed0de0')
  server.say(nodeOf(id, { httpAddress: 'thief.example:4646' }))
  const addressFor = async (identity: typeof root) => {
    server.actAs(identity)
    const { value } = await server.get(`node/${id}`)
    return (value as Record<string, unknown>)['HTTPAddr']
  }
  assert.equal(await addressFor(root), '')
  assert.equal(await addressFor(UNRESTRICTED), 'thief.example:4646', 'with the ACL off there is no token to take')
})
