/** `outpost lease lookup|renew|revoke|list|count|tidy`. */
import { sendRequest, cleanPath, coreOf, coreOptions, type CoreRequest, requireResponse } from '../core/core-access.ts'
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
import { defineCommand } from '../framework/define-command.ts'
import { flag, text, UsageError } from '../framework/options.ts'

const lookup = defineCommand({
  name: 'lease lookup',
  summary: 'Show the properties of a lease',
  options: { ...fieldOption, ...formatOption, ...coreOptions },
  operands: { shown: 'ID', min: 1, max: 1 },
  async run(values, [id], io) {
    const request = { method: 'PUT', path: 'sys/leases/lookup', body: { lease_id: id } } as const
    printSecret(await requireResponse(coreOf(values, io), request), values, io)
    return 0
  },
})

const DURATION = { placeholder: 'DURATION', fallback: undefined }

const renew = defineCommand({
  name: 'lease renew',
  summary: 'Renew a lease',
  options: {
    increment: text({ ...DURATION, help: 'Requested TTL from now' }),
    i: text({ ...DURATION, help: 'Alias of -increment' }),
    ...fieldOption,
    ...formatOption,
    ...coreOptions,
  },
  operands: { shown: 'ID', min: 1, max: 1 },
  async run(values, [id], io) {
    const body = { lease_id: id, increment: values.increment ?? values.i }
    printSecret(
      await requireResponse(coreOf(values, io), { method: 'PUT', path: 'sys/leases/renew', body }),
      values,
      io,
    )
    return 0
  },
})

const revoke = defineCommand({
  name: 'lease revoke',
  summary: 'Revoke leases',
  details: [
    '-prefix revokes all leases below a path and requires sudo. -force removes leases even if the engine cannot',
    'revoke them: their credentials may stay valid in the external system.',
    '',
    'Example: outpost lease revoke -prefix cloud/creds/app',
  ].join('\n'),
  options: {
    prefix: flag('Revoke all leases with this prefix'),
    force: flag('Remove leases even if revocation fails; requires -prefix'),
    sync: flag('Fail if a revocation fails'),
    ...coreOptions,
  },
  operands: { shown: 'ID', min: 1, max: 1 },
  async run(values, [given = ''], io) {
    if (values.force && !values.prefix) throw new UsageError('option -force requires -prefix')
    const answer = await sendRequest(coreOf(values, io), requestOf(values, given))
    if (values.force) io.out(`Success! Force revoked any leases with prefix: ${given}\n`)
    else if (values.prefix) io.out(`Success! Revoked any leases with prefix: ${given}\n`)
    else io.out(`Success! Revoked lease: ${given}\n`)
    if (answer) printWarnings(answer, io)
    return 0
  },
})

interface RevokeOptions {
  readonly prefix: boolean
  readonly force: boolean
  readonly sync: boolean
}

function requestOf({ force, prefix, sync }: RevokeOptions, given: string): CoreRequest {
  if (force) return { method: 'PUT', path: `sys/leases/revoke-force/${cleanPath(given)}` }
  if (prefix) return { method: 'PUT', path: `sys/leases/revoke-prefix/${cleanPath(given)}`, body: { sync } }
  return { method: 'PUT', path: 'sys/leases/revoke', body: { lease_id: given, sync } }
}

/** Exit code of `vault list` for an empty list. */
const EMPTY_LIST = 2

const list = defineCommand({
  name: 'lease list',
  summary: 'List leases below a prefix',
  details: 'Example: outpost lease list cloud/creds/app',
  options: { ...formatOption, ...coreOptions },
  operands: { shown: '[PREFIX]', min: 0, max: 1 },
  async run(values, [prefix], io) {
    const path = prefix === undefined ? 'sys/leases/lookup' : `sys/leases/lookup/${cleanPath(prefix)}`
    const answer = await sendRequest(coreOf(values, io), { path, query: { list: 'true' } })
    const keys = answer ? keysOf(answer) : []
    const format = formatOf(values, io)
    if (keys.length === 0 && format === 'table') {
      io.err('No leases\n')
      return EMPTY_LIST
    }
    printAs(format, keys, io, () => keysTable(keys))
    return 0
  },
})

const count = defineCommand({
  name: 'lease count',
  summary: 'Count irrevocable leases by mount',
  options: { ...formatOption, ...coreOptions },
  async run(values, _operands, io) {
    const request = { path: 'sys/leases/count', query: { type: 'irrevocable' } }
    const { fields } = await requireResponse(coreOf(values, io), request)
    const data = fields.under('data')
    const counts = data.under('counts')
    const mounts = data.names('counts').toSorted()
    printAs(formatOf(values, io), fields.value('data'), io, () =>
      wideTable(
        ['Mount', 'Irrevocable leases'],
        [
          ...mounts.map((mount) => [cell(mount), cell(counts.number(mount))]),
          ['all', cell(data.number('lease_count'))],
        ],
      ),
    )
    return 0
  },
})

const tidy = defineCommand({
  name: 'lease tidy',
  summary: 'Start revoking expired leases',
  details: [
    'The server revokes expired leases at short intervals; this command starts a round now. It returns before the round',
    'is complete. The log of the server and "outpost lease count" show revocations that failed.',
  ].join('\n'),
  options: { ...formatOption, ...coreOptions },
  async run(values, _operands, io) {
    const answer = await requireResponse(coreOf(values, io), { method: 'POST', path: 'sys/leases/tidy' })
    printWriteResult(answer, 'Started the revocation of expired leases', values, io)
    return 0
  },
})

export const commands = [lookup, renew, revoke, list, count, tidy]
