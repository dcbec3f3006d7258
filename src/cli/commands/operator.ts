/** `outpost operator unseal|seal|step-down|status|rotate|key-status`. */
import { confirm, confirmOptions } from '../core/confirmation.ts'
import {
  sendRequest,
  type CoreAccess,
  type CoreResponse,
  coreOf,
  coreOptions,
  requireResponse,
} from '../core/core-access.ts'
import { type Format, formatOf, formatOption, pairsTable, printAs } from '../core/secret-output.ts'
import { CommandError, type CommandIo, defineCommand } from '../framework/define-command.ts'
import { flag } from '../framework/options.ts'
import { readSecrets } from '../input/secret-input.ts'
import { statusCommand } from './status.ts'

const KEY_SHARE = { what: 'key share', prompt: 'Unseal Key (will be hidden): ' }

const unseal = defineCommand({
  name: 'operator unseal',
  summary: 'Unseal the server with a key share',
  details: [
    'Prompts for a key share without echo. With -, reads shares from standard input, one per line. Other users',
    'of this machine can read a share that is passed as an argument while the command runs. A server with a',
    'static seal unseals itself with the static key.',
    '',
    'Example: outpost operator unseal - < /run/keys/share-1',
  ].join('\n'),
  options: {
    reset: flag('Discard the shares submitted so far'),
    migrate: flag('Migrate to the seal of the configuration'),
    ...formatOption,
    ...coreOptions,
  },
  operands: { shown: '[KEY|-]', min: 0, max: 1 },
  async run(values, [given], io) {
    const core = coreOf(values, io)
    const format = formatOf(values, io)
    const answer = values.reset
      ? await submit(core, { reset: true })
      : await submitAll(core, await readSecrets(given, KEY_SHARE, io), values.migrate)
    printAs(format, answer.body, io, () => progressTable(answer))
    printRemaining(answer, io)
    return 0
  },
})

async function submitAll(
  core: CoreAccess,
  keys: readonly [string, ...string[]],
  migrate: boolean,
): Promise<CoreResponse> {
  const [first, ...more] = keys
  let answer = await submit(core, { key: first, migrate })
  for (const key of more) {
    if (!answer.fields.boolean('sealed')) break
    answer = await submit(core, { key, migrate })
  }
  return answer
}

function submit(core: CoreAccess, body: Readonly<Record<string, unknown>>): Promise<CoreResponse> {
  return requireResponse(core, { method: 'PUT', path: 'sys/unseal', body })
}

function progressTable({ fields }: CoreResponse): string {
  const isSealed = fields.boolean('sealed')
  return pairsTable([
    ['Seal Type', fields.value('type')],
    ['Sealed', isSealed],
    ['Total Shares', fields.number('n')],
    ['Threshold', fields.number('t')],
    ...(isSealed
      ? ([
          ['Unseal Progress', `${fields.number('progress')}/${fields.number('t')}`],
          ['Unseal Nonce', fields.text('nonce')],
        ] as const)
      : ([['Cluster Name', fields.value('cluster_name')]] as const)),
  ])
}

function printRemaining({ fields }: CoreResponse, io: CommandIo): void {
  const left = fields.number('t') - fields.number('progress')
  if (fields.boolean('sealed')) io.err(`still sealed: ${left} more key ${left === 1 ? 'share' : 'shares'} required\n`)
}

const seal = defineCommand({
  name: 'operator seal',
  summary: 'Seal the server',
  details: [
    'A sealed server does not serve secrets until it is unsealed with key shares ("outpost operator unseal")',
    'or, with a static seal, restarted. It still serves logs and allocations. Requires sudo on sys/seal. Asks',
    'for confirmation on a terminal.',
  ].join('\n'),
  options: { ...confirmOptions, ...coreOptions },
  async run(values, _operands, io) {
    const core = coreOf(values, io)
    await confirm(core, 'seal the server: secrets are not available until it is unsealed', values.yes, io)
    await sendRequest(core, { method: 'PUT', path: 'sys/seal' })
    io.out('Success! The server is sealed.\n')
    return 0
  },
})

/** Of the stock command, if the request fails. */
const STEP_DOWN_FAILED = 2

const stepDown = defineCommand({
  name: 'operator step-down',
  summary: 'Make the active server a standby',
  details: [
    'In a highly available core, the active server finishes its commits and releases its role, and a standby takes',
    'over within a second. A standby forwards the request to the active server. Without high availability, the',
    'command has no effect. Requires sudo on sys/step-down.',
    '',
    'Exit code 2: the request failed.',
  ].join('\n'),
  options: coreOptions,
  async run(values, _operands, io) {
    const core = coreOf(values, io)
    const active = await activeAddress(core)
    try {
      await sendRequest(core, { method: 'PUT', path: 'sys/step-down' })
    } catch (error) {
      if (!(error instanceof CommandError)) throw error
      throw new CommandError(`stepping down failed: ${error.message}`, STEP_DOWN_FAILED, { cause: error })
    }
    io.out(`Success! Stepped down: ${active ?? core.target.url.origin}\n`)
    return 0
  },
})

/** Address of the active server, which may not be the addressed one; undefined if that is not known. */
async function activeAddress(core: CoreAccess): Promise<string | undefined> {
  const leader = await sendRequest(core, { path: 'sys/leader' }).catch(() => undefined)
  return leader?.fields.text('leader_address') || undefined
}

const rotate = defineCommand({
  name: 'operator rotate',
  summary: 'Rotate the encryption key',
  details: [
    'New entries are encrypted with the new key; existing entries remain readable. The key shares do not',
    'change. To change them, use "outpost operator rekey".',
  ].join('\n'),
  options: { ...formatOption, ...coreOptions },
  async run(values, _operands, io) {
    const core = coreOf(values, io)
    const format = formatOf(values, io)
    await sendRequest(core, { method: 'POST', path: 'sys/rotate' })
    if (format === 'table') io.out('Success! Rotated the encryption key.\n\n')
    await showKeyStatus(core, format, io)
    return 0
  },
})

const keyStatus = defineCommand({
  name: 'operator key-status',
  summary: 'Show the term of the encryption key',
  options: { ...formatOption, ...coreOptions },
  async run(values, _operands, io) {
    await showKeyStatus(coreOf(values, io), formatOf(values, io), io)
    return 0
  },
})

async function showKeyStatus(core: CoreAccess, format: Format, io: CommandIo): Promise<void> {
  const { fields } = await requireResponse(core, { path: 'sys/key-status' })
  const data = fields.under('data')
  printAs(format, fields.value('data'), io, () =>
    pairsTable([
      ['Key Term', data.value('term')],
      ['Install Time', data.value('install_time')],
      ['Encryption Count', data.value('encryptions')],
    ]),
  )
}

const status = statusCommand('operator status')

export const commands = [unseal, seal, stepDown, status, rotate, keyStatus]
