/** `outpost token create|lookup|renew|revoke|capabilities`. */
import { sendRequest, coreOf, coreOptions, type CoreRequest, requireResponse, wrapOption } from '../core/core-access.ts'
import {
  cell,
  fieldOption,
  formatOf,
  formatOption,
  printAs,
  printSecret,
  printWriteResult,
} from '../core/secret-output.ts'
import { type CommandIo, defineCommand } from '../framework/define-command.ts'
import { choice, flag, integer, optionalFlag, text, texts, UsageError } from '../framework/options.ts'
import { readPairs } from '../input/data-input.ts'
import { readSecret } from '../input/secret-input.ts'
import { requireTokenField } from '../output/field-names.ts'

const TOKEN = { what: 'token', prompt: 'Token (will be hidden): ' }

const ttl = (help: string) => text({ placeholder: 'DURATION', help, fallback: undefined })

const create = defineCommand({
  name: 'token create',
  summary: 'Create a token',
  details: [
    'The new token is a child of your token: it is revoked with your token and cannot have more permissions.',
    'Without -policy, it has the policies of your token.',
    '',
    'Example: outpost token create -policy=app -ttl=1h -field=token',
  ].join('\n'),
  options: {
    policy: texts('NAME', 'Policy of the token'),
    ttl: ttl('Initial TTL'),
    'explicit-max-ttl': ttl('Maximum TTL that renewals cannot exceed'),
    period: ttl('Create a periodic token with this TTL; requires sudo'),
    renewable: optionalFlag('Allow renewal; -renewable=false disables it'),
    'display-name': text({ placeholder: 'NAME', help: 'Display name in audit logs', fallback: undefined }),
    metadata: texts('KEY=VALUE', 'Metadata of the token'),
    'use-limit': integer({
      placeholder: 'N',
      help: 'Maximum number of uses; 0 for no limit',
      fallback: undefined,
      min: 0,
      max: Number.MAX_SAFE_INTEGER,
    }),
    orphan: flag('Create a token without a parent; requires sudo'),
    'no-default-policy': flag('Omit the policy "default"'),
    type: choice({ placeholder: 'TYPE', help: 'Token type', choices: ['service', 'batch'], shownDefault: 'service' }),
    role: text({ placeholder: 'NAME', help: 'Create the token with a token role', fallback: undefined }),
    id: text({
      placeholder: 'TOKEN|@FILE|-',
      help: 'Token ID instead of a random one; requires root',
      fallback: undefined,
    }),
    'entity-alias': text({
      placeholder: 'NAME',
      help: 'Entity alias of the token; requires -role',
      fallback: undefined,
    }),
    ...fieldOption,
    ...formatOption,
    ...wrapOption,
    ...coreOptions,
  },
  async run(values, _operands, io) {
    if (values['wrap-ttl'] === undefined) requireTokenField(values.field)
    if (values.orphan && values.role !== undefined)
      throw new UsageError('options -orphan and -role are mutually exclusive')
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
      id: values.id === undefined ? undefined : await readSecret(values.id, TOKEN, io),
      entity_alias: values['entity-alias'],
      ...(values.metadata.length > 0 ? { meta } : {}),
    }
    printSecret(await requireResponse(coreOf(values, io), { method: 'POST', path, body }), values, io)
    return 0
  },
})

const lookup = defineCommand({
  name: 'token lookup',
  summary: 'Show the properties of a token',
  details: 'Without an argument, shows your own token.',
  options: {
    accessor: flag('Interpret the argument as an accessor'),
    ...fieldOption,
    ...formatOption,
    ...coreOptions,
  },
  operands: { shown: '[TOKEN|@FILE|-]', min: 0, max: 1 },
  async run(values, [given], io) {
    if (values.accessor && given === undefined) throw new UsageError('missing ACCESSOR: -accessor requires an argument')
    const request: CoreRequest =
      given === undefined
        ? { path: 'auth/token/lookup-self' }
        : values.accessor
          ? { method: 'POST', path: 'auth/token/lookup-accessor', body: { accessor: given } }
          : { method: 'POST', path: 'auth/token/lookup', body: { token: await readSecret(given, TOKEN, io) } }
    printSecret(await requireResponse(coreOf(values, io), request), values, io)
    return 0
  },
})

const DURATION = { placeholder: 'DURATION', fallback: undefined }

const renew = defineCommand({
  name: 'token renew',
  summary: 'Renew a token',
  details: 'Without an argument, renews your own token.',
  options: {
    increment: text({ ...DURATION, help: 'Requested TTL from now' }),
    i: text({ ...DURATION, help: 'Alias of -increment' }),
    accessor: flag('Interpret the argument as an accessor'),
    ...fieldOption,
    ...formatOption,
    ...coreOptions,
  },
  operands: { shown: '[TOKEN|@FILE|-]', min: 0, max: 1 },
  async run(values, [given], io) {
    if (values.accessor && given === undefined) throw new UsageError('missing ACCESSOR: -accessor requires an argument')
    const increment = values.increment ?? values.i
    const request: CoreRequest =
      given === undefined
        ? { method: 'PUT', path: 'auth/token/renew-self', body: { increment } }
        : values.accessor
          ? { method: 'POST', path: 'auth/token/renew-accessor', body: { accessor: given, increment } }
          : { method: 'PUT', path: 'auth/token/renew', body: { token: await readSecret(given, TOKEN, io), increment } }
    printSecret(await requireResponse(coreOf(values, io), request), values, io)
    return 0
  },
})

const revoke = defineCommand({
  name: 'token revoke',
  summary: 'Revoke a token and its children',
  details: 'With -mode=orphan, the children of the token are not revoked; this requires sudo.',
  options: {
    self: flag('Revoke your own token'),
    accessor: flag('Interpret the argument as an accessor'),
    mode: choice({ placeholder: 'MODE', help: 'Revocation mode', choices: ['orphan'] }),
    ...formatOption,
    ...coreOptions,
  },
  operands: { shown: '[TOKEN|@FILE|-]', min: 0, max: 1 },
  async run(values, [given], io) {
    if (values.self && given !== undefined) throw new UsageError('option -self takes no argument')
    if (values.self && values.accessor) throw new UsageError('options -self and -accessor are mutually exclusive')
    if (values.mode && (values.self || values.accessor))
      throw new UsageError(`option -mode=${values.mode} requires a token`)
    if (values.accessor && given === undefined) throw new UsageError('missing ACCESSOR: -accessor requires an argument')
    const answer = await sendRequest(coreOf(values, io), await requestOf(values, given, io))
    printWriteResult(answer, 'Revoked token (if it existed)', values, io)
    return 0
  },
})

async function requestOf(
  values: { readonly self: boolean; readonly accessor: boolean; readonly mode: 'orphan' | undefined },
  given: string | undefined,
  io: CommandIo,
): Promise<CoreRequest> {
  if (values.self) return { method: 'PUT', path: 'auth/token/revoke-self' }
  if (values.accessor) return { method: 'POST', path: 'auth/token/revoke-accessor', body: { accessor: given } }
  const token = await readSecret(given, TOKEN, io)
  const path = values.mode === 'orphan' ? 'auth/token/revoke-orphan' : 'auth/token/revoke'
  return { method: 'PUT', path, body: { token } }
}

const capabilities = defineCommand({
  name: 'token capabilities',
  summary: 'Show the capabilities of a token on a path',
  details:
    'Without TOKEN, shows the capabilities of your own token.\n\nExample: outpost token capabilities secret/data/app',
  options: { ...formatOption, ...coreOptions },
  operands: {
    shown: '[TOKEN|@FILE|-] PATH',
    min: 1,
    max: 2,
  },
  async run(values, operands, io) {
    const path = operands.at(-1) ?? ''
    const core = coreOf(values, io)
    const request = { method: 'POST' } as const
    const answer =
      operands.length === 1
        ? await requireResponse(core, { ...request, path: 'sys/capabilities-self', body: { path } })
        : await requireResponse(core, {
            ...request,
            path: 'sys/capabilities',
            body: { token: await readSecret(operands[0], TOKEN, io), path },
          })
    const listed = answer.fields.under('data').value('capabilities')
    const names = Array.isArray(listed) ? listed.map(cell).toSorted() : []
    printAs(formatOf(values, io), names, io, () => `${names.join(', ')}\n`)
    return 0
  },
})

export const commands = [create, lookup, renew, revoke, capabilities]
