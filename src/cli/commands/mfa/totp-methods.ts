/** `outpost mfa totp list|read|write|delete`: TOTP methods, as policies and login enforcements name them. */
import { CommandError, defineCommand } from '../../framework/command-shape.ts'
import { flag } from '../../framework/options.ts'
import { askCore, cleanPath, coreOf, coreOptions, requireCore } from '../../core/core-access.ts'
import { readData } from '../../input/data-input.ts'
import {
  fieldOption,
  formatOf,
  formatOption,
  keysOf,
  keysTable,
  printAs,
  printSecret,
  printWritten,
} from '../../core/secret-output.ts'

const METHODS = 'sys/mfa/method/totp'

/** Of a method, and with more segments what belongs to it. Throws UsageError. */
export function methodPath(name: string, ...more: readonly string[]): string {
  return [METHODS, cleanPath(name), ...more].join('/')
}

export const list = defineCommand({
  name: 'mfa totp list',
  summary: 'List the names of the TOTP methods',
  options: { ...formatOption, ...coreOptions },
  async run(values, _operands, io) {
    const answer = await askCore(coreOf(values, io), { path: METHODS, query: { list: true } })
    const keys = answer ? keysOf(answer) : []
    printAs(formatOf(values, io), keys, io, () => keysTable(keys))
    return 0
  },
})

export const read = defineCommand({
  name: 'mfa totp read',
  summary: 'Show the parameters of a TOTP method',
  options: { ...fieldOption, ...formatOption, ...coreOptions },
  operands: { shown: 'METHOD', min: 1, max: 1, missing: 'which method? "outpost mfa totp list" shows them' },
  async run(values, [name = ''], io) {
    const answer = await askCore(coreOf(values, io), { path: methodPath(name) })
    if (!answer) throw new CommandError(`there is no TOTP method ${name}`)
    printSecret(answer, values, io)
    return 0
  },
})

export const write = defineCommand({
  name: 'mfa totp write',
  summary: 'Make a TOTP method, or replace its parameters',
  details: [
    'issuer is required. Others: period (30), algorithm (SHA1), digits (6), skew (1), key_size (20),',
    'qr_size (200), max_validation_attempts (5), recovery_codes (0), require_confirmation (false).',
    'What is not given has its default again. Secrets keep the parameters they were generated with.',
    '',
    'Example: outpost mfa totp write phone issuer=Example require_confirmation=true recovery_codes=8',
  ].join('\n'),
  options: { ...fieldOption, ...formatOption, ...coreOptions },
  operands: {
    shown: 'METHOD [KEY=VALUE...]',
    min: 1,
    max: Number.POSITIVE_INFINITY,
    missing: 'which method? as in: outpost mfa totp write phone issuer=Example',
  },
  async run(values, [name = '', ...data], io) {
    const path = methodPath(name)
    const answer = await askCore(coreOf(values, io), { method: 'PUT', path, body: await readData(data) })
    printWritten(answer, `Data written to: ${path}`, values, io)
    return 0
  },
})

export const remove = defineCommand({
  name: 'mfa totp delete',
  summary: 'Remove a TOTP method, with the secrets of all entities',
  details: [
    'A method that a policy names in mfa_methods is not removed; the error names the policies. -force',
    'removes it, and their rules deny every request from then on.',
  ].join('\n'),
  options: { force: flag('Remove a method that policies name'), ...coreOptions },
  operands: { shown: 'METHOD', min: 1, max: 1, missing: 'which method?' },
  async run(values, [name = ''], io) {
    const path = methodPath(name)
    const query = values.force ? { force: true } : {}
    await requireCore(coreOf(values, io), { method: 'DELETE', path, query })
    io.out(`Success! Data deleted (if it existed) at: ${path}\n`)
    return 0
  },
})
