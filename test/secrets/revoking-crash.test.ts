/**
 * A process that is killed while it revokes a lease: once the engine may have revoked the external effect, the next
 * process shows the lease as revoked, does not renew it, and completes the revocation.
 */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { cpSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { CoreWorld, type WorldKeys } from '../helpers/core-world.ts'
import { StepCopies } from '../helpers/step-copies.ts'
import { steppedStore } from '../helpers/stepped-store.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'
import { outsider } from './revoking-engine.ts'

const CRASHER = join(import.meta.dirname, 'revoking-crasher.ts')

interface Left {
  readonly directory: string
  readonly keys: WorldKeys
  readonly lease: string
}

/** What the next process makes of it. `backMs`: its clock was set back meanwhile. */
async function check({ directory, keys, lease }: Left, isTaken: boolean, what: string, backMs = 0): Promise<void> {
  let asked = 0
  const engine = outsider(() => void asked++)
  const world = await CoreWorld.reopen(directory, keys, { engines: [engine], nowMs: Date.now() - backMs })
  try {
    const found = await world.ask('PUT', 'sys/leases/lookup', { lease_id: lease })
    const isAlive = found.status === 200 && Number(found.body.data['ttl']) > 0
    if (isTaken) {
      assert.ok(!isAlive, `${what}: it is not shown as alive`)
      if (found.status === 200) assert.equal(found.body.data['renewable'], false, what)
      assert.equal((await world.ask('PUT', 'sys/leases/renew', { lease_id: lease, increment: 60 })).status, 400, what)
    }
    await world.core.open.leases.expiry.tick()
    const { leases } = await world.core.open.leases.counts()
    assert.equal(leases, isAlive ? 1 : 0, `${what}: revocation goes on by itself`)
    assert.equal(asked, found.status === 200 && !isAlive ? 1 : 0, what)
    assert.equal((await world.ask('PUT', 'sys/leases/revoke-prefix/out')).status, 204)
    assert.deepEqual(world.store.paths('sys/lease/expiry/'), [], what)
  } finally {
    await world.close()
  }
}

for (const way of ['revoke', 'revoke-prefix', 'revoke-force']) {
  test(`${way}: a lease with a started revocation is never shown as valid again`, async (t) => {
    let isTaken = false
    let isCounting = false
    const room = temporaryDirectory(t)
    const base = await CoreWorld.open(t, { engines: [outsider(() => undefined)] })
    assert.equal((await base.ask('POST', 'sys/mounts/out', { type: 'outsider' })).status, 204)
    const lease = String((await base.ask('GET', 'out/creds/app')).body['lease_id'])
    const { directory, keys } = base
    await base.close()
    const killed = join(room, 'killed')
    cpSync(directory, killed, { recursive: true })
    const copies = new StepCopies({ directory, name: 'secrets.db', room, said: () => isTaken })
    const engine = outsider(() => {
      isTaken = true
      copies.take()
    })
    const world = await CoreWorld.reopen(directory, keys, {
      engines: [engine],
      wrap: (real) => steppedStore(real, () => isCounting && copies.take()),
    })
    isCounting = true
    const body = way === 'revoke' ? { lease_id: lease } : {}
    const answer = await world.ask('PUT', `sys/leases/${way}${way === 'revoke' ? '' : '/out'}`, body)
    assert.equal(answer.status, 204)
    copies.take()
    isCounting = false
    await world.close()
    assert.deepEqual([...new Set(copies.all.map(({ said }) => said))], [false, true])
    for (const copy of copies.all) {
      await check({ directory: copy.directory, keys, lease }, copy.said, `${way}, step ${copy.step}`, 3_000_000)
    }
    if (way !== 'revoke') return
    const child = spawnSync(process.execPath, [CRASHER, killed, keys.unsealKey, keys.rootToken, lease])
    assert.equal(child.signal, 'SIGKILL', child.stderr.toString())
    await check({ directory: killed, keys, lease }, true, 'killed by the system')
  })
}

test('the engine is not called if the mark of a revocation cannot be written', async (t) => {
  let asked = 0
  const world = await CoreWorld.open(t, { engines: [outsider(() => void asked++)] })
  await world.ask('POST', 'sys/mounts/out', { type: 'outsider' })
  const lease = String((await world.ask('GET', 'out/creds/app')).body['lease_id'])
  const { store } = world.core.open.leases
  const changed = store.changePart.bind(store)
  store.changePart = () => {
    throw new Error('no space')
  }
  await assert.rejects(world.ask('PUT', 'sys/leases/revoke', { lease_id: lease }), /no space/)
  assert.equal(asked, 0)
  store.changePart = changed
  assert.equal((await world.ask('PUT', 'sys/leases/renew', { lease_id: lease })).status, 200)
  assert.equal((await world.ask('PUT', 'sys/leases/revoke', { lease_id: lease })).status, 204)
  assert.equal(asked, 1)
})

test('a lease without external effect is removed in one commit', async (t) => {
  const world = await CoreWorld.open(t, {
    engines: [
      outsider(
        () => undefined,
        () => true,
      ),
    ],
  })
  await world.ask('POST', 'sys/mounts/out', { type: 'outsider' })
  const ids = await Promise.all(
    ['a', 'a', 'b'].map(async (role) => String((await world.ask('GET', `out/creds/${role}`)).body['lease_id'])),
  )
  let changes = 0
  const { store } = world.core.open.leases
  const changed = store.changePart.bind(store)
  store.changePart = (before, lease) => {
    changes++
    return changed(before, lease)
  }
  for (const lease of ids) assert.equal((await world.ask('PUT', 'sys/leases/revoke', { lease_id: lease })).status, 204)
  assert.equal(changes, 0)
})
