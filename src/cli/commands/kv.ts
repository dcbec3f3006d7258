/** `outpost kv get|put|list|delete|undelete|destroy|rollback|diff|copy|move|enable-versioning`. */
import { parseDurationMs } from '../../platform/duration.ts'
import { sendRequest, cleanPath, coreOf, coreOptions, requireResponse, wrapOption } from '../core/core-access.ts'
import {
  cell,
  fieldOption,
  formatOf,
  formatOption,
  keysOf,
  keysTable,
  printAs,
  printSecret,
  printWarnings,
  printWriteResult,
  wideTable,
} from '../core/secret-output.ts'
import { CommandError, defineCommand } from '../framework/define-command.ts'
import { flag, integer, text, texts, UsageError } from '../framework/options.ts'
import { readData } from '../input/data-input.ts'
import { isJsonObject } from '../output/json.ts'
import { printRead, printVersion } from './kv/kv-output.ts'
import {
  casOption,
  mountOption,
  pathOperand,
  resolveKvPath,
  resolveSecretPath,
  resolveVersionedPath,
} from './kv/secret-path.ts'

const get = defineCommand({
  name: 'kv get',
  summary: 'Read a secret',
  details: [
    'If the version is deleted, prints its metadata only.',
    '',
    'Example: outpost kv get -field=password secret/app/db',
  ].join('\n'),
  options: {
    version: integer({
      placeholder: 'N',
      help: 'Version to read',
      fallback: 0,
      shownDefault: 'the latest version',
      min: 0,
      max: Number.MAX_SAFE_INTEGER,
    }),
    at: text({
      placeholder: 'TIME',
      help: 'Version at a timestamp or a duration before now',
      fallback: undefined,
      check: (value) =>
        instantOf(value, 0) === undefined
          ? 'must be a time such as 2026-01-31T12:00:00Z, a date, or a duration such as 5m'
          : undefined,
    }),
    ...mountOption,
    ...fieldOption,
    ...formatOption,
    ...wrapOption,
    ...coreOptions,
  },
  operands: pathOperand,
  async run(values, [given = ''], io) {
    const core = coreOf(values, io)
    const path = await resolveSecretPath({ ...core, headers: withoutWrapTtl(core.headers) }, given, values.mount)
    const query = {
      version: values.version > 0 ? values.version : undefined,
      at: values.at && instantOf(values.at, Date.now()),
    }
    const at = path.at('data')
    const answer = await sendRequest(core, { path: at, query })
    const ofVersion = values.version > 0 && path.isVersioned ? ` with version ${values.version}` : ''
    if (!answer) throw new CommandError(`no value found at ${at}${ofVersion}`)
    const isDeleted = answer.status === 404 && values.field !== undefined
    if (isDeleted) throw new CommandError(`no data found at ${at}: the version is deleted`)
    if (path.isVersioned && !answer.fields.value('wrap_info')) printRead(answer, at, values, io)
    else printSecret(answer, values, io)
    return 0
  },
})

/** RFC 3339; undefined unless `given` is a time, a date (its start in UTC) or a duration before `nowMs`. */
function instantOf(given: string, nowMs: number): string | undefined {
  const agoMs = parseDurationMs(given)
  if (agoMs !== undefined) return agoMs < 0 ? undefined : new Date(nowMs - agoMs).toISOString()
  if (/^\d{4}-\d\d-\d\d$/.test(given)) {
    return Number.isNaN(Date.parse(given)) ? undefined : `${given}T00:00:00Z`
  }
  return /^\d{4}-\d\d-\d\d[Tt ]/.test(given) && !Number.isNaN(Date.parse(given)) ? given : undefined
}

/** The response about the mount must not be wrapped. */
function withoutWrapTtl(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => name !== 'X-Vault-Wrap-TTL'))
}

const put = defineCommand({
  name: 'kv put',
  summary: 'Write a new version of a secret',
  details: [
    'KEY=VALUE sets a string, KEY=@FILE reads the value from a file, KEY=- from standard input. @FILE or -',
    'alone reads a JSON object with all data. The new version contains only these keys; "outpost kv patch"',
    'keeps the others. Other users of this machine can read arguments while the command runs.',
    '',
    'Example: outpost kv put secret/app/db user=app password=-',
  ].join('\n'),
  options: { ...casOption, ...mountOption, ...fieldOption, ...formatOption, ...coreOptions },
  operands: {
    shown: 'PATH KEY=VALUE...',
    min: 2,
    max: Number.POSITIVE_INFINITY,
  },
  async run(values, [path = '', ...operands], io) {
    const core = coreOf(values, io)
    const data = await readData(operands)
    const resolved = await resolveSecretPath(core, path, values.mount)
    const at = resolved.at('data')
    if (!resolved.isVersioned) {
      printWriteResult(
        await sendRequest(core, { method: 'PUT', path: at, body: data }),
        `Data written to: ${at}`,
        values,
        io,
      )
      return 0
    }
    const body = { data, options: values.cas >= 0 ? { cas: values.cas } : {} }
    printVersion(await requireResponse(core, { method: 'PUT', path: at, body }), at, values, io)
    return 0
  },
})

const list = defineCommand({
  name: 'kv list',
  summary: 'List secrets',
  details: 'The names of folders end with a slash.',
  options: { ...mountOption, ...formatOption, ...coreOptions },
  operands: { shown: '[PATH]', min: 0, max: 1 },
  async run(values, [path = ''], io) {
    const core = coreOf(values, io)
    const at = (await resolveKvPath(core, path, values.mount)).at('metadata')
    const answer = await sendRequest(core, { path: at, query: { list: true } })
    const keys = answer ? keysOf(answer) : []
    if (!answer || answer.status === 404) throw new CommandError(`no value found at ${at}`)
    const format = formatOf(values, io)
    printAs(format, keys, io, () => keysTable(keys))
    if (format === 'table') printWarnings(answer, io)
    return 0
  },
})

const versionOptions = {
  versions: texts('N,...', 'Version numbers'),
  ...mountOption,
  ...formatOption,
  ...coreOptions,
}

const softDelete = defineCommand({
  name: 'kv delete',
  summary: 'Delete versions of a secret',
  details: [
    'Marks the latest version, or the versions given by -versions, as deleted; "outpost kv undelete" restores them.',
    'In a mount without versioning, removes the secret permanently.',
  ].join('\n'),
  options: versionOptions,
  operands: pathOperand,
  async run(values, [path = ''], io) {
    const core = coreOf(values, io)
    const versions = versionsOf(values.versions)
    if (versions.length === 0) {
      const at = (await resolveSecretPath(core, path, values.mount)).at('data')
      const answer = await sendRequest(core, { method: 'DELETE', path: at })
      printWriteResult(answer, `Data deleted (if it existed) at: ${at}`, values, io)
      return 0
    }
    const at = (await resolveVersionedPath(core, path, values.mount)).at('delete')
    const answer = await sendRequest(core, { method: 'PUT', path: at, body: { versions } })
    printWriteResult(answer, `Data deleted (if it existed) at: ${at}`, values, io)
    return 0
  },
})

const versionCommand = (verb: 'undelete' | 'destroy', summary: string, details: string) =>
  defineCommand({
    name: `kv ${verb}`,
    summary,
    details,
    options: versionOptions,
    operands: pathOperand,
    async run(values, [path = ''], io) {
      const versions = versionsOf(values.versions)
      if (versions.length === 0) throw new UsageError('missing -versions, such as -versions=1,2')
      const core = coreOf(values, io)
      const at = (await resolveVersionedPath(core, path, values.mount)).at(verb)
      const answer = await sendRequest(core, { method: 'PUT', path: at, body: { versions } })
      printWriteResult(answer, `Data written to: ${at}`, values, io)
      return 0
    },
  })

const undelete = versionCommand('undelete', 'Undelete versions of a secret', 'Destroyed versions cannot be restored.')
const destroy = versionCommand(
  'destroy',
  'Permanently remove the data of versions of a secret',
  'The data cannot be restored. The metadata of the versions remains.',
)

/** Strings, as `vault kv` sends them. Throws UsageError. */
function versionsOf(given: readonly string[]): string[] {
  const versions = given.flatMap((value) => value.split(',')).map((version) => version.trim())
  const invalid = versions.find((version) => !/^\d{1,15}$/.test(version))
  if (invalid === undefined) return versions
  throw new UsageError(`option -versions: expected numbers such as 1,2, got ${JSON.stringify(invalid)}`)
}

const rollback = defineCommand({
  name: 'kv rollback',
  summary: 'Write an older version as the new version',
  details: 'Fails if the secret is written concurrently.\n\nExample: outpost kv rollback -version=2 secret/app/db',
  options: {
    version: integer({
      placeholder: 'N',
      help: 'Version to restore',
      fallback: 0,
      shownDefault: '',
      min: 1,
      max: Number.MAX_SAFE_INTEGER,
    }),
    ...mountOption,
    ...formatOption,
    ...coreOptions,
  },
  operands: pathOperand,
  async run(values, [path = ''], io) {
    const { version } = values
    if (version === 0) throw new UsageError('missing -version, such as -version=2')
    const core = coreOf(values, io)
    const at = (await resolveVersionedPath(core, path, values.mount)).at('data')
    const latest = await sendRequest(core, { path: at })
    if (!latest) throw new CommandError(`no value found at ${at}`)
    const cas = latest.fields.under('data').under('metadata').number('version')
    const older = await sendRequest(core, { path: at, query: { version } })
    const inner = older?.fields.under('data')
    const data = inner?.value('data')
    const metadata = inner?.under('metadata')
    // Includes a version with a deletion time in the future, which would expire again.
    const isDeleted = metadata?.text('deletion_time') !== '' || metadata.boolean('destroyed')
    if (!isJsonObject(data) || isDeleted) {
      const latestVersion = older ? '' : ` (latest is ${cas})`
      throw new CommandError(
        `version ${version} of ${at} ${older ? 'is deleted or destroyed' : `does not exist${latestVersion}`}`,
      )
    }
    const body = { data, options: { cas } }
    printVersion(await requireResponse(core, { method: 'PUT', path: at, body }), at, values, io)
    return 0
  },
})

const versionOption = (help: string, shownDefault: string) =>
  integer({ placeholder: 'N', help, fallback: 0, shownDefault, min: 0, max: Number.MAX_SAFE_INTEGER })

const diff = defineCommand({
  name: 'kv diff',
  summary: 'Compare two versions of a secret',
  details: [
    'Keys of nested objects are separated by slashes. Values are printed only with -values.',
    '',
    'Example: outpost kv diff -from=1 -to=3 secret/app/db',
  ].join('\n'),
  options: {
    from: versionOption('Earlier version', 'the version before -to'),
    to: versionOption('Later version', 'the latest version'),
    values: flag('Print the values'),
    ...mountOption,
    ...fieldOption,
    ...formatOption,
    ...coreOptions,
  },
  operands: pathOperand,
  async run(values, [path = ''], io) {
    const core = coreOf(values, io)
    const at = (await resolveVersionedPath(core, path, values.mount)).at('diff')
    const query = { from: values.from, to: values.to, values: values.values || undefined }
    const answer = await sendRequest(core, { path: at, query })
    if (!answer) throw new CommandError(`no value found at ${at}`)
    if (values.field !== undefined || formatOf(values, io) !== 'table') {
      printSecret(answer, values, io)
      return 0
    }
    const data = answer.fields.under('data')
    const changes = data.list('changes')
    const versions = `versions ${data.number('from')} and ${data.number('to')}`
    if (changes.length === 0) {
      io.err(`${versions} are identical\n`)
      return 0
    }
    const rows = changes.map((change) => [
      change.text('change'),
      cell(change.text('key').replace(/^\//, '')),
      ...(values.values ? [valueText(change.value('before')), valueText(change.value('after'))] : []),
    ])
    io.out(wideTable(['Change', 'Key', ...(values.values ? ['Before', 'After'] : [])], rows))
    return 0
  },
})

/** Empty for a version without the key. */
function valueText(value: unknown): string {
  return value === undefined ? '' : cell(value)
}

const copyCommand = (verb: 'copy' | 'move', summary: string) =>
  defineCommand({
    name: `kv ${verb}`,
    summary,
    details: [
      'Includes the metadata and all versions in one transaction. The destination must be in the same mount and',
      'must not exist.',
      '',
      `Example: outpost kv ${verb} secret/app/db secret/team/db`,
    ].join('\n'),
    options: { ...mountOption, ...fieldOption, ...formatOption, ...coreOptions },
    operands: {
      shown: 'SOURCE DESTINATION',
      min: 2,
      max: 2,
    },
    async run(values, [from = '', given = ''], io) {
      const core = coreOf(values, io)
      const source = await resolveVersionedPath(core, from, values.mount)
      const to = values.mount === undefined ? belowMount(given, source.mount) : cleanPath(given)
      const request = { method: 'POST', path: source.at(verb), body: { to } } as const
      printSecret(await requireResponse(core, request), values, io)
      return 0
    },
  })

/** Throws UsageError for a path in another mount. */
function belowMount(given: string, mount: string): string {
  const path = cleanPath(given)
  if (path.startsWith(`${mount}/`)) return path.slice(mount.length + 1)
  throw new UsageError(`the destination must be in the same mount: ${mount}/...`)
}

const copy = copyCommand('copy', 'Copy a secret with its versions')
const move = copyCommand('move', 'Move a secret with its versions')

const enableVersioning = defineCommand({
  name: 'kv enable-versioning',
  summary: 'Enable versioning for a KV mount',
  details: 'The current value of each secret becomes its version 1. This cannot be undone.',
  options: { ...coreOptions },
  operands: { shown: 'MOUNT', min: 1, max: 1, hint: '"outpost secrets list" lists the mounts' },
  async run(values, [mount = ''], io) {
    const at = cleanPath(mount)
    const request = { method: 'POST', path: `sys/mounts/${at}/tune`, body: { options: { version: '2' } } } as const
    const answer = await sendRequest(coreOf(values, io), request)
    io.out(`Success! Tuned the secrets engine at:  ${at}/\n`)
    if (answer) printWarnings(answer, io)
    return 0
  },
})

export const commands = [get, put, list, softDelete, undelete, destroy, rollback, diff, copy, move, enableVersioning]
