/** `outpost kv patch`. */
import { CommandError, type CommandIo, defineCommand } from '../../framework/define-command.ts'
import { AgentRefusal } from '../../client/http-client.ts'
import { choice, texts, UsageError } from '../../framework/options.ts'
import {
  sendRequest,
  type CoreAccess,
  type CoreResponse,
  coreOf,
  coreOptions,
  MERGE_PATCH,
  requireResponse,
} from '../../core/core-access.ts'
import { readData } from '../../input/data-input.ts'
import { isJsonObject } from '../../output/json.ts'
import { fieldOption, formatOption } from '../../core/secret-output.ts'
import { printVersion } from './kv-output.ts'
import { casOption, mountOption, resolveVersionedPath } from './secret-path.ts'

export const command = defineCommand({
  name: 'kv patch',
  summary: 'Update keys of a secret in a new version',
  details: [
    'Other keys do not change. Data is specified as for "outpost kv put". If the token lacks the capability',
    '"patch", the command reads and writes the secret (-method=rw), which fails if the secret is written',
    'concurrently.',
    '',
    'Example: outpost kv patch -remove-data=old secret/app/db password=-',
  ].join('\n'),
  options: {
    'remove-data': texts('KEY', 'Key to remove'),
    method: choice({
      placeholder: 'HOW',
      help: 'Update method; rw reads and then writes the secret',
      choices: ['patch', 'rw'],
    }),
    ...casOption,
    ...mountOption,
    ...fieldOption,
    ...formatOption,
    ...coreOptions,
  },
  operands: {
    shown: 'PATH [KEY=VALUE...]',
    min: 1,
    max: Number.POSITIVE_INFINITY,
  },
  async run(values, [path = '', ...operands], io) {
    const core = coreOf(values, io)
    const removed = values['remove-data'].flatMap((list) => list.split(',')).filter(Boolean)
    if (operands.length === 0 && removed.length === 0) throw new UsageError('missing KEY=VALUE or -remove-data KEY')
    const data = await readData(operands)
    const at = (await resolveVersionedPath(core, path, values.mount)).at('data')
    const change = { at, data, removed, cas: values.cas }
    const answer =
      values.method === 'rw' ? await readAndWrite(core, change) : await patch(core, change, values.method, io)
    printVersion(answer, at, values, io)
    return 0
  },
})

interface SecretPatch {
  readonly at: string
  readonly data: Readonly<Record<string, unknown>>
  readonly removed: readonly string[]
  readonly cas: number
}

async function patch(
  core: CoreAccess,
  change: SecretPatch,
  method: 'patch' | undefined,
  io: CommandIo,
): Promise<CoreResponse> {
  const { at, cas, data, removed } = change
  const nulls = removed.map((key) => [key, null] as const)
  const options = cas > 0 ? { cas } : {}
  const body = { data: Object.fromEntries([...Object.entries(data), ...nulls]), options }
  try {
    return await requireResponse(core, { method: 'PATCH', path: at, body, headers: MERGE_PATCH })
  } catch (error) {
    const isNotOffered = error instanceof AgentRefusal && (error.status === 403 || error.status === 405)
    if (!isNotOffered || method === 'patch') throw error
    io.err('the token lacks the capability "patch", falling back to -method=rw\n')
    return await readAndWrite(core, change)
  }
}

async function readAndWrite(core: CoreAccess, { at, cas, data, removed }: SecretPatch): Promise<CoreResponse> {
  const before = await sendRequest(core, { path: at })
  if (!before) throw new CommandError(`no value found at ${at}`)
  const inner = before.fields.under('data')
  const old = inner.value('data')
  if (!isJsonObject(old)) throw new CommandError(`no data found at ${at}: the latest version is deleted`)
  const kept = [...Object.entries(old), ...Object.entries(data)].filter(([key]) => !removed.includes(key))
  const version = inner.under('metadata').number('version')
  const body = { data: Object.fromEntries(kept), options: { cas: cas >= 0 ? cas : version } }
  return requireResponse(core, { method: 'PUT', path: at, body })
}
