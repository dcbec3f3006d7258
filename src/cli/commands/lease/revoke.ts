/** `outpost lease revoke`. */
import { cleanPath } from '../../core/core-access.ts'
import { defineCommand } from '../../framework/command-shape.ts'
import { flag, UsageError } from '../../framework/options.ts'
import { askCore, type CoreRequest, coreOf, coreOptions } from '../../core/core-access.ts'
import { printWarnings } from '../../core/secret-output.ts'

export const command = defineCommand({
  name: 'lease revoke',
  summary: 'Take back what leases stand for',
  details: [
    'With -prefix it is about all leases below that path, which needs sudo. With -force leases are',
    'forgotten whose engine cannot take them back: what they stand for may stay valid elsewhere.',
    '',
    'Example: outpost lease revoke -prefix database/creds/app',
  ].join('\n'),
  options: {
    prefix: flag('The argument is what IDs of leases begin with'),
    force: flag('Forget leases that cannot be taken back; needs -prefix'),
    sync: flag('Exit with 1 if a lease could not be revoked'),
    ...coreOptions,
  },
  operands: { shown: 'ID', min: 1, max: 1, missing: 'which lease?' },
  async run(values, [given = ''], io) {
    if (values.force && !values.prefix) throw new UsageError('-force needs -prefix')
    const answer = await askCore(coreOf(values, io), requestOf(values, given))
    if (values.force) io.out(`Success! Force revoked any leases with prefix: ${given}\n`)
    else if (values.prefix) io.out(`Success! Revoked any leases with prefix: ${given}\n`)
    else io.out(`Success! Revoked lease: ${given}\n`)
    if (answer) printWarnings(answer, io)
    return 0
  },
})

interface Values {
  readonly prefix: boolean
  readonly force: boolean
  readonly sync: boolean
}

function requestOf({ force, prefix, sync }: Values, given: string): CoreRequest {
  if (force) return { method: 'PUT', path: `sys/leases/revoke-force/${cleanPath(given)}` }
  if (prefix) return { method: 'PUT', path: `sys/leases/revoke-prefix/${cleanPath(given)}`, body: { sync } }
  return { method: 'PUT', path: 'sys/leases/revoke', body: { lease_id: given, sync } }
}
