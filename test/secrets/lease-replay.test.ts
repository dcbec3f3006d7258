/** Leases as they were recorded, given out by an engine of the test as the recorded store of plain secrets gave them. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Engine, path } from '../../src/engines/engine.ts'
import { inPath, text } from '../../src/engines/fields.ts'
import { listenTo } from '../helpers/core-listener.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { recordedExchanges, replay } from '../helpers/openbao-replay.ts'

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

test('leases as they were recorded', async (t) => {
  const world = await CoreWorld.open(t, { engines: [leasedStore()] })
  const port = await listenTo(t, world)
  const tokens = 'tokens are not among the leases: they have an index of their own'
  await replay(recordedExchanges('sys-leases'), {
    port,
    rootToken: { recorded: 'outpost-root', ours: world.rootToken },
    differences: [
      { exchange: /^lookup/, what: 'data.ttl', why: 'no time passes between our exchanges' },
      { exchange: 'list root', what: 'data.keys', why: tokens, ours: /^\["lkv\/"\]$/ },
      { exchange: /^renew( path)?$/, what: 'data', why: 'a renewal tells the lease and no data', ours: /^null$/ },
      { exchange: 'tidy', what: 'status', why: 'leases and what they are found by are one commit: nothing to tidy' },
      { exchange: 'renew token lease', what: 'errors[0]', why: tokens, ours: /lease not found/ },
      { exchange: /token lease|after lease revoke/, what: 'status', why: tokens },
    ],
  })
  assert.equal(world.core.open.leases.store.irrevocable(1).length, 0)
})
