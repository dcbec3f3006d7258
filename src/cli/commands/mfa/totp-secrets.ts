/** `outpost mfa totp generate|confirm|…`: the secrets of entities. A secret is shown once, when it is generated. */
import { CommandError, type CommandIo, defineCommand } from '../../framework/command-shape.ts'
import { pathOf } from '../identity/identity-commands.ts'
import { RefusedByAgent } from '../../client/http-client.ts'
import { flag } from '../../framework/options.ts'
import {
  askCore,
  type CoreAccess,
  type CoreAnswer,
  coreOf,
  coreOptions,
  type CoreRequest,
  requireCore,
} from '../../core/core-access.ts'
import {
  fieldOption,
  formatOf,
  formatOption,
  keysOf,
  keysTable,
  printAs,
  printSecret,
} from '../../core/secret-output.ts'
import { typedSecret } from '../../input/typed-secret.ts'
import { printEnrolment } from './enrolment-output.ts'
import { methodPath } from './totp-methods.ts'

const METHOD = { shown: 'METHOD', min: 1, max: 1, missing: 'which method? "outpost mfa totp list" shows them' }
const OF_ENTITY = (name: string) => ({
  shown: 'METHOD ENTITY',
  min: 2,
  max: 2,
  missing: `which method, and which entity? as in: outpost mfa totp ${name} phone alice`,
})
const QR = { 'no-qr': flag('Do not draw the QR code on a terminal') }
const CODE = { what: 'the code', prompt: 'Code (will be hidden): ' }
const BY_NAME = 'ENTITY is the name or the ID of an entity.'

/** The ID of an entity that is named by name or ID. Throws CommandError. */
async function entityId(core: CoreAccess, entity: string): Promise<string> {
  const path = pathOf('entity', entity)
  if (path.startsWith('identity/entity/id/')) return entity
  const answer = await askCore(core, { path })
  const id = answer?.fields.under('data').text('id') ?? ''
  if (id === '') throw new CommandError(`there is no entity ${entity}, "outpost entity list" shows them`)
  return id
}

/** Throws CommandError, which says what to do where the token has no entity, as a root token. */
async function ofOwnEntity(core: CoreAccess, request: CoreRequest): Promise<CoreAnswer> {
  return requireCore(core, request).catch((error: unknown) => {
    if (!(error instanceof RefusedByAgent) || !error.message.includes('missing entityID')) throw error
    const why = 'your token belongs to no entity: log in as a user, or generate for an entity with admin-generate'
    throw new CommandError(why, error.exitCode, { cause: error })
  })
}

export const generate = defineCommand({
  name: 'mfa totp generate',
  summary: 'Generate a secret for yourself, and show its QR code',
  details: [
    'The secret is for the entity of your token. It is shown once: scan it with an authenticator',
    'application. Without a camera, type the secret in; for a program there is the URL (-field=url).',
    'An entity that has a secret keeps it: "outpost mfa totp replace" gives it another one.',
  ].join('\n'),
  options: { ...QR, ...fieldOption, ...formatOption, ...coreOptions },
  operands: METHOD,
  async run(values, [method = ''], io) {
    const answer = await ofOwnEntity(coreOf(values, io), { path: methodPath(method, 'generate') })
    return printEnrolment(answer, { method }, values, io)
  },
})

export const confirm = defineCommand({
  name: 'mfa totp confirm',
  summary: 'Put your secret in force by its first code',
  details: 'For methods with require_confirmation=true. The code is asked for, or read from standard input with -.',
  options: { ...coreOptions },
  operands: { ...METHOD, shown: 'METHOD [-]', max: 2 },
  async run(values, [method = '', given], io) {
    const body = { passcode: await typedSecret(given, CODE, io) }
    await ofOwnEntity(coreOf(values, io), { method: 'PUT', path: methodPath(method, 'confirm'), body })
    io.out(`Success! The secret for ${method} is in force\n`)
    return 0
  },
})

function generating(name: 'admin-generate' | 'replace', summary: string, isReplaced: boolean) {
  return defineCommand({
    name: `mfa totp ${name}`,
    summary,
    details: [
      BY_NAME,
      ...(isReplaced ? ['The old secret and its recovery codes are no good any more, at once.'] : []),
      'The new secret is shown once.',
    ].join('\n'),
    options: { ...QR, ...fieldOption, ...formatOption, ...coreOptions },
    operands: OF_ENTITY(name),
    async run(values, [method = '', entity = ''], io) {
      const core = coreOf(values, io)
      const body = { entity_id: await entityId(core, entity), ...(isReplaced && { replace: true }) }
      const answer = await requireCore(core, { method: 'PUT', path: methodPath(method, 'admin-generate'), body })
      return printEnrolment(answer, { method, entity }, values, io)
    },
  })
}

export const adminGenerate = generating(
  'admin-generate',
  'Generate a secret for an entity, and show its QR code',
  false,
)
export const replace = generating(
  'replace',
  'Destroy the secret of an entity and generate another one, in one step',
  true,
)

export const adminConfirm = defineCommand({
  name: 'mfa totp admin-confirm',
  summary: 'Put the secret of an entity in force by its first code',
  details: `${BY_NAME} The code is asked for, or read from standard input with -.`,
  options: { ...coreOptions },
  operands: { ...OF_ENTITY('admin-confirm'), shown: 'METHOD ENTITY [-]', max: 3 },
  async run(values, [method = '', entity = '', given], io) {
    const core = coreOf(values, io)
    const body = { entity_id: await entityId(core, entity), passcode: await typedSecret(given, CODE, io) }
    await requireCore(core, { method: 'PUT', path: methodPath(method, 'admin-confirm'), body })
    io.out(`Success! The secret of ${entity} for ${method} is in force\n`)
    return 0
  },
})

function onEntity(name: 'admin-destroy' | 'unlock', summary: string, done: string) {
  return defineCommand({
    name: `mfa totp ${name}`,
    summary,
    details: BY_NAME,
    options: { ...coreOptions },
    operands: OF_ENTITY(name),
    async run(values, [method = '', entity = ''], io) {
      const core = coreOf(values, io)
      const body = { entity_id: await entityId(core, entity) }
      const path = methodPath(method, name === 'unlock' ? 'admin-unlock' : name)
      await requireCore(core, { method: 'PUT', path, body })
      io.out(`Success! ${done} of ${entity} for ${method}\n`)
      return 0
    },
  })
}

export const adminDestroy = onEntity(
  'admin-destroy',
  'Destroy the secret of an entity',
  'Destroyed the secret (if it existed)',
)
export const unlock = onEntity('unlock', 'End the lock-out of an entity', 'Ended the lock-out')

export const status = defineCommand({
  name: 'mfa totp status',
  summary: 'Show which entities have a secret; of one, when it was used and what failed',
  details: BY_NAME,
  options: { ...fieldOption, ...formatOption, ...coreOptions },
  operands: { ...METHOD, shown: 'METHOD [ENTITY]', max: 2 },
  async run(values, [method = '', entity], io) {
    const core = coreOf(values, io)
    if (entity === undefined) return listEntities(core, method, values, io)
    const id = await entityId(core, entity)
    const answer = await askCore(core, { path: methodPath(method, 'entity', id) })
    if (!answer) throw new CommandError(`${entity} has no secret for ${method}`)
    printSecret(answer, values, io)
    return 0
  },
})

async function listEntities(
  core: CoreAccess,
  method: string,
  values: Parameters<typeof formatOf>[0],
  io: CommandIo,
): Promise<number> {
  const answer = await askCore(core, { path: methodPath(method, 'entity'), query: { list: true } })
  const keys = answer ? keysOf(answer) : []
  printAs(formatOf(values, io), keys, io, () => keysTable(keys))
  return 0
}
