/** `outpost kv patch`. */
import { CommandError, type CommandIo, defineCommand } from '../../framework/command-shape.ts'
import { RefusedByAgent } from '../../client/http-client.ts'
import { choice, texts, UsageError } from '../../framework/options.ts'
import {
  askCore,
  type CoreAccess,
  type CoreAnswer,
  coreOf,
  coreOptions,
  MERGE_PATCH,
  requireCore,
} from '../../core/core-access.ts'
import { readData } from '../../input/data-input.ts'
import { isJsonObject } from '../../output/exact-json.ts'
import { fieldOption, formatOption } from '../../core/secret-output.ts'
import { printVersion } from './kv-output.ts'
import { mountOption, versionedPlace } from './secret-path.ts'
import { casOption } from './put.ts'

export const command = defineCommand({
  name: 'kv patch',
  summary: 'Change parts of a secret, as a new version',
  details: [
    'What is not named stays as it is. Data is given as to "outpost kv put". A token that may not',
    'patch, but read and write, does it in two steps (-method=rw), which fail when somebody else',
    'writes in between.',
    '',
    'Example: outpost kv patch -remove-data=old secret/app/db password=-',
  ].join('\n'),
  options: {
    'remove-data': texts('KEY', 'A key to remove'),
    method: choice({ placeholder: 'HOW', help: 'In one step, or by reading and writing', choices: ['patch', 'rw'] }),
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
    missing: 'what shall change? as in: outpost kv patch secret/app/db user=app',
  },
  async run(values, [path = '', ...operands], io) {
    const core = coreOf(values, io)
    const removed = values['remove-data'].flatMap((list) => list.split(',')).filter(Boolean)
    if (operands.length === 0 && removed.length === 0)
      throw new UsageError('what shall change? give KEY=VALUE or -remove-data')
    const data = await readData(operands)
    const at = (await versionedPlace(core, path, values.mount)).at('data')
    const change = { at, data, removed, cas: values.cas }
    const answer =
      values.method === 'rw' ? await readAndWrite(core, change) : await patched(core, change, values.method, io)
    printVersion(answer, at, values, io)
    return 0
  },
})

interface Change {
  readonly at: string
  readonly data: Readonly<Record<string, unknown>>
  readonly removed: readonly string[]
  readonly cas: number
}

async function patched(
  core: CoreAccess,
  change: Change,
  method: 'patch' | undefined,
  io: CommandIo,
): Promise<CoreAnswer> {
  const { at, cas, data, removed } = change
  const nulls = removed.map((key) => [key, null] as const)
  const options = cas > 0 ? { cas } : {}
  const body = { data: Object.fromEntries([...Object.entries(data), ...nulls]), options }
  try {
    return await requireCore(core, { method: 'PATCH', path: at, body, headers: MERGE_PATCH })
  } catch (error) {
    const isNotOffered = error instanceof RefusedByAgent && (error.status === 403 || error.status === 405)
    if (!isNotOffered || method === 'patch') throw error
    io.err('the token may not patch (capability "patch"): reading and writing instead, as -method=rw does\n')
    return await readAndWrite(core, change)
  }
}

async function readAndWrite(core: CoreAccess, { at, cas, data, removed }: Change): Promise<CoreAnswer> {
  const before = await askCore(core, { path: at })
  if (!before) throw new CommandError(`no value found at ${at}`)
  const inner = before.fields.under('data')
  const old = inner.value('data')
  if (!isJsonObject(old)) throw new CommandError(`no data found at ${at}: the newest version is deleted`)
  const kept = [...Object.entries(old), ...Object.entries(data)].filter(([key]) => !removed.includes(key))
  const version = inner.under('metadata').number('version')
  const body = { data: Object.fromEntries(kept), options: { cas: cas >= 0 ? cas : version } }
  return requireCore(core, { method: 'PUT', path: at, body })
}
