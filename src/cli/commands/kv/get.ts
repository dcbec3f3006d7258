/** `outpost kv get`. */
import { parseDurationMs } from '../../../platform/duration.ts'
import { CommandError, defineCommand } from '../../framework/command-shape.ts'
import { integer, text } from '../../framework/options.ts'
import { askCore, coreOf, coreOptions, wrapOption } from '../../core/core-access.ts'
import { fieldOption, formatOption, printSecret } from '../../core/secret-output.ts'
import { printRead } from './kv-output.ts'
import { MISSING_PATH, mountOption, secretPlace } from './secret-path.ts'

export const command = defineCommand({
  name: 'kv get',
  summary: 'Print a secret',
  details: [
    'Of a deleted version there is only what is known of it.',
    '',
    'Example: outpost kv get -field=password secret/app/db',
  ].join('\n'),
  options: {
    version: integer({
      placeholder: 'N',
      help: 'This version instead of the newest',
      fallback: 0,
      min: 0,
      max: Number.MAX_SAFE_INTEGER,
    }),
    at: text({
      placeholder: 'TIME',
      help: 'The newest version of then: 2026-01-31T12:00:00Z, 2026-01-31 (UTC), or 5m ago as 5m',
      fallback: undefined,
      check: (value) =>
        instantOf(value, 0) === undefined ? 'must be a time, a date, or a duration such as 5m' : undefined,
    }),
    ...mountOption,
    ...fieldOption,
    ...formatOption,
    ...wrapOption,
    ...coreOptions,
  },
  operands: { shown: 'PATH', min: 1, max: 1, missing: MISSING_PATH },
  async run(values, [path = ''], io) {
    const core = coreOf(values, io)
    const place = await secretPlace({ ...core, headers: withoutWrap(core.headers) }, path, values.mount)
    const query = {
      version: values.version > 0 ? values.version : undefined,
      at: values.at && instantOf(values.at, Date.now()),
    }
    const at = place.at('data')
    const answer = await askCore(core, { path: at, query })
    if (!answer) throw new CommandError(`no value found at ${at}`)
    const isGone = answer.status === 404 && values.field !== undefined
    if (isGone) throw new CommandError(`no data found at ${at}: this version is deleted`)
    if (place.isVersioned && !answer.fields.value('wrap_info')) printRead(answer, at, values, io)
    else printSecret(answer, values, io)
    return 0
  },
})

/** As RFC 3339; undefined for what is neither a time, a date (its beginning in UTC) nor a duration before `nowMs`. */
function instantOf(given: string, nowMs: number): string | undefined {
  const agoMs = parseDurationMs(given)
  if (agoMs !== undefined) return agoMs < 0 ? undefined : new Date(nowMs - agoMs).toISOString()
  if (/^\d{4}-\d\d-\d\d$/.test(given)) {
    return Number.isNaN(Date.parse(given)) ? undefined : `${given}T00:00:00Z`
  }
  return /^\d{4}-\d\d-\d\d[Tt ]/.test(given) && !Number.isNaN(Date.parse(given)) ? given : undefined
}

/** What is asked about the mount is for us. */
function withoutWrap(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => name !== 'X-Vault-Wrap-TTL'))
}
