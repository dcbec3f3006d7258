/** What commands about replication share: its paths, how it stands, and how an answer that only says so is shown. */
import { type Answer, fieldsOf } from '../../../output/answer.ts'
import { CommandError, type CommandIo } from '../../../framework/command-shape.ts'
import { askCore, type CoreAccess, requireCore } from '../../../core/core-access.ts'
import { isJsonObject } from '../../../output/exact-json.ts'
import { shownName } from '../../../framework/shown.ts'

export const DR = 'sys/replication/dr'
export const GENERATION = `${DR}/secondary/generate-operation-token`

/** The members of the status. */
export async function drStatus(core: CoreAccess): Promise<{ readonly body: unknown; readonly fields: Answer }> {
  const { fields } = await requireCore(core, { path: `${DR}/status` })
  const body = fields.value('data')
  return { body, fields: fieldsOf(body) }
}

/** Sends a change, prints warnings to stderr and success to stdout. Throws CommandError. */
export async function change(core: CoreAccess, path: string, body: object, done: string, io: CommandIo): Promise<void> {
  await requestChange(core, path, body, io)
  io.out(`Success! ${done}\n`)
}

/** The same without a success, which the caller confirms first. */
export async function requestChange(core: CoreAccess, path: string, body: object, io: CommandIo): Promise<void> {
  const answer = await askCore(core, { method: 'PUT', path: `${DR}/${path}`, body })
  if (answer) printWarningLines(answer.fields, io)
}

/** Of an answer or of the status. */
export function warningsOf(fields: Answer): readonly string[] {
  const warnings = fields.value('warnings')
  return Array.isArray(warnings) ? warnings.map(String) : []
}

export function printWarningLines(fields: Answer, io: CommandIo): void {
  for (const warning of warningsOf(fields)) io.err(`${shownName(warning)}\n`)
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
