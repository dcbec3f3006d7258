/**
 * `outpost operator dr switch`: a planned change of roles that loses no acknowledged write. The primary is demoted only once its
 * secondary has the whole log; after that no server takes writes until the secondary is promoted. How far the change is follows
 * from the roles of both servers alone, so the same command continues one that was cut short.
 */
import { fieldsOf } from '../../../output/answer.ts'
import { CommandError, type CommandIo, defineCommand } from '../../../framework/command-shape.ts'
import { text, UsageError } from '../../../framework/options.ts'
import { confirm, confirmOptions } from '../../../core/confirmation.ts'
import { coreOf, coreOptions, requireCore } from '../../../core/core-access.ts'
import { shownName } from '../../../framework/shown.ts'
import { messageOf } from '../../../../platform/errors.ts'
import { DR, drStatus, printWarningLines, requestChange } from './dr-access.ts'
import { untilFollowing } from './initial-sync.ts'
import { joinAgain } from './join.ts'
import { KeyShares, operationToken, removeOperationToken } from './operation-token.ts'
import { promotedAddress, promoteOnce } from './promote.ts'
import { OPERANDS_MAX, secretOperand } from './secret-sources.ts'
import { type Say, sayer } from './steps.ts'
import { checkSides, type Sides, sideStatus, type Stage, stageOf, untilEqual } from './switch-sides.ts'

const OPTIONS = {
  secondary: text({ placeholder: 'URL', help: 'The API of the secondary to promote', fallback: undefined }),
  id: text({
    placeholder: 'ID',
    help: 'Name of the old primary as a secondary',
    fallback: undefined,
    shownDefault: 'the host in its address',
  }),
  ...promotedAddress,
  ...confirmOptions,
  ...coreOptions,
}

export const command = defineCommand({
  name: 'operator dr switch',
  summary: 'Exchange the roles of a DR primary and its secondary',
  details: [
    'OUTPOST_ADDR and OUTPOST_TOKEN are those of the primary, -secondary is the API of the secondary. The',
    'token needs sudo and is sent to both. Key shares of the primary are read from standard input, a line',
    'each, or typed on a terminal, which does not show them. They make operation tokens of both servers.',
    '',
    'No acknowledged write is lost. The command checks both servers, ends writes on the primary, waits',
    'until the secondary has all of them, promotes it, and lets the old primary follow it. Callers get',
    'errors meanwhile, and must use the new primary afterwards. A step that fails prints the state of both',
    'servers. The same command continues.',
    '',
    'On a terminal it asks for confirmation.',
    '',
    'Example: outpost operator dr switch -secondary https://berlin.example:4646 < shares.txt',
  ].join('\n'),
  options: OPTIONS,
  operands: { shown: '[@FILE|-]', min: 0, max: OPERANDS_MAX, missing: '' },
  async run(values, operands, io) {
    if (values.secondary === undefined) throw new UsageError('give -secondary URL, the API of the secondary to promote')
    const isTerminal = process.getBuiltinModule('node:tty').isatty(0)
    const source = secretOperand(operands, 'a key share') ?? (isTerminal ? undefined : '-')
    const from = coreOf(values, io)
    const there = coreOf({ ...values, address: values.secondary }, io)
    // Both are one cluster to a token: what the primary accepts, the promoted secondary accepts.
    const to = { ...there, target: { ...there.target, from: '-secondary', token: from.target.token } }
    const switching: Switching = {
      from,
      to,
      io,
      say: sayer(io),
      id: values.id ?? from.target.url.hostname.replaceAll(/[[\]]/g, ''),
      shares: new KeyShares(source, io),
      yes: values.yes,
      'primary-cluster-addr': values['primary-cluster-addr'],
    }
    if (!(await change(switching))) {
      const [primary, secondary] = [to.target.url.origin, from.target.url.origin]
      io.out(
        `Nothing to do: ${primary} is the primary, ${secondary} follows it. To promote ${secondary}, exchange both\n`,
      )
      return 0
    }
    io.out(
      `Success! ${to.target.url.origin} is the DR primary, ${from.target.url.origin} follows it. Next: send callers to the primary\n`,
    )
    return 0
  },
})

interface Switching extends Sides {
  readonly io: CommandIo
  readonly say: Say
  /** Of the old primary. */
  readonly id: string
  readonly shares: KeyShares
  readonly yes: boolean
  readonly 'primary-cluster-addr': string
}

/** False where the roles were changed before. Throws CommandError, after the state of both servers was printed. */
async function change(switching: Switching): Promise<boolean> {
  const { from, io, to } = switching
  try {
    const stage = stageOf(await sideStatus(from), await sideStatus(to))
    if (stage === 'done') return false
    await changeFrom(stage, switching)
    return true
  } catch (error) {
    io.err(await stateOf(switching))
    throw error
  }
}

async function changeFrom(stage: Exclude<Stage, 'done'>, switching: Switching): Promise<void> {
  const { from, say, shares, to } = switching
  if (stage === 'begin') await demoteAndPromote(switching)
  else if (stage === 'promote') {
    say(`${from.target.url.origin} is demoted already, no server takes writes: the change of roles continues`)
    await promoteNow(switching, await operationToken(to, shares))
  } else say(`${to.target.url.origin} is the primary already: the change of roles continues`)
  await follow(switching)
}

async function demoteAndPromote(switching: Switching): Promise<void> {
  const { from, io, say, shares, to, yes } = switching
  await checkSides(switching, say)
  // Before anything changes: wrong shares must not be found when no server takes writes.
  const token = await operationToken(to, shares)
  say(`An operation token of ${to.target.url.origin} was made from the key shares`)
  const { fields } = await drStatus(to)
  try {
    await confirm(from, `demote this primary and promote its secondary at ${to.target.url.origin}`, yes, io)
    await requestChange(from, 'primary/demote', { secondary_id: fields.text('secondary_id') }, silent(io))
  } catch (error) {
    await removeOperationToken(to, token).catch(() => undefined)
    throw error
  }
  say(`${from.target.url.origin} is demoted: it takes no writes, and its secondary has acknowledged all of them`)
  await promoteNow(switching, token)
}

/** The answers of the server to a change say that it may take a while: here it is waited for. */
function silent(io: CommandIo): CommandIo {
  return { ...io, out: () => undefined, err: () => undefined }
}

async function promoteNow(switching: Switching, token: string): Promise<void> {
  const { io, say, to } = switching
  try {
    say(`Both servers have the same entries at position ${await untilEqual(switching)}`)
  } catch (error) {
    await removeOperationToken(to, token).catch(() => undefined)
    throw error
  }
  await promoteOnce(to, token, { force: false, 'primary-cluster-addr': switching['primary-cluster-addr'] }, silent(io))
  const { fields } = await drStatus(to)
  const state = fields.text('state')
  if (state !== 'running')
    throw new CommandError(`promoted, but it takes no writes, its state is "${shownName(state)}"`)
  await requireCore(to, { path: 'sys/health' })
  say(`${to.target.url.origin} is promoted and serves as the primary of epoch ${fields.number('epoch')}`)
}

/** The old primary follows the new one. The activation token is sealed to its key, so it needs no way to the API of the new one. */
async function follow({ from, id, io, say, shares, to }: Switching): Promise<void> {
  const key = await requireCore(from, { method: 'PUT', path: `${DR}/secondary/generate-public-key` })
  const publicKey = fieldsOf(key.fields.value('data')).text('secondary_public_key')
  const body = { id, secondary_public_key: publicKey }
  const issued = await requireCore(to, { method: 'PUT', path: `${DR}/primary/secondary-token`, body })
  const token = fieldsOf(issued.fields.value('data')).text('token')
  if (token === '') throw new CommandError(`${to.target.url.origin} returned no activation token`)
  printWarningLines(issued.fields, io)
  await joinAgain(from, { token }, shares, silent(io))
  say(`${from.target.url.origin} has a new primary, which knows it as "${shownName(id)}"`)
  await untilFollowing(from, io)
  say(`${from.target.url.origin} follows ${to.target.url.origin}`)
}

/** What a step that failed has left, and the next command. */
async function stateOf({ from, to }: Sides): Promise<string> {
  const [a, b] = await Promise.all([modeOf(from), modeOf(to)])
  const [old, next] = [from.target.url.origin, to.target.url.origin]
  return `State: ${old} is ${a}; ${next} is ${b}.\n${nextOf(a, b, old, next)}\n`
}

function nextOf(from: string, to: string, old: string, next: string): string {
  if (from.startsWith('primary (running)')) {
    return `Roles have not changed, ${old} takes writes. Run the same command again when the cause is removed.`
  }
  if (to.startsWith('primary')) {
    return `${next} takes writes, send callers there. The same command continues: ${old} joins it as a secondary.`
  }
  if (from.startsWith('secondary') && to.startsWith('secondary')) {
    return [
      `No server takes writes. The same command continues: it promotes ${next}.`,
      `To go back instead: "outpost operator dr failover" at ${old}, which makes it the primary again; then`,
      `"outpost operator dr token" there and "outpost operator dr join -shares-file" at ${next}.`,
    ].join('\n')
  }
  if (from.startsWith('secondary')) {
    return [
      `${old} takes no writes. The same command continues as soon as ${next} answers.`,
      `If ${next} is lost and was not promoted: "outpost operator dr failover" at ${old} makes it the primary again.`,
    ].join('\n')
  }
  return 'Look at "outpost operator dr status" of both servers, then run the same command again: it continues where it was.'
}

async function modeOf(core: Sides['from']): Promise<string> {
  try {
    const { fields } = await drStatus(core)
    return `${shownName(fields.text('mode'))} (${shownName(fields.text('state'))})`
  } catch (error) {
    return `in an unknown state (${messageOf(error)})`
  }
}
