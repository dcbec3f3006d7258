/** Recorded exchanges about leases, which an engine of the test issues like the recorded store of plain secrets. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Engine, path } from '../../src/engines/framework/engine.ts'
import { inPath, text } from '../../src/engines/framework/fields.ts'
import { listenTo } from '../helpers/core-listener.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { recordedExchanges, replay, Substitutions } from '../helpers/openbao-replay.ts'
import { make } from './token-world.ts'

function leasedStore(): Engine {
  const kept = new Map<string, Readonly<Record<string, unknown>>>()
  return {
    type: 'kv',
    description: 'plain secrets with leases',
    paths: [
      path({
        pattern: ':name',
        summary: 'A secret',
        fields: { name: inPath('Any'), a: text('Any'), lease: text('How long it is good for') },
        read({ name }) {
          const data = kept.get(name)
          if (!data) return undefined
          return { data, lease: { ttlSeconds: 3600, maxTtlSeconds: 0, renewable: true, internal: {} } }
        },
        update({ name }, { data }) {
          kept.set(name, data)
          return undefined
        },
      }),
    ],
  }
}

/** A root token that is a lease, as the recorded one; in a list it stands before every other token. */
async function createdRoot(world: CoreWorld): Promise<{ readonly token: string; readonly key: string }> {
  const { tokens } = world.core.open
  let id = 'root-0'
  for (let at = 1; !tokens.hashOf(id).startsWith('000'); at++) id = `root-${at}`
  await make(world, { id, no_parent: true })
  return { token: id, key: `h${tokens.hashOf(id)}` }
}

test('leases behave as in the recorded transcript', async (t) => {
  const world = await CoreWorld.open(t, { engines: [leasedStore()] })
  const port = await listenTo(t, world)
  const root = await createdRoot(world)
  const known = new Substitutions()
  known.learn('23a93048c5357e4be30b4ef2da0ea3006e6131a9', root.key)
  await replay(recordedExchanges('sys-leases'), {
    port,
    rootToken: { recorded: 'outpost-root', ours: root.token },
    known,
    differences: [
      { exchange: /^lookup( after renew)?$/, what: 'data.ttl', why: 'no time passes between our exchanges' },
      { exchange: /^renew( path)?$/, what: 'data', why: 'a renewal tells the lease and no data', ours: /^null$/ },
      { exchange: 'tidy', what: 'warnings[0]', why: 'names no product' },
    ],
  })
  assert.equal(world.core.open.leases.store.irrevocable(1).length, 0)
})
