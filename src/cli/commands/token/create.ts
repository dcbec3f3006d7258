/** `outpost token create`. */
import { defineCommand } from '../../framework/command-shape.ts'
import { choice, flag, integer, optionalFlag, text, texts, UsageError } from '../../framework/options.ts'
import { coreOf, coreOptions, requireCore, wrapOption } from '../../core/core-access.ts'
import { readPairs } from '../../input/data-input.ts'
import { requireTokenField } from '../../output/field-names.ts'
import { fieldOption, formatOption, printSecret } from '../../core/secret-output.ts'
import { typedSecret } from '../../input/typed-secret.ts'

const ttl = (help: string) => text({ placeholder: 'DURATION', help, fallback: undefined })

export const command = defineCommand({
  name: 'token create',
  summary: 'Make a token',
  details: [
    'It is a child of your own: it ends with it, and may not do more than it. Without -policy it has',
    'the policies of your own.',
    '',
    'Example: outpost token create -policy=app -ttl=1h -field=token',
  ].join('\n'),
  options: {
    policy: texts('NAME', 'A policy'),
    ttl: ttl('How long it is good for, unless it is renewed'),
    'explicit-max-ttl': ttl('How long it is good for at most'),
    period: ttl('It is renewed for this long each time, without an end; needs sudo'),
    renewable: optionalFlag('With =false it cannot be renewed'),
    'display-name': text({ placeholder: 'NAME', help: 'How logs name it', fallback: undefined }),
    metadata: texts('KEY=VALUE', 'What lookups show of it'),
    'use-limit': integer({
      placeholder: 'N',
      help: 'How many requests it is good for; 0 for any number',
      fallback: undefined,
      min: 0,
      max: Number.MAX_SAFE_INTEGER,
    }),
    orphan: flag('It does not end with your own; needs sudo'),
    'no-default-policy': flag('Without the policy "default"'),
    type: choice({ placeholder: 'TYPE', help: 'Kind of token (service)', choices: ['service', 'batch'] }),
    role: text({ placeholder: 'NAME', help: 'The role that says what it is', fallback: undefined }),
    id: text({
      placeholder: 'TOKEN|@FILE|-',
      help: 'The token itself, instead of a random one; - reads it from standard input; needs root',
      fallback: undefined,
    }),
    'entity-alias': text({ placeholder: 'NAME', help: 'With -role: whose it is', fallback: undefined }),
    ...fieldOption,
    ...formatOption,
    ...wrapOption,
    ...coreOptions,
  },
  async run(values, _operands, io) {
    if (values['wrap-ttl'] === undefined) requireTokenField(values.field)
    if (values.orphan && values.role !== undefined) throw new UsageError('-orphan and -role do not go together')
    const path =
      values.role === undefined
        ? `auth/token/create${values.orphan ? '-orphan' : ''}`
        : `auth/token/create/${values.role}`
    const meta = readPairs(values.metadata, '-metadata')
    const body = {
      policies: values.policy.flatMap((list) => list.split(',')).filter(Boolean),
      ttl: values.ttl,
      explicit_max_ttl: values['explicit-max-ttl'],
      period: values.period,
      renewable: values.renewable,
      display_name: values['display-name'],
      num_uses: values['use-limit'],
      no_default_policy: values['no-default-policy'],
      type: values.type,
      id: values.id === undefined ? undefined : await typedSecret(values.id, TOKEN, io),
      entity_alias: values['entity-alias'],
      ...(values.metadata.length > 0 ? { meta } : {}),
    }
    printSecret(await requireCore(coreOf(values, io), { method: 'POST', path, body }), values, io)
    return 0
  },
})

const TOKEN = { what: 'the token', prompt: 'Token (will be hidden): ' }
