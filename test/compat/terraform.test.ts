/** The requests of Terraform's Vault provider, as they were recorded, sent to a server with the endpoint of AWS that it calls. */
import { test } from 'node:test'
import { cloudAgent } from '../helpers/cloud-agent.ts'
import { recordedExchanges, replay, Substitutions } from '../helpers/openbao-replay.ts'

const RECORDINGS = [
  ['provider-3.3', 'resources are created, read back without a difference, changed and destroyed'],
  ['api-1.23', 'the calls of the current provider are answered as it needs them'],
] as const

test('the Vault provider of Terraform works', async (t) => {
  const { agent, aws, key, token } = await cloudAgent(t)
  aws.account.addUser('APPUSER')
  for (const [file, name] of RECORDINGS) {
    await t.test(name, async () => {
      const known = new Substitutions()
      known.learn('http://aws.invalid', aws.url)
      known.learn('AKIARECORDED00000000', key.id)
      known.learn('recorded-secret-key', key.secret)
      await replay(recordedExchanges(file, 'terraform'), {
        port: agent.port,
        rootToken: { recorded: 'recorded-root-token', ours: token },
        known,
        // AWS assigns the ID of a user, and a static role gets a new key.
        made: new Set(['access_key', 'id']),
        differences: [],
        isPartial: true,
      })
    })
  }
})
