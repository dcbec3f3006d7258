/** `outpost operator dr promote`. */
import { type CommandIo, defineCommand } from '../../../framework/define-command.ts'
import { flag, text } from '../../../framework/options.ts'
import { type CoreAccess, coreOf, coreOptions } from '../../../core/core-access.ts'
import { OPERANDS_MAX, readSecret, secretOperand } from '../../../input/secret-input.ts'
import { change } from './dr-access.ts'
import { deleteOperationToken } from './operation-token.ts'

export const promotedAddress = {
  'primary-cluster-addr': text({
    placeholder: 'ADDR',
    help: 'Address (host:port) at which secondaries connect to the promoted server',
    fallback: '',
  }),
}

/** Options of a promotion. */
export const promoteOptions = {
  force: flag('Promote even if commits of the primary may be lost'),
  ...promotedAddress,
  ...coreOptions,
}

export const command = defineCommand({
  name: 'operator dr promote',
  summary: 'Promote this DR secondary to primary',
  details: [
    'Requires an operation token ("outpost operator generate-root -dr-token"), or a batch token of the primary',
    'with a policy that permits the promotion. The token is read from standard input or from a file; without an argument,',
    'the command prompts for it without echo.',
    '',
    'Example: outpost operator dr promote - < operation-token.txt',
  ].join('\n'),
  options: promoteOptions,
  operands: { shown: '[@FILE|-]', min: 0, max: OPERANDS_MAX },
  async run(values, operands, io) {
    const given = secretOperand(operands, 'operation token')
    const token = await readSecret(given, { what: 'operation token', prompt: 'Operation token: ' }, io)
    await promote(coreOf(values, io), token, values, io)
    return 0
  },
})

interface PromotionOptions {
  readonly force: boolean
  readonly 'primary-cluster-addr': string
}

export async function promote(core: CoreAccess, token: string, values: PromotionOptions, io: CommandIo): Promise<void> {
  const { force, 'primary-cluster-addr': address } = values
  const body = { dr_operation_token: token, force, primary_cluster_addr: address }
  await change(core, 'secondary/promote', body, 'This cluster is the DR primary.', io)
}

/** As `promote`; deletes the token if the promotion is refused. Throws CommandError. */
export async function promoteOnce(
  core: CoreAccess,
  token: string,
  values: PromotionOptions,
  io: CommandIo,
): Promise<void> {
  try {
    await promote(core, token, values, io)
  } catch (error) {
    // The caller receives the error of the promotion. A token that remains is invalid once a newer one is generated.
    await deleteOperationToken(core, token).catch(() => undefined)
    throw error
  }
}
