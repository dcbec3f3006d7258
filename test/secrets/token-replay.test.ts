import { test } from 'node:test'
import { listenTo } from '../helpers/core-listener.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { recordedExchanges, replay } from '../helpers/openbao-replay.ts'

test('tokens behave as in the recorded transcript', async (t) => {
  const world = await CoreWorld.open(t)
  await world.ask('PUT', 'sys/policies/acl/ro', { policy: '# of another recording' })
  const port = await listenTo(t, world)
  await replay(recordedExchanges('auth-token'), {
    port,
    rootToken: { recorded: 'outpost-root', ours: world.rootToken },
    before({ name }) {
      if (name === 'after expiry') world.nowMs += 2000
    },
    differences: [
      { exchange: /./, what: 'data.creation_time', why: 'another time' },
      { exchange: /./, what: 'data.ttl', why: 'no time passes between our exchanges' },
      {
        exchange: /^(lookup-self root|lookup none|lookup GET)$/,
        what: /^data\.(display_name|issue_time|path|renewable)$/,
        why: 'the recorded one was made by auth/token/create; ours is the first root token, which has no lease',
      },
      { exchange: 'create bad ttl', what: 'errors[0]', why: 'says what would be right' },
      { exchange: 'create custom id', what: 'warnings', why: 'all tokens are hashed alike here, chosen ones too' },
      { exchange: /^accessors( GET)?$/, what: 'data.keys', why: 'in another order, and there were other tokens' },
      { exchange: 'tidy', what: 'warnings[0]', why: 'says whose log it is' },
    ],
  })
})
