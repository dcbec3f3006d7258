/** `outpost kv get`. */
import { CommandError, defineCommand } from '../command-shape.ts'
import { integer, text } from '../options.ts'
import { askCore, coreOf, coreOptions, wrapOption } from '../secrets/core-access.ts'
import { fieldOption, formatOption, printSecret } from '../secrets/secret-output.ts'
import { printRead } from './kv-output.ts'
import { MISSING_PATH, mountOption, secretPlace } from './place.ts'

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
      help: 'The version that was the newest then, as in 2026-01-31T12:00:00Z',
      fallback: undefined,
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
    const query = { version: values.version > 0 ? values.version : undefined, at: values.at }
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

/** What is asked about the mount is for us. */
function withoutWrap(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => name !== 'X-Vault-Wrap-TTL'))
}
