/** What commands about replication share: its paths, how it stands, and how an answer that only says so is shown. */
import { type Answer, fieldsOf } from '../../../output/answer.ts'
import { CommandError, type CommandIo } from '../../../framework/command-shape.ts'
import { askCore, type CoreAccess, requireCore } from '../../../core/core-access.ts'
import { isJsonObject } from '../../../output/exact-json.ts'

export const DR = 'sys/replication/dr'
export const GENERATION = `${DR}/secondary/generate-operation-token`

/** The members of the status. */
export async function drStatus(core: CoreAccess): Promise<{ readonly body: unknown; readonly fields: Answer }> {
  const { fields } = await requireCore(core, { path: `${DR}/status` })
  const body = fields.value('data')
  return { body, fields: fieldsOf(body) }
}

/** Sends what changes something, and shows what the server says of it. */
export async function change(core: CoreAccess, path: string, body: object, done: string, io: CommandIo): Promise<void> {
  const answer = await askCore(core, { method: 'PUT', path: `${DR}/${path}`, body })
  const warnings = answer?.fields.value('warnings')
  for (const warning of Array.isArray(warnings) ? warnings : []) io.err(`${String(warning)}\n`)
  io.out(`Success! ${done}\n`)
}

/** Rows of the other side: the secondaries of a primary, the primary of a secondary. */
export function otherSide(fields: Answer): readonly Answer[] {
  const rows = fields.value('secondaries') ?? fields.value('primaries')
  return Array.isArray(rows) ? rows.filter((row) => isJsonObject(row)).map((row) => fieldsOf(row)) : []
}

/** Throws CommandError unless the server is a secondary. */
export function requireSecondary(fields: Answer, core: CoreAccess): void {
  const mode = fields.text('mode')
  if (mode === 'secondary') return
  const where = core.target.url.origin
  const next = mode === 'bootstrapping' ? 'its first copy is not whole yet' : 'set OUTPOST_ADDR to the secondary'
  throw new CommandError(`${where} is no DR secondary, its mode is "${mode}": ${next}`)
}
