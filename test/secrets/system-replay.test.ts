/** Recorded exchanges about mounts, routing, cubbyholes and the endpoints that tell about the server, played over HTTP. */
import { test, type TestContext } from 'node:test'
import type { Engine } from '../../src/engines/framework/engine.ts'
import { kv } from '../../src/engines/kv/kv.ts'
import { listenTo } from '../helpers/core-listener.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { recordedExchanges, replay, type Difference, type ReplayOptions } from '../helpers/openbao-replay.ts'
import { MOUNT_DIFFERENCES, ROUTING_DIFFERENCES, SYSTEM_DIFFERENCES } from './system-differences.ts'

/** Mounts of either version, as they were recorded; what is behind those without versions is not looked at here. */
const anyKv: Engine = {
  ...kv,
  checkOptions(given, before) {
    const { version = '1' } = given
    if (version === '3') return kv.checkOptions?.(given, before) ?? { options: given }
    const isUpgrade = before && before['version'] !== '2' && version === '2'
    if (before?.['version'] === '2' && version !== '2') return kv.checkOptions?.(given, before) ?? { options: given }
    return { options: { ...given }, ...(isUpgrade ? { warnings: ['it is upgraded'] } : {}) }
  },
}

async function play(
  t: TestContext,
  file: string,
  differences: readonly Difference[],
  more: Partial<ReplayOptions> & { readonly only?: RegExp; readonly engine?: Engine } = {},
): Promise<void> {
  const { engine = kv, only = /./, ...options } = more
  const world = await CoreWorld.open(t, { engines: [engine] })
  await world.ask('POST', 'sys/mounts/secret', { type: 'kv-v2', description: 'key/value secret storage' })
  await replay(
    recordedExchanges(file).filter(({ name }) => only.test(name)),
    {
      port: await listenTo(t, world),
      rootToken: { recorded: 'outpost-root', ours: world.rootToken },
      differences,
      ...options,
    },
  )
}

test('mounts respond as recorded', async (t) => {
  await play(t, 'sys-mounts', MOUNT_DIFFERENCES, {
    engine: anyKv,
    skip: [{ exchange: /^v1 /, why: 'what a mount without versions does is told by its own engine' }],
  })
})

test('the server responds as recorded', async (t) => {
  await play(t, 'sys-basic', SYSTEM_DIFFERENCES)
})

test('errors and routing respond as recorded', async (t) => {
  await play(t, 'errors-auth-routing', ROUTING_DIFFERENCES)
})

test('wrapping and cubbyholes respond as recorded', async (t) => {
  const world = await CoreWorld.open(t, { engines: [kv] })
  await world.ask('POST', 'sys/mounts/secret', { type: 'kv-v2', description: 'key/value secret storage' })
  for (const z of [0, 1]) await world.ask('POST', 'secret/data/html', { data: { z } })
  await replay(recordedExchanges('wrapping-cubbyhole'), {
    port: await listenTo(t, world),
    rootToken: { recorded: 'outpost-root', ours: world.rootToken },
    differences: [
      { exchange: 'cubby empty write', what: 'status', why: 'it is the caller’s mistake: 400, not 500' },
      { exchange: 'cubbyhole/response', what: 'data.response', why: 'the request ID in the text is made anew' },
      { exchange: 'cubbyhole/response', what: 'warnings', why: 'the old way is no worse than the new one here' },
      { exchange: 'wrap jwt', what: 'wrap_info.token', why: 'another key, another server; wrapping.test.ts has it' },
    ],
    skip: [{ exchange: 'unwrap jwt', why: 'it is of another server’s key; wrapping.test.ts has it' }],
    before({ name }) {
      if (name === 'unwrap expired') world.nowMs += 2000
    },
  })
})
