/** `outpost mfa totp …`: TOTP methods, and the TOTP secrets of entities. A secret is shown once, when it is generated. */
import { qrText } from '../../../engines/totp/qr.ts'
import { AgentRefusal } from '../../client/http-client.ts'
import {
  sendRequest,
  cleanPath,
  type CoreAccess,
  type CoreResponse,
  coreOf,
  coreOptions,
  type CoreRequest,
  requireResponse,
} from '../../core/core-access.ts'
import {
  fieldOption,
  type Format,
  formatOf,
  formatOption,
  pairsTable,
  printKeys,
  printSecret,
  printWarnings,
  printWriteResult,
} from '../../core/secret-output.ts'
import { CommandError, type CommandIo, defineCommand } from '../../framework/define-command.ts'
import { flag } from '../../framework/options.ts'
import { readData } from '../../input/data-input.ts'
import { readSecret } from '../../input/secret-input.ts'
import { isJsonObject } from '../../output/json.ts'
import { identityPath } from '../entity.ts'

const METHODS_PATH = 'sys/mfa/method/totp'

/** The API path of a method, or below it. Throws UsageError. */
function methodPath(name: string, ...more: readonly string[]): string {
  return [METHODS_PATH, cleanPath(name), ...more].join('/')
}

const list = defineCommand({
  name: 'mfa totp list',
  summary: 'List TOTP methods',
  options: { ...formatOption, ...coreOptions },
  async run(values, _operands, io) {
    const answer = await sendRequest(coreOf(values, io), { path: METHODS_PATH, query: { list: true } })
    printKeys(answer, values, io)
    return 0
  },
})

const read = defineCommand({
  name: 'mfa totp read',
  summary: 'Show the parameters of a TOTP method',
  options: { ...fieldOption, ...formatOption, ...coreOptions },
  operands: { shown: 'METHOD', min: 1, max: 1 },
  async run(values, [name = ''], io) {
    const answer = await sendRequest(coreOf(values, io), { path: methodPath(name) })
    if (!answer) throw new CommandError(`no TOTP method ${JSON.stringify(name)}, check "outpost mfa totp list"`)
    printSecret(answer, values, io)
    return 0
  },
})

const write = defineCommand({
  name: 'mfa totp write',
  summary: 'Create or replace a TOTP method',
  details: [
    'Parameters and defaults: issuer (required), period (30), algorithm (SHA1), digits (6), skew (1), key_size',
    '(20), qr_size (200), max_validation_attempts (5), recovery_codes (0), require_confirmation (false).',
    'Omitted parameters are reset to their defaults. Existing TOTP secrets keep their parameters.',
    '',
    'Example: outpost mfa totp write phone issuer=Example require_confirmation=true recovery_codes=8',
  ].join('\n'),
  options: { ...fieldOption, ...formatOption, ...coreOptions },
  operands: {
    shown: 'METHOD [KEY=VALUE...]',
    min: 1,
    max: Number.POSITIVE_INFINITY,
  },
  async run(values, [name = '', ...data], io) {
    const path = methodPath(name)
    const answer = await sendRequest(coreOf(values, io), { method: 'PUT', path, body: await readData(data) })
    printWriteResult(answer, `Data written to: ${path}`, values, io)
    return 0
  },
})

const remove = defineCommand({
  name: 'mfa totp delete',
  summary: 'Delete a TOTP method with all TOTP secrets',
  details: [
    'Fails if policies require the method in mfa_methods; the error lists them. -force deletes the method; the',
    'rules of those policies then deny every request.',
  ].join('\n'),
  options: { force: flag('Delete the method even if policies require it'), ...coreOptions },
  operands: { shown: 'METHOD', min: 1, max: 1 },
  async run(values, [name = ''], io) {
    const path = methodPath(name)
    const query = values.force ? { force: true } : {}
    await requireResponse(coreOf(values, io), { method: 'DELETE', path, query })
    io.out(`Success! Data deleted (if it existed) at: ${path}\n`)
    return 0
  },
})

const METHOD = { shown: 'METHOD', min: 1, max: 1, hint: '"outpost mfa totp list" lists the names' }
const METHOD_AND_ENTITY = { shown: 'METHOD ENTITY', min: 2, max: 2 }
const QR = { 'no-qr': flag('Do not draw the QR code on a terminal') }
const CODE = { what: 'code', prompt: 'Code (will be hidden): ' }
const ENTITY_DETAILS = 'ENTITY is the name or ID of an entity.'

/** The ID of an entity that is given by name or ID. Throws CommandError. */
async function entityId(core: CoreAccess, entity: string): Promise<string> {
  const path = identityPath('entity', entity)
  if (path.startsWith('identity/entity/id/')) return entity
  const answer = await sendRequest(core, { path })
  const id = answer?.fields.under('data').text('id') ?? ''
  if (id === '') throw new CommandError(`no entity ${JSON.stringify(entity)}, check "outpost entity list"`)
  return id
}

/** Explains the refusal of a token without an entity, such as a root token. Throws CommandError. */
async function requireOwnEntity(core: CoreAccess, request: CoreRequest): Promise<CoreResponse> {
  return requireResponse(core, request).catch((error: unknown) => {
    if (!(error instanceof AgentRefusal) || !error.message.includes('missing entityID')) throw error
    const text = 'your token has no entity: log in as a user, or use "outpost mfa totp admin-generate" for an entity'
    throw new CommandError(text, error.exitCode, { cause: error })
  })
}

const generate = defineCommand({
  name: 'mfa totp generate',
  summary: 'Generate a TOTP secret for yourself',
  details: [
    'Generates a secret for the entity of your token and shows it once with a QR code for an authenticator',
    'application; -field=url prints the otpauth URL. An existing secret is not replaced: an administrator can',
    'replace it with "outpost mfa totp replace".',
  ].join('\n'),
  options: { ...QR, ...fieldOption, ...formatOption, ...coreOptions },
  operands: METHOD,
  async run(values, [method = ''], io) {
    const answer = await requireOwnEntity(coreOf(values, io), { path: methodPath(method, 'generate') })
    return printEnrolment(answer, { method }, values, io)
  },
})

const confirm = defineCommand({
  name: 'mfa totp confirm',
  summary: 'Confirm your TOTP secret with its first code',
  details: 'Required for methods with require_confirmation=true. Prompts for the code; - reads it from standard input.',
  options: { ...coreOptions },
  operands: { ...METHOD, shown: 'METHOD [-]', max: 2 },
  async run(values, [method = '', given], io) {
    const body = { passcode: await readSecret(given, CODE, io) }
    await requireOwnEntity(coreOf(values, io), { method: 'PUT', path: methodPath(method, 'confirm'), body })
    io.out(`Success! Confirmed the secret for ${method}\n`)
    return 0
  },
})

function generateCommand(name: 'admin-generate' | 'replace', summary: string, isReplaced: boolean) {
  return defineCommand({
    name: `mfa totp ${name}`,
    summary,
    details: [
      ENTITY_DETAILS,
      ...(isReplaced ? ['The old secret and its recovery codes become invalid immediately.'] : []),
      'The new secret is shown once with a QR code.',
    ].join('\n'),
    options: { ...QR, ...fieldOption, ...formatOption, ...coreOptions },
    operands: METHOD_AND_ENTITY,
    async run(values, [method = '', entity = ''], io) {
      const core = coreOf(values, io)
      const body = { entity_id: await entityId(core, entity), ...(isReplaced && { replace: true }) }
      const answer = await requireResponse(core, { method: 'PUT', path: methodPath(method, 'admin-generate'), body })
      return printEnrolment(answer, { method, entity }, values, io)
    },
  })
}

const adminGenerate = generateCommand('admin-generate', 'Generate a TOTP secret for an entity', false)
const replace = generateCommand('replace', 'Replace the TOTP secret of an entity', true)

const adminConfirm = defineCommand({
  name: 'mfa totp admin-confirm',
  summary: 'Confirm the TOTP secret of an entity',
  details: `${ENTITY_DETAILS} Prompts for the first code; - reads it from standard input.`,
  options: { ...coreOptions },
  operands: { ...METHOD_AND_ENTITY, shown: 'METHOD ENTITY [-]', max: 3 },
  async run(values, [method = '', entity = '', given], io) {
    const core = coreOf(values, io)
    const body = { entity_id: await entityId(core, entity), passcode: await readSecret(given, CODE, io) }
    await requireResponse(core, { method: 'PUT', path: methodPath(method, 'admin-confirm'), body })
    io.out(`Success! Confirmed the secret of ${entity} for ${method}\n`)
    return 0
  },
})

function entityCommand(name: 'admin-destroy' | 'unlock', summary: string, done: string) {
  return defineCommand({
    name: `mfa totp ${name}`,
    summary,
    details: ENTITY_DETAILS,
    options: { ...coreOptions },
    operands: METHOD_AND_ENTITY,
    async run(values, [method = '', entity = ''], io) {
      const core = coreOf(values, io)
      const body = { entity_id: await entityId(core, entity) }
      const path = methodPath(method, name === 'unlock' ? 'admin-unlock' : name)
      await requireResponse(core, { method: 'PUT', path, body })
      io.out(`Success! ${done} of ${entity} for ${method}\n`)
      return 0
    },
  })
}

const adminDestroy = entityCommand(
  'admin-destroy',
  'Destroy the TOTP secret of an entity',
  'Destroyed the secret (if it existed)',
)
const unlock = entityCommand('unlock', 'Remove the lockout of an entity', 'Removed the lockout')

const status = defineCommand({
  name: 'mfa totp status',
  summary: 'List entities with a TOTP secret or show one',
  details: `Without ENTITY, lists the entities with a secret. With ENTITY, shows the last use and failed attempts of its secret.\n${ENTITY_DETAILS}`,
  options: { ...fieldOption, ...formatOption, ...coreOptions },
  operands: { ...METHOD, shown: 'METHOD [ENTITY]', max: 2 },
  async run(values, [method = '', entity], io) {
    const core = coreOf(values, io)
    if (entity === undefined) return listEntities(core, method, values, io)
    const id = await entityId(core, entity)
    const answer = await sendRequest(core, { path: methodPath(method, 'entity', id) })
    if (!answer) throw new CommandError(`entity ${entity} has no TOTP secret for ${method}`)
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
  printKeys(await sendRequest(core, { path: methodPath(method, 'entity'), query: { list: true } }), values, io)
  return 0
}

interface EnrolmentOptions {
  readonly format: Format | undefined
  readonly field: string | undefined
  readonly 'no-qr': boolean
}

interface TotpEnrolment {
  readonly method: string
  /** Set for an administrator, who may replace an existing secret. */
  readonly entity?: string
}

/**
 * Prints a new secret, on a terminal with its QR code. Resolves with the exit code. Throws CommandError if the entity has a secret
 * already.
 */
async function printEnrolment(
  answer: CoreResponse,
  { entity, method }: TotpEnrolment,
  values: EnrolmentOptions,
  io: CommandIo,
): Promise<number> {
  const { fields } = answer
  const data = fields.value('data')
  if (!isJsonObject(data)) {
    printWarnings(answer, io)
    const next = entity === undefined ? 'an administrator can replace it' : 'replace it with "outpost mfa totp replace"'
    throw new CommandError(`no secret was generated for ${method}: the entity already has a secret, ${next}`)
  }
  if (values.field !== undefined || formatOf(values, io) !== 'table') {
    printSecret(answer, values, io)
    return 0
  }
  const url = fields.under('data').text('url')
  if (!values['no-qr'] && process.getBuiltinModule('node:tty').isatty(1)) io.out(await qrText(url))
  const { barcode: _picture, recovery_codes: recovery, ...shown } = data
  const codes = Array.isArray(recovery) ? recovery : []
  const rows = Object.entries(shown).toSorted(([a], [b]) => (a < b ? -1 : 1))
  io.out(pairsTable([...rows, ...codes.map((code, at) => [`recovery_code_${at + 1}`, code] as const)]))
  printWarnings(answer, io)
  io.err('This is shown once. Scan the QR code, or enter the secret in an authenticator application.\n')
  if (data['confirmed'] === false) {
    const command = entity === undefined ? `confirm ${method}` : `admin-confirm ${method} ${entity}`
    io.err(`To activate the secret, confirm it with its first code: outpost mfa totp ${command}\n`)
  }
  return 0
}

export const commands = [
  list,
  read,
  write,
  remove,
  generate,
  confirm,
  adminGenerate,
  adminConfirm,
  adminDestroy,
  replace,
  unlock,
  status,
]
