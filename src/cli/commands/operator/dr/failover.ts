/**
 * `outpost operator dr failover`: the whole procedure, with a look before and behind each step, and a question before the one
 * that cannot be undone.
 */
import { type Answer, fieldsOf } from '../../../output/answer.ts'
import { CommandError, type CommandIo, defineCommand } from '../../../framework/command-shape.ts'
import { openResponse } from '../../../client/http-client.ts'
import { flag, UsageError } from '../../../framework/options.ts'
import { briefly, type CoreAccess, coreOf, coreOptions, requireCore } from '../../../core/core-access.ts'
import { isAnswered } from '../../../core/confirmation.ts'
import { shownName } from '../../../framework/shown.ts'
import { drStatus, otherSide, requireSecondary } from './dr-access.ts'
import { KeyShares, operationToken, removeOperationToken } from './operation-token.ts'
import { promoteOnce, promoteOptions } from './promote.ts'
import { roundedDuration } from './rounded.ts'
import { type Say, sayer } from './steps.ts'
import { messageOf } from '../../../../platform/errors.ts'
import { agentTarget } from '../../../client/agent-target.ts'

/** A primary that is down does not refuse a connection: its host is gone. */
const LOOK_MS = 3000
const WORD = 'promote'

const OPTIONS = {
  yes: flag('Promote without a question, for scripts'),
  ...promoteOptions,
  ...coreOptions,
}

export const command = defineCommand({
  name: 'operator dr failover',
  summary: 'Walk through a failover to this DR secondary, with checks between the steps',
  details: [
    'Looks at the secondary and whether its primary still answers, says what may be missing, makes an',
    'operation token from key shares of the primary, asks, promotes, and looks at what serves then. Nothing',
    'has changed before the question is answered; without a terminal to ask on it takes -yes. The primary',
    'must be down, or cut off from its callers: it is told, and takes no more writes.',
    '',
    'Example: outpost operator dr failover -yes - < shares.txt        key shares, a line each',
  ].join('\n'),
  options: OPTIONS,
  operands: { shown: '[SHARE|-]', min: 0, max: 1, missing: '' },
  async run(values, [given], io) {
    const mayAsk = process.getBuiltinModule('node:tty').isatty(0)
    if (!values.yes && !mayAsk) {
      throw new UsageError('a promotion cannot be undone: without a terminal to ask on, give -yes')
    }
    const core = coreOf(values, io)
    const say = sayer(io)
    await look(core, values.force, say)
    const token = await operationToken(core, new KeyShares(given, io))
    say('An operation token was made from key shares of the primary')
    if (!values.yes && !(await isConfirmed(io))) {
      await removeOperationToken(core, token)
      throw new CommandError('not promoted: the operation token is removed, and nothing has changed')
    }
    const beganAtMs = performance.now()
    await promoteOnce(core, token, values, io)
    await lookBehind(core, performance.now() - beganAtMs, say)
    return 0
  },
})

/** Throws CommandError where a promotion would be refused, or nothing could be made for it. */
async function look(core: CoreAccess, isForced: boolean, say: Say): Promise<void> {
  const { fields } = await drStatus(core)
  const where = core.target.url.origin
  if (fields.text('mode') === 'bootstrapping' && isForced) {
    say(`${where} has no whole copy of its primary: what is missing is lost (-force)`)
  } else {
    requireSecondary(fields, core)
    say(`${where} is a DR secondary: ${standing(fields)}`)
  }
  const { fields: seal } = await requireCore(core, { path: 'sys/seal-status' })
  if (seal.boolean('sealed')) {
    throw new CommandError(
      `${where} is sealed, nothing has changed; next: outpost operator unseal, with key shares of the primary`,
    )
  }
  say('It is unsealed: it has the key of its primary')
  const [primary] = otherSide(fields)
  say(await primaryFound(primary?.text('api_address') ?? '', fields))
}

function standing(fields: Answer): string {
  const trouble = fields.text('trouble')
  const isHeard = fields.text('state') === 'stream-wals'
  const silent = trouble === '' ? 'its primary is not heard' : `its primary is not heard (${shownName(trouble)})`
  return `${isHeard ? 'it follows its primary' : silent}, ${missing(fields)}`
}

/** What the primary may have committed that is not here. */
function missing(fields: Answer): string {
  const [entries, seconds] = [fields.value('lag_entries'), fields.value('lag_seconds')]
  if (typeof entries !== 'number') return 'it has not heard since its start how far that is'
  if (entries > 0) return `${entries} changes behind what that was last heard to have`
  const silent = typeof seconds === 'number' && seconds > 0 ? `, as of ${roundedDuration(seconds * 1000)} ago` : ''
  const sync = fields.text('sync') === 'on' ? '; commits waited for this secondary' : ''
  return `with everything that was heard of${silent}${sync}`
}

/** Whether callers may still reach the primary; asked without a token. */
async function primaryFound(api: string, fields: Answer): Promise<string> {
  if (fields.text('state') === 'stream-wals') {
    const planned = 'for a planned change use "outpost operator dr switch", which loses nothing'
    return `The primary ${shownName(api)} is alive, and will be told to take no more writes: ${planned}`
  }
  if (api === '') return 'The address of the primary is not known: make sure that no caller reaches it'
  try {
    const target = { ...agentTarget({}, 'secrets', api), token: undefined }
    const response = await openResponse(target, { path: '/v1/sys/health', signal: AbortSignal.timeout(LOOK_MS) })
    response.resume()
    return `The primary ${shownName(api)} answers from here (${response.statusCode ?? 0}), and its secondary does not hear it: keep callers from it`
  } catch (error) {
    return `The primary ${shownName(api)} does not answer from here: ${shownName(messageOf(error))}`
  }
}

async function isConfirmed(io: CommandIo): Promise<boolean> {
  io.err('The promotion cannot be undone: the primary is replaced, and what only it has is kept in a file there.\n')
  return isAnswered(WORD, io)
}

async function lookBehind(core: CoreAccess, ms: number, say: Say): Promise<void> {
  const { fields } = await drStatus(core)
  const state = fields.text('state')
  if (state !== 'running') {
    const by = fields.text('replaced_by')
    const why = by === '' ? '' : `: ${shownName(by)} was promoted, too, and is the primary; keep callers from here`
    throw new CommandError(`promoted, but it takes no writes, its state is "${shownName(state)}"${why}`)
  }
  await requireCore(core, { path: 'sys/health' })
  say(`It serves as the primary of epoch ${fields.number('epoch')}, ${Math.round(ms)} ms after the promotion began`)
  say(await tokenFound(core))
  const isOwed = fields.text('fence_notice') === 'owed'
  say(
    isOwed ? 'The replaced primary has not been told yet: that is tried each second' : 'The replaced primary was told',
  )
  say(
    'Next: move callers to it. When the old primary is back: "outpost operator dr demote" there, then\n' +
      '   "outpost operator dr token" here and "outpost operator dr join" there; other secondaries join with new tokens',
  )
}

async function tokenFound(core: CoreAccess): Promise<string> {
  if (core.target.token === undefined)
    return 'It has no token to read with: OUTPOST_TOKEN, of the replaced primary, would be looked up'
  try {
    const answer = await briefly(core, { path: 'auth/token/lookup-self' }, new AbortController().signal)
    const policies = fieldsOf(answer.fields.value('data')).value('policies')
    return `Your token of the replaced primary is good here${Array.isArray(policies) ? `, with ${policies.length} policies` : ''}`
  } catch (error) {
    return `Your token is not good here: ${shownName(messageOf(error))}`
  }
}
