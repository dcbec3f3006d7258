/** `outpost operator dr failover`: checks, operation token, confirmation, promotion, and a check of the new primary. */
import { type JsonFields, fieldsOf } from '../../../output/json.ts'
import { CommandError, type CommandIo, defineCommand } from '../../../framework/define-command.ts'
import { openResponse } from '../../../client/http-client.ts'
import { flag, UsageError } from '../../../framework/options.ts'
import {
  requireQuickResponse,
  type CoreAccess,
  coreOf,
  coreOptions,
  requireResponse,
} from '../../../core/core-access.ts'
import { promptForWord } from '../../../core/confirmation.ts'
import { escapeLine } from '../../../framework/terminal-escapes.ts'
import { OPERANDS_MAX, secretOperand } from '../../../input/secret-input.ts'
import { drStatus, peersOf, requireSecondary, roundedDuration } from './dr-access.ts'
import { KeyShares, operationToken, deleteOperationToken } from './operation-token.ts'
import { promoteOnce, promoteOptions } from './promote.ts'
import { type StepReporter, stepReporter } from './progress.ts'
import { messageOf } from '../../../../platform/errors.ts'
import { agentTarget } from '../../../client/agent-target.ts'

/** The host of a failed primary may not answer at all. */
const HEALTH_TIMEOUT_MS = 3000
const CONFIRMATION = 'promote'

const OPTIONS = {
  yes: flag('Promote without a confirmation prompt'),
  ...promoteOptions,
  ...coreOptions,
}

export const command = defineCommand({
  name: 'operator dr failover',
  summary: 'Fail over to this DR secondary',
  details: [
    'Checks the secondary and whether its primary still responds, reports commits that may be lost, generates',
    'an operation token from key shares of the primary, asks for confirmation, promotes the secondary, and',
    'checks that it serves requests. Nothing changes before the confirmation; without a terminal, -yes is',
    'required. The primary must be down or isolated from clients. It is fenced as soon as it can be reached.',
    '',
    'Example: outpost operator dr failover -yes - < shares.txt        (one key share per line)',
  ].join('\n'),
  options: OPTIONS,
  operands: { shown: '[@FILE|-]', min: 0, max: OPERANDS_MAX },
  async run(values, operands, io) {
    const given = secretOperand(operands, 'key share')
    const hasTerminal = process.getBuiltinModule('node:tty').isatty(0)
    if (!values.yes && !hasTerminal) {
      throw new UsageError('confirmation requires a terminal: use -yes to promote without it')
    }
    const core = coreOf(values, io)
    const report = stepReporter(io)
    await checkSecondary(core, values.force, report)
    const token = await operationToken(core, new KeyShares(given, io))
    report('Generated an operation token from key shares of the primary')
    if (!values.yes && !(await isConfirmed(io))) {
      await deleteOperationToken(core, token)
      throw new CommandError('not confirmed: the operation token was deleted, nothing was changed')
    }
    const startedAtMs = performance.now()
    await promoteOnce(core, token, values, io)
    await checkPrimary(core, performance.now() - startedAtMs, report)
    return 0
  },
})

/** Throws CommandError if the promotion would be refused. */
async function checkSecondary(core: CoreAccess, isForced: boolean, report: StepReporter): Promise<void> {
  const { fields } = await drStatus(core)
  const where = core.target.url.origin
  if (fields.text('mode') === 'bootstrapping' && isForced) {
    report(`${where} has an incomplete copy of its primary: missing data is lost (-force)`)
  } else {
    requireSecondary(fields, core)
    report(`${where} is a DR secondary: ${replicationState(fields)}`)
  }
  const { fields: seal } = await requireResponse(core, { path: 'sys/seal-status' })
  if (seal.boolean('sealed')) {
    throw new CommandError(
      `${where} is sealed, nothing was changed; next: outpost operator unseal, with key shares of the primary`,
    )
  }
  report('The secondary is unsealed')
  const [primary] = peersOf(fields)
  report(await primaryState(primary?.text('api_address') ?? '', fields))
}

function replicationState(fields: JsonFields): string {
  const reason = fields.text('trouble')
  const isConnected = fields.text('state') === 'stream-wals'
  const disconnected =
    reason === '' ? 'disconnected from its primary' : `disconnected from its primary (${escapeLine(reason)})`
  return `${isConnected ? 'connected to its primary' : disconnected}, ${lagText(fields)}`
}

/** Commits of the primary that may be lost. */
function lagText(fields: JsonFields): string {
  const [entries, seconds] = [fields.value('lag_entries'), fields.value('lag_seconds')]
  if (typeof entries !== 'number') return 'lag unknown: no heartbeat since its start'
  if (entries > 0) return `${entries} entries behind at the last heartbeat`
  const age = typeof seconds === 'number' && seconds > 0 ? ` ${roundedDuration(seconds * 1000)} ago` : ''
  const sync = fields.text('sync') === 'on' ? '; replication is synchronous' : ''
  return `no lag at the last heartbeat${age}${sync}`
}

/** Whether clients may still reach the primary; requested without a token. */
async function primaryState(api: string, fields: JsonFields): Promise<string> {
  if (fields.text('state') === 'stream-wals') {
    const planned = 'for a planned switchover without loss use "outpost operator dr switch"'
    return `The primary ${escapeLine(api)} is running and will be fenced: ${planned}`
  }
  if (api === '') return 'The address of the primary is unknown: make sure that no client reaches it'
  try {
    const target = { ...agentTarget({}, 'secrets', api), token: undefined }
    const response = await openResponse(target, {
      path: '/v1/sys/health',
      signal: AbortSignal.timeout(HEALTH_TIMEOUT_MS),
    })
    response.resume()
    return `The primary ${escapeLine(api)} responds to this host (HTTP ${response.statusCode ?? 0}) but is disconnected from its secondary: isolate it from clients`
  } catch (error) {
    return `The primary ${escapeLine(api)} does not respond to this host: ${escapeLine(messageOf(error))}`
  }
}

async function isConfirmed(io: CommandIo): Promise<boolean> {
  io.err('The promotion cannot be undone. Commits that only the old primary has are moved to a file there.\n')
  return promptForWord(CONFIRMATION, io)
}

async function checkPrimary(core: CoreAccess, durationMs: number, report: StepReporter): Promise<void> {
  const { fields } = await drStatus(core)
  const state = fields.text('state')
  if (state !== 'running') {
    const by = fields.text('replaced_by')
    const why = by === '' ? '' : `: ${escapeLine(by)} was also promoted and is the primary; redirect clients to it`
    throw new CommandError(`promoted, but the server does not accept writes (state "${escapeLine(state)}")${why}`)
  }
  await requireResponse(core, { path: 'sys/health' })
  report(`Promoted to primary of epoch ${fields.number('epoch')} in ${Math.round(durationMs)} ms`)
  report(await tokenState(core))
  const isOwed = fields.text('fence_notice') === 'owed'
  report(
    isOwed
      ? 'The old primary has not received the fence notice, will retry every second'
      : 'The old primary has received the fence notice',
  )
  report(
    'Next: redirect clients to this server. When the old primary is back: "outpost operator dr demote" there, then\n' +
      '   "outpost operator dr token" here and "outpost operator dr join" there. Other secondaries join with new tokens',
  )
}

async function tokenState(core: CoreAccess): Promise<string> {
  if (core.target.token === undefined) return 'No token to check: OUTPOST_TOKEN is not set'
  try {
    const answer = await requireQuickResponse(core, { path: 'auth/token/lookup-self' }, new AbortController().signal)
    const policies = fieldsOf(answer.fields.value('data')).value('policies')
    return `Your token is valid on this server${Array.isArray(policies) ? ` with ${policies.length} policies` : ''}`
  } catch (error) {
    return `Your token is not valid on this server: ${escapeLine(messageOf(error))}`
  }
}
