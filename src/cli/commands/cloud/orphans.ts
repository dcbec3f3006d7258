/** `outpost cloud orphans`: AWS users that an engine created and that no lease owns. */
import { confirm, confirmOptions } from '../../core/confirmation.ts'
import { cleanPath, type CoreAccess, coreOf, coreOptions, requireResponse } from '../../core/core-access.ts'
import { cell, formatOf, formatOption, printAs, wideTable } from '../../core/secret-output.ts'
import { CommandError, type CommandIo, defineCommand } from '../../framework/define-command.ts'
import { flag, UsageError } from '../../framework/options.ts'
import { escapeLine } from '../../framework/terminal-escapes.ts'
import type { JsonFields } from '../../output/json.ts'
import { cloudMountOption } from './cloud-mount-option.ts'

/** User names that a confirmation lists. */
const SHOWN_MAX = 20

export const command = defineCommand({
  name: 'cloud orphans',
  summary: 'List or delete AWS users without a lease',
  details: [
    'Lists IAM users that carry the tag of the mount and that no lease owns. Such users remain after leases are',
    'removed by force or after an older snapshot is restored. Requires iam:ListUsers and iam:ListUserTags.',
    '',
    '-delete deletes these users, or only the given ones, with their keys and policies. The server searches again',
    'before it deletes: a user with a lease is never deleted. Asks for confirmation on a terminal.',
    'Exit code 1: a user could not be deleted.',
    '',
    'Examples:',
    '  outpost cloud orphans',
    '  outpost cloud orphans -delete vault-token-app-1764203500-x4f',
  ].join('\n'),
  options: {
    delete: flag('Delete the users'),
    ...cloudMountOption,
    ...confirmOptions,
    ...formatOption,
    ...coreOptions,
  },
  operands: { shown: '[USER...]', min: 0, max: Number.POSITIVE_INFINITY },
  async run(values, users, io) {
    if (users.length > 0 && !values.delete) throw new UsageError('USER requires -delete')
    const core = coreOf(values, io)
    const path = cleanPath(`${values.mount}/orphans`)
    const { fields } = await requireResponse(core, { path })
    const data = fields.under('data')
    if (values.delete) return deleteOrphans(core, { path, users, values, orphans: namesOf(data) }, io)
    printAs(formatOf(values, io), fields.value('data'), io, () => tableOf(data))
    for (const other of data.list('elsewhere')) {
      const [name, account] = [other.text('username'), other.text('account')].map(escapeLine)
      io.err(
        `warning: user ${name} of account ${account} was not completed: it needs the credentials of that account\n`,
      )
    }
    return 0
  },
})

function namesOf(data: JsonFields): string[] {
  return data.list('orphans').map((orphan) => orphan.text('username'))
}

function tableOf(data: JsonFields): string {
  const rows = data.list('orphans').map((orphan) => [cell(orphan.text('username')), cell(orphan.text('created_time'))])
  return rows.length === 0 ? 'No orphans\n' : wideTable(['User', 'Created'], rows)
}

interface OrphanDeletion {
  readonly path: string
  /** Given on the command line; empty for all. */
  readonly users: readonly string[]
  readonly orphans: readonly string[]
  readonly values: Parameters<typeof formatOf>[0] & { readonly mount: string; readonly yes: boolean }
}

async function deleteOrphans(core: CoreAccess, deletion: OrphanDeletion, io: CommandIo): Promise<number> {
  const { orphans, path, users, values } = deletion
  const unknown = users.filter((user) => !orphans.includes(user))
  if (unknown.length > 0) {
    const names = unknown.map((user) => JSON.stringify(user)).join(', ')
    throw new CommandError(`not an orphan of ${values.mount}: ${names}, nothing was deleted`)
  }
  const selected = users.length > 0 ? users : orphans
  if (selected.length === 0) {
    printAs(formatOf(values, io), { removed: [], failed: {} }, io, () => 'No orphans\n')
    return 0
  }
  const shown = selected.slice(0, SHOWN_MAX).map(escapeLine).join(', ')
  const more = selected.length > SHOWN_MAX ? ` and ${selected.length - SHOWN_MAX} more` : ''
  await confirm(core, `delete ${selected.length} AWS users: ${shown}${more}`, values.yes, io)
  // The names that were confirmed: the server searches again, and more orphans may exist by then.
  const body = { remove: true, usernames: selected }
  const { fields } = await requireResponse(core, { method: 'POST', path, body })
  const data = fields.under('data')
  const removed = data.value('removed')
  printAs(formatOf(values, io), fields.value('data'), io, () =>
    (Array.isArray(removed) ? removed : []).map((user) => `Deleted ${cell(user)}\n`).join(''),
  )
  const failed = data.names('failed').toSorted()
  for (const user of failed) {
    io.err(`cannot delete ${escapeLine(user)}: ${escapeLine(data.under('failed').text(user))}\n`)
  }
  return failed.length > 0 ? 1 : 0
}
