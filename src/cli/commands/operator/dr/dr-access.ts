/** Shared by the commands for DR replication: API paths, requests, rounded times. */
import { shortDuration } from '../../../../platform/duration.ts'
import { sendRequest, type CoreAccess, requireResponse, STATUS_TIMEOUT_MS } from '../../../core/core-access.ts'
import { CommandError, type CommandIo } from '../../../framework/define-command.ts'
import { escapeLine } from '../../../framework/terminal-escapes.ts'
import { type JsonFields, fieldsOf, isJsonObject } from '../../../output/json.ts'

export const DR = 'sys/replication/dr'
export const GENERATION = `${DR}/secondary/generate-operation-token`

/** The replication status. */
export async function drStatus(core: CoreAccess): Promise<{ readonly body: unknown; readonly fields: JsonFields }> {
  const { fields } = await requireResponse(core, { path: `${DR}/status`, headTimeoutMs: STATUS_TIMEOUT_MS })
  const body = fields.value('data')
  return { body, fields: fieldsOf(body) }
}

/** Sends a change, prints warnings to stderr and success to stdout. Throws CommandError. */
export async function change(core: CoreAccess, path: string, body: object, done: string, io: CommandIo): Promise<void> {
  await requestChange(core, path, body, io)
  io.out(`Success! ${done}\n`)
}

/** As `change`, without the success message. */
export async function requestChange(core: CoreAccess, path: string, body: object, io: CommandIo): Promise<void> {
  const answer = await sendRequest(core, { method: 'PUT', path: `${DR}/${path}`, body })
  if (answer) printWarningLines(answer.fields, io)
}

/** Warnings of a response or of the status. */
export function warningsOf(fields: JsonFields): readonly string[] {
  const warnings = fields.value('warnings')
  return Array.isArray(warnings) ? warnings.map(String) : []
}

export function printWarningLines(fields: JsonFields, io: CommandIo): void {
  for (const warning of warningsOf(fields)) io.err(`warning: ${escapeLine(warning)}\n`)
}

/** The peers in the status: the secondaries of a primary, or the primary of a secondary. */
export function peersOf(fields: JsonFields): readonly JsonFields[] {
  const rows = fields.value('secondaries') ?? fields.value('primaries')
  return Array.isArray(rows) ? rows.filter((row) => isJsonObject(row)).map((row) => fieldsOf(row)) : []
}

/** Throws CommandError unless the server is a secondary. */
export function requireSecondary(fields: JsonFields, core: CoreAccess): void {
  const mode = fields.text('mode')
  if (mode === 'secondary') return
  const where = core.target.url.origin
  const next = mode === 'bootstrapping' ? 'its initial sync is not complete' : 'set OUTPOST_ADDR to the secondary'
  throw new CommandError(`${where} is not a DR secondary (mode "${mode}"): ${next}`)
}

/** The source in the value of an option with a file. */
export function fileSource(file: string | undefined): string | undefined {
  return file === undefined || file === '-' ? file : `@${file}`
}

const SECOND_MS = 1000
const HOUR_MS = 3_600_000
const MINUTE_MS = 60_000

/** Whole seconds; from one hour on, whole minutes: `2s`, `1m30s`, `5h12m`. */
export function roundedDuration(ms: number): string {
  const unitMs = Math.abs(ms) >= HOUR_MS ? MINUTE_MS : SECOND_MS
  return shortDuration(Math.round(ms / unitMs) * unitMs)
}

/** Milliseconds below one second: `35ms`, `-12s`. */
export function roundedSkew(ms: number): string {
  return Math.abs(ms) < SECOND_MS ? shortDuration(Math.round(ms)) : roundedDuration(ms)
}
