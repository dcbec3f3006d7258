/** The recorded exchanges of the compatible server about versioned secrets. */
import { test } from 'node:test'
import { listenTo } from '../../helpers/core-listener.ts'
import { openKv } from '../../helpers/kv-world.ts'
import { type Recorded, recordedExchanges, replay } from '../../helpers/openbao-replay.ts'
import { DIFFERENCES } from './differences.ts'

for (const [file, { differences, skip }] of Object.entries(DIFFERENCES)) {
  test(`${file}: answered as recorded`, async (t) => {
    const world = await openKv(t)
    const port = await listenTo(t, world)
    const rootToken = { recorded: 'outpost-root', ours: world.rootToken }
    // The recording waited here until what it had written was too old.
    const before = ({ name }: Recorded) => {
      if (name === 'dva read after') world.nowMs += 3000
    }
    await replay(recordedExchanges(file), { port, rootToken, differences, skip: skip ?? [], before })
  })
}
