/** `outpost operator dr enable`, `token`, `demote` and `disable`: a primary, activation tokens for its secondaries, and their end. */
import { CommandError, defineCommand } from '../../../framework/command-shape.ts'
import { text } from '../../../framework/options.ts'
import { coreOf, coreOptions, requireCore } from '../../../core/core-access.ts'
import { fieldsOf } from '../../../output/answer.ts'
import { confirm, confirmOptions } from '../../../core/confirmation.ts'
import { typedSecret } from '../../../input/typed-secret.ts'
import { change, DR, printWarningLines } from './dr-access.ts'
import { activationOptions, join } from './join.ts'
import { OPERANDS_MAX, secretOperand } from './secret-sources.ts'

const clusterAddr = {
  'primary-cluster-addr': text({
    placeholder: 'ADDR',
    help: 'Where secondaries connect to, host:port, where the server does not know it itself',
    fallback: '',
  }),
}

export const command = defineCommand({
  name: 'operator dr enable',
  summary: 'Make this cluster a DR primary',
  details: [
    'With an activation token on standard input or in a file the cluster becomes a secondary, as with',
    '"outpost operator dr join". On a terminal it asks for confirmation.',
    '',
    'Example: outpost operator dr enable',
    '         outpost operator dr token b         prints a token for "outpost operator dr join" on b',
  ].join('\n'),
  options: {
    ...clusterAddr,
    ...activationOptions,
    ...confirmOptions,
    ...coreOptions,
  },
  operands: { shown: '[@FILE|-]', min: 0, max: OPERANDS_MAX, missing: '' },
  async run(values, operands, io) {
    const source = secretOperand(operands, 'an activation token')
    const core = coreOf(values, io)
    if (source !== undefined) {
      await join(core, { ...values, token: source, shares: undefined }, io)
      return 0
    }
    const body = { primary_cluster_addr: values['primary-cluster-addr'] }
    await confirm(core, 'make this cluster a DR primary', values.yes, io)
    await change(core, 'primary/enable', body, 'This cluster is a DR primary. Next: outpost operator dr token ID', io)
    return 0
  },
})

export const token = defineCommand({
  name: 'operator dr token',
  summary: 'Print an activation token for a secondary',
  details: 'It can be used once. ID names the secondary in the status, and to revoke it.',
  options: {
    ttl: text({ placeholder: 'DURATION', help: 'How long it may be used', fallback: '30m' }),
    'public-key': text({
      placeholder: 'KEY',
      help: 'Of the secondary: then it does not call the API of the primary',
      fallback: '',
    }),
    ...coreOptions,
  },
  operands: { shown: 'ID', min: 1, max: 1, missing: 'give the secondary a name' },
  async run(values, [id = ''], io) {
    const body = { id, ttl: values.ttl, secondary_public_key: values['public-key'] }
    const path = `${DR}/primary/secondary-token`
    const { fields } = await requireCore(coreOf(values, io), { method: 'PUT', path, body })
    const wrapped = fieldsOf(fields.value('wrap_info')).text('token')
    const activation = wrapped || fieldsOf(fields.value('data')).text('token')
    printWarningLines(fields, io)
    if (activation === '') throw new CommandError('the server returned no activation token')
    io.out(`${activation}\n`)
    return 0
  },
})

export const demote = defineCommand({
  name: 'operator dr demote',
  summary: 'Make this DR primary a secondary',
  details: [
    'It serves no secrets afterwards and follows no primary yet. Its data is kept, and it joins another',
    'primary of the set without a full copy ("outpost operator dr join"). For a planned change of roles',
    'use "outpost operator dr switch". On a terminal it asks for confirmation.',
  ].join('\n'),
  options: { ...confirmOptions, ...coreOptions },
  async run(values, _operands, io) {
    const core = coreOf(values, io)
    await confirm(core, 'demote this DR primary: it serves no secrets until it is promoted', values.yes, io)
    await change(core, 'primary/demote', {}, 'This cluster is a DR secondary.', io)
    return 0
  },
})

export const disable = defineCommand({
  name: 'operator dr disable',
  summary: 'End DR replication of this cluster',
  details: [
    'Without a token on a primary: its secondaries are disconnected. With an operation token on a',
    'secondary: it becomes a cluster of its own with the data that it has. Needs sudo on the path on a',
    'primary. On a terminal it asks for confirmation.',
  ].join('\n'),
  options: { ...confirmOptions, ...coreOptions },
  operands: { shown: '[TOKEN|@FILE|-]', min: 0, max: 1, missing: '' },
  async run(values, [given], io) {
    const core = coreOf(values, io)
    if (given === undefined) {
      await confirm(core, 'disable DR on this primary and disconnect all its secondaries', values.yes, io)
      await change(core, 'primary/disable', {}, 'DR is disabled on this primary.', io)
      return 0
    }
    const operationToken = await typedSecret(given, { what: 'an operation token', prompt: 'Operation token: ' }, io)
    await confirm(core, 'disable DR on this secondary: it no longer receives changes of its primary', values.yes, io)
    const body = { dr_operation_token: operationToken }
    await change(core, 'secondary/disable', body, 'DR is disabled on this secondary. It is a cluster of its own.', io)
    return 0
  },
})
