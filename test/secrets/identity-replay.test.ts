import { test } from 'node:test'
import { userpass } from '../../src/engines/userpass/userpass.ts'
import { listenTo } from '../helpers/core-listener.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { recordedExchanges, replay } from '../helpers/openbao-replay.ts'

/** What the recording asks of one-time passwords. */
const ONE_TIME =
  /^(method|admin-|generate|enforcement|validate|login (needs|again|single|with|two)|mfa|seed|X-Vault-MFA|entity with secret)/

test('identity and userpass as they were recorded', async (t) => {
  const world = await CoreWorld.open(t, { engines: [userpass] })
  const port = await listenTo(t, world)
  await replay(
    recordedExchanges('identity-mfa-totp').filter(({ name }) => !ONE_TIME.test(name)),
    {
      port,
      rootToken: { recorded: 'outpost-root', ours: world.rootToken },
      differences: [
        {
          exchange: /^auth list/,
          what: /running_plugin_version$/,
          why: 'engines are built in, and their version is that of the program',
        },
        { exchange: 'entity list', what: /^data\.key_info\./, why: 'its members are called by IDs, which are others' },
        {
          exchange: 'auth list 2',
          what: /userpass\/\.options$/,
          why: 'no options are null, for every mount alike',
          ours: /^null$/,
        },
        {
          exchange: 'entity after method delete',
          what: 'data.aliases[0].custom_metadata',
          why: 'stays what it was told as before: an empty object',
          ours: /^\{\}$/,
        },
      ],
    },
  )
})
