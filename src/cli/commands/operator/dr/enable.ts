/** `outpost operator dr enable`, `token`, `demote` and `disable`: a primary, activation tokens for its secondaries, and the way back. */
import { CommandError, defineCommand } from '../../../framework/command-shape.ts'
import { flag, text } from '../../../framework/options.ts'
import { coreOf, coreOptions, requireCore } from '../../../core/core-access.ts'
import { fieldsOf } from '../../../output/answer.ts'
import { confirm, confirmOptions } from '../../../core/confirmation.ts'
import { typedSecret } from '../../../input/typed-secret.ts'
import { change, DR } from './dr-access.ts'

const clusterAddr = {
  'primary-cluster-addr': text({
    placeholder: 'ADDR',
    help: 'Where secondaries connect to, host:port, where the server does not know it itself',
    fallback: '',
  }),
}

export const command = defineCommand({
  name: 'operator dr enable',
  summary: 'Make this cluster a DR primary or, with an activation token, the secondary of one',
  details: [
    'Without a token the cluster becomes a primary. With one, a secondary: everything that it has',
    'gives way to what the primary has, after the primary was reached and has agreed. The key shares',
    'are those of the primary from then on.',
    '',
    'Example: outpost operator dr enable                    on the primary',
    '         outpost operator dr token b | outpost operator dr enable -     the secondary b',
  ].join('\n'),
  options: {
    ...clusterAddr,
    'primary-api-addr': text({
      placeholder: 'URL',
      help: "The primary's API, where it is another one than the token names",
      fallback: '',
    }),
    'ca-file': text({
      placeholder: 'FILE',
      help: "A file on the server: the authorities of the primary's API",
      fallback: '',
    }),
    insecure: flag('Unwrap the token over plain HTTP to another host'),
    ...confirmOptions,
    ...coreOptions,
  },
  operands: { shown: '[TOKEN|@FILE|-]', min: 0, max: 1, missing: '' },
  async run(values, [given], io) {
    const core = coreOf(values, io)
    if (given === undefined) {
      const body = { primary_cluster_addr: values['primary-cluster-addr'] }
      await confirm(core, 'make this cluster a DR primary', values.yes, io)
      await change(core, 'primary/enable', body, 'This cluster is a DR primary. Next: outpost operator dr token ID', io)
      return 0
    }
    const token = await typedSecret(given, { what: 'an activation token', prompt: 'Activation token: ' }, io)
    await confirm(core, 'make this cluster a DR secondary and delete all its secrets and tokens', values.yes, io)
    const { insecure, 'ca-file': caFile, 'primary-api-addr': apiAddress } = values
    const body = { token, primary_api_addr: apiAddress, ca_file: caFile, insecure }
    const next = 'Next: outpost operator unseal, with the key shares of the primary'
    await change(core, 'secondary/enable', body, `This cluster becomes a DR secondary. ${next}`, io)
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
    if (activation === '') throw new CommandError('the server returned no activation token')
    io.out(`${activation}\n`)
    return 0
  },
})

export const demote = defineCommand({
  name: 'operator dr demote',
  summary: 'Make this DR primary a secondary, which connects to no primary before update-primary',
  details:
    'It serves no secrets afterwards. Its data is kept, and it joins another primary of the set without\n' +
    'a full copy. On a terminal it asks for confirmation.',
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
