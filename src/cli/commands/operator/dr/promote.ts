/** `outpost operator dr promote`: a secondary takes over. */
import { type CommandIo, defineCommand } from '../../../framework/command-shape.ts'
import { flag, text } from '../../../framework/options.ts'
import { type CoreAccess, coreOf, coreOptions } from '../../../core/core-access.ts'
import { typedSecret } from '../../../input/typed-secret.ts'
import { change } from './dr-access.ts'
import { removeOperationToken } from './operation-token.ts'

export const promotedAddress = {
  'primary-cluster-addr': text({
    placeholder: 'ADDR',
    help: 'Where secondaries connect to, host:port, where the server does not know it itself',
    fallback: '',
  }),
}

/** What a promotion is asked with. */
export const promoteOptions = {
  force: flag('Also where something may be missing that the primary had'),
  ...promotedAddress,
  ...coreOptions,
}

export const command = defineCommand({
  name: 'operator dr promote',
  summary: 'Make this DR secondary the primary',
  details: [
    'It takes an operation token ("outpost operator generate-root -dr-token"), or a batch token of the',
    'primary whose policy grants it.',
  ].join('\n'),
  options: promoteOptions,
  operands: { shown: 'TOKEN|@FILE|-', min: 1, max: 1, missing: 'give an operation token, or - to read it' },
  async run(values, [given], io) {
    const token = await typedSecret(given, { what: 'an operation token', prompt: 'Operation token: ' }, io)
    await promote(coreOf(values, io), token, values, io)
    return 0
  },
})

interface Wanted {
  readonly force: boolean
  readonly 'primary-cluster-addr': string
}

export async function promote(core: CoreAccess, token: string, values: Wanted, io: CommandIo): Promise<void> {
  const { force, 'primary-cluster-addr': address } = values
  const body = { dr_operation_token: token, force, primary_cluster_addr: address }
  await change(core, 'secondary/promote', body, 'This cluster is the DR primary.', io)
}

/** The same; the token is removed where the promotion was refused. Throws CommandError. */
export async function promoteOnce(core: CoreAccess, token: string, values: Wanted, io: CommandIo): Promise<void> {
  try {
    await promote(core, token, values, io)
  } catch (error) {
    // The caller gets the error of the promotion; a token that stays is dead once a newer one is made.
    await removeOperationToken(core, token).catch(() => undefined)
    throw error
  }
}
