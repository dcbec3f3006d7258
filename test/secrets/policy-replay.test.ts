import { test } from 'node:test'
import { listenTo } from '../helpers/core-listener.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { recordedExchanges, replay } from '../helpers/openbao-replay.ts'

test('policies and capabilities behave as in the recorded transcript', async (t) => {
  const world = await CoreWorld.open(t)
  for (const name of ['ro', 'uionly'])
    await world.ask('PUT', `sys/policies/acl/${name}`, { policy: '# of another test' })
  const port = await listenTo(t, world)
  await replay(recordedExchanges('sys-policies'), {
    port,
    rootToken: { recorded: 'outpost-root', ours: world.rootToken },
    differences: [
      {
        exchange: /^(syntax error|bad capability|unknown key|unknown top|plus star)$/,
        what: /^errors\[0\]/,
        why: 'the place of each fault, and what would be right',
      },
      { exchange: /^get (default|response-wrapping)$/, what: 'data.policy', why: 'our own words, the same rules' },
      { exchange: /^rgp$/, what: /^(status|errors)/, why: 'an unsupported feature is named, with 405' },
    ],
  })
})
