import { test } from 'node:test'
import { listenTo } from '../helpers/core-listener.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { recordedExchanges, replay } from '../helpers/openbao-replay.ts'
import { quickUserpass } from '../helpers/quick-userpass.ts'

test('identity and userpass behave as in the recorded transcript', async (t) => {
  const world = await CoreWorld.open(t, { engines: [quickUserpass] })
  const port = await listenTo(t, world)
  await replay(recordedExchanges('identity-mfa-totp'), {
    port,
    rootToken: { recorded: 'outpost-root', ours: world.rootToken },
    made: new Set(['barcode', 'url']),
    skip: [
      {
        exchange: 'method list all',
        why: 'the order of its names is not defined there: here it is that of the other list',
      },
      {
        exchange: 'X-Vault-MFA on read',
        why: 'it is of another engine; test/secrets/mfa-step-up.test.ts has the like',
      },
    ],
    differences: [
      { exchange: 'method list', what: /^data\.key_info\./, why: 'its members are called by IDs, which are others' },
      { exchange: /generate/, what: 'data.secret', why: 'the key, for who cannot use the URL or the QR code' },
      {
        exchange: /^method qr -?(5|neg)$/,
        what: 'status',
        why: 'what generate could not serve is refused at once',
        ours: /^400 .*qr_size/,
      },
      { exchange: 'validate bad id', what: 'errors[0]', why: 'with the advice to log in again', ours: /log in again/ },
      { exchange: /^admin-generate qr -?5$/, what: 'status', why: 'there is no such method', ours: /^400/ },
      {
        exchange: /^(validate (wrong code 6|right code)|login single phase same code)/,
        what: 'status',
        why: 'a lock-out is 429, with Retry-After',
        ours: /^429 .*Please try again in 30 seconds/,
      },
      {
        exchange: /^validate wrong code [1-5]$/,
        what: 'errors[0]',
        why: 'says that the code is wrong or was used, and not that none was sent',
        ours: /wrong or was already used/,
      },
      {
        exchange: /^seed/,
        what: 'status',
        why: 'methods with a name are there in one edition only',
        ours: /^(20|400)/,
      },
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
        exchange: /^entity (after method delete|with secret)/,
        what: 'data.aliases[0].custom_metadata',
        why: 'stays what it was told as before: an empty object',
        ours: /^\{\}$/,
      },
    ],
  })
})
