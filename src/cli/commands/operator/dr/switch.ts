/**
 * `outpost operator dr switch`: a planned switchover that loses no acknowledged write. The primary is demoted only after its secondary
 * has acknowledged the whole log. Then no server accepts writes until the secondary is promoted. The stage follows from the modes of
 * both servers alone, so the same command continues an interrupted switchover.
 */
import { fieldsOf } from '../../../output/json.ts'
import { CommandError, type CommandIo, defineCommand } from '../../../framework/define-command.ts'
import { text, UsageError } from '../../../framework/options.ts'
import { confirm, confirmOptions } from '../../../core/confirmation.ts'
import { type CoreAccess, coreOf, coreOptions, requireResponse } from '../../../core/core-access.ts'
import { escapeLine } from '../../../framework/terminal-escapes.ts'
import { messageOf } from '../../../../platform/errors.ts'
import { OPERANDS_MAX, secretOperand } from '../../../input/secret-input.ts'
import { DR, drStatus, printWarningLines, requestChange } from './dr-access.ts'
import { type StepReporter, stepReporter, untilFollowing } from './progress.ts'
import { joinAgain } from './join.ts'
import { KeyShares, operationToken, deleteOperationToken } from './operation-token.ts'
import { promotedAddress, promoteOnce } from './promote.ts'
import {
  checkServers,
  serverStatus,
  stageOf,
  type SwitchServers,
  type SwitchStage,
  untilEqual,
} from './switch-servers.ts'

const OPTIONS = {
  secondary: text({ placeholder: 'URL', help: 'API address of the secondary to promote', fallback: undefined }),
  id: text({
    placeholder: 'ID',
    help: 'ID of the old primary as a secondary',
    fallback: undefined,
    shownDefault: 'the host in its address',
  }),
  ...promotedAddress,
  ...confirmOptions,
  ...coreOptions,
}

export const command = defineCommand({
  name: 'operator dr switch',
  summary: 'Switch the roles of a DR primary and its secondary',
  details: [
    'Set OUTPOST_ADDR and OUTPOST_TOKEN to those of the primary, and -secondary to the API address of the secondary. The token',
    'requires sudo. Key shares of the primary are read from standard input, one per line, or from a terminal',
    'without echo. They generate the operation tokens of both servers. The secondary receives the shares only after',
    'it has been verified to be a secondary of this primary, and the token only after it has been promoted.',
    '',
    'No acknowledged write is lost. The command checks both servers, stops writes on the primary, waits until',
    'the secondary has all of them, promotes it, and joins the old primary to it. Clients receive errors during',
    'the switchover and must use the new primary afterwards. If a step fails, the command prints the state of',
    'both servers; run it again to continue.',
    '',
    'Asks for confirmation on a terminal.',
    '',
    'Example: outpost operator dr switch -secondary https://berlin.example:4646 < shares.txt',
  ].join('\n'),
  options: OPTIONS,
  operands: { shown: '[@FILE|-]', min: 0, max: OPERANDS_MAX },
  async run(values, operands, io) {
    if (values.secondary === undefined)
      throw new UsageError('missing -secondary URL: the API address of the secondary to promote')
    const isTerminal = process.getBuiltinModule('node:tty').isatty(0)
    const source = secretOperand(operands, 'key share') ?? (isTerminal ? undefined : '-')
    const from = coreOf(values, io)
    const secondary = coreOf({ ...values, address: values.secondary }, io)
    const target = { ...secondary.target, from: '-secondary' }
    const { 'X-Vault-MFA': _codes, ...headers } = secondary.headers
    const roleSwitch: RoleSwitch = {
      from,
      to: { headers, target: { ...target, token: undefined, tokenFrom: undefined, withheld: [] } },
      // A token of the primary is valid on the promoted secondary.
      promoted: { ...secondary, target: { ...target, token: from.target.token } },
      io,
      report: stepReporter(io),
      id: values.id ?? from.target.url.hostname.replaceAll(/[[\]]/g, ''),
      shares: new KeyShares(source, io),
      yes: values.yes,
      'primary-cluster-addr': values['primary-cluster-addr'],
    }
    const [newPrimary, oldPrimary] = [target.url.origin, from.target.url.origin]
    if (!(await switchRoles(roleSwitch))) {
      io.out(
        `Nothing to do: ${newPrimary} is the primary, ${oldPrimary} follows it. To promote ${oldPrimary}, swap the two addresses\n`,
      )
      return 0
    }
    io.out(
      `Success! ${newPrimary} is the DR primary, ${oldPrimary} follows it. Next: redirect clients to ${newPrimary}\n`,
    )
    return 0
  },
})

interface RoleSwitch extends SwitchServers {
  /** The secondary with the token: only for requests after its promotion. */
  readonly promoted: CoreAccess
  readonly io: CommandIo
  readonly report: StepReporter
  /** ID of the old primary as a secondary. */
  readonly id: string
  readonly shares: KeyShares
  readonly yes: boolean
  readonly 'primary-cluster-addr': string
}

/** False if the roles are switched already. Throws CommandError after the state of both servers was printed. */
async function switchRoles(roleSwitch: RoleSwitch): Promise<boolean> {
  const { from, io, to } = roleSwitch
  try {
    const stage = stageOf(await serverStatus(from), await serverStatus(to))
    if (stage === 'done') return false
    await continueFrom(stage, roleSwitch)
    return true
  } catch (error) {
    io.err(await stateText(roleSwitch))
    throw error
  }
}

async function continueFrom(stage: Exclude<SwitchStage, 'done'>, roleSwitch: RoleSwitch): Promise<void> {
  const { from, report, shares, to } = roleSwitch
  if (stage === 'demote') await demoteAndPromote(roleSwitch)
  else if (stage === 'promote') {
    report(`${from.target.url.origin} is demoted already, no server accepts writes: the switchover continues`)
    // Before it receives key shares.
    await untilEqual(roleSwitch)
    await promoteSecondary(roleSwitch, await operationToken(to, shares))
  } else report(`${to.target.url.origin} is the primary already: the switchover continues`)
  await joinOldPrimary(roleSwitch)
}

async function demoteAndPromote(roleSwitch: RoleSwitch): Promise<void> {
  const { from, io, report, shares, to, yes } = roleSwitch
  await checkServers(roleSwitch, report)
  // First, because invalid shares must not be noticed while no server accepts writes.
  const token = await operationToken(to, shares)
  report(`Generated an operation token of ${to.target.url.origin} from the key shares`)
  const { fields } = await drStatus(to)
  try {
    await confirm(from, `demote this primary and promote its secondary at ${to.target.url.origin}`, yes, io)
    await requestChange(from, 'primary/demote', { secondary_id: fields.text('secondary_id') }, silent(io))
  } catch (error) {
    await deleteOperationToken(to, token).catch(() => undefined)
    throw error
  }
  report(`${from.target.url.origin} is demoted: it accepts no writes, and its secondary has acknowledged all of them`)
  await promoteSecondary(roleSwitch, token)
}

/** The warnings of the server say that a change takes time; the command waits for it. */
function silent(io: CommandIo): CommandIo {
  return { ...io, out: () => undefined, err: () => undefined }
}

async function promoteSecondary(roleSwitch: RoleSwitch, token: string): Promise<void> {
  const { io, report, to } = roleSwitch
  try {
    report(`Both servers have the same entries at position ${await untilEqual(roleSwitch)}`)
  } catch (error) {
    await deleteOperationToken(to, token).catch(() => undefined)
    throw error
  }
  await promoteOnce(to, token, { force: false, 'primary-cluster-addr': roleSwitch['primary-cluster-addr'] }, silent(io))
  const { fields } = await drStatus(to)
  const state = fields.text('state')
  if (state !== 'running')
    throw new CommandError(`promoted, but the server does not accept writes (state "${escapeLine(state)}")`)
  await requireResponse(to, { path: 'sys/health' })
  report(`${to.target.url.origin} is promoted to primary of epoch ${fields.number('epoch')}`)
}

/** The activation token is encrypted for the old primary's key, so the old primary need not reach the API of the new one. */
async function joinOldPrimary({ from, id, io, promoted, report, shares, to }: RoleSwitch): Promise<void> {
  const key = await requireResponse(from, { method: 'PUT', path: `${DR}/secondary/generate-public-key` })
  const publicKey = fieldsOf(key.fields.value('data')).text('secondary_public_key')
  const body = { id, secondary_public_key: publicKey }
  const issued = await requireResponse(promoted, { method: 'PUT', path: `${DR}/primary/secondary-token`, body })
  const token = fieldsOf(issued.fields.value('data')).text('token')
  if (token === '') throw new CommandError(`${to.target.url.origin} returned no activation token`)
  printWarningLines(issued.fields, io)
  await joinAgain(from, { token }, shares, silent(io))
  report(`${from.target.url.origin} has joined the new primary as "${escapeLine(id)}"`)
  await untilFollowing(from, io)
  report(`${from.target.url.origin} follows ${to.target.url.origin}`)
}

/** The state of both servers after a failed step, and the next command. */
async function stateText({ from, to }: SwitchServers): Promise<string> {
  const [fromMode, toMode] = await Promise.all([modeOf(from), modeOf(to)])
  const [old, next] = [from.target.url.origin, to.target.url.origin]
  return `State: ${old} is ${fromMode}; ${next} is ${toMode}.\n${nextStep(fromMode, toMode, old, next)}\n`
}

function nextStep(from: string, to: string, old: string, next: string): string {
  if (from.startsWith('primary (running)')) {
    return `The roles have not changed, ${old} accepts writes. Remove the cause and run the same command again.`
  }
  if (to.startsWith('primary')) {
    return `${next} accepts writes, redirect clients to it. The same command continues: ${old} joins it as a secondary.`
  }
  if (from.startsWith('secondary') && to.startsWith('secondary')) {
    return [
      `No server accepts writes. The same command continues: it promotes ${next}.`,
      `To revert instead: "outpost operator dr failover" at ${old} promotes it again; then`,
      `"outpost operator dr token" there and "outpost operator dr join -shares-file" at ${next}.`,
    ].join('\n')
  }
  if (from.startsWith('secondary')) {
    return [
      `${old} accepts no writes. Run the same command again as soon as ${next} responds.`,
      `If ${next} is lost and was not promoted: "outpost operator dr failover" at ${old} promotes it again.`,
    ].join('\n')
  }
  return 'Check "outpost operator dr status" of both servers and run the same command again: it continues.'
}

async function modeOf(core: SwitchServers['from']): Promise<string> {
  try {
    const { fields } = await drStatus(core)
    return `${escapeLine(fields.text('mode'))} (${escapeLine(fields.text('state'))})`
  } catch (error) {
    return `in an unknown state (${messageOf(error)})`
  }
}
