/** `outpost quota list|read|write|delete`: rate limits of requests for secrets. */
import { cleanPath, coreOf, coreOptions, requireResponse, sendRequest } from '../core/core-access.ts'
import { fieldOption, formatOption, printKeys, printSecret, printWriteResult } from '../core/secret-output.ts'
import { CommandError, defineCommand } from '../framework/define-command.ts'
import { UsageError } from '../framework/options.ts'
import { readData } from '../input/data-input.ts'

const RULES = 'sys/quotas/rate-limit'
const nameOperand = { shown: 'NAME', min: 1, max: 1, hint: '"outpost quota list" lists the names' }

/** Throws UsageError for a name that would be another path. */
function rulePath(name: string): string {
  if (name.includes('/')) throw new UsageError(`invalid quota name ${JSON.stringify(name)}: "/" is not allowed`)
  return cleanPath(`${RULES}/${name}`)
}

const list = defineCommand({
  name: 'quota list',
  summary: 'List rate limit quotas',
  details: 'Settings of all quotas, such as exempt paths: outpost read sys/quotas/config',
  options: { ...formatOption, ...coreOptions },
  async run(values, _operands, io) {
    const answer = await sendRequest(coreOf(values, io), { path: RULES, query: { list: true } })
    printKeys(answer, values, io, 'No quotas\n')
    return 0
  },
})

const read = defineCommand({
  name: 'quota read',
  summary: 'Show a rate limit quota',
  options: { ...fieldOption, ...formatOption, ...coreOptions },
  operands: nameOperand,
  async run(values, [name = ''], io) {
    const answer = await sendRequest(coreOf(values, io), { path: rulePath(name) })
    if (!answer) throw new CommandError(`no quota ${JSON.stringify(name)}, check "outpost quota list"`)
    printSecret(answer, values, io)
    return 0
  },
})

const write = defineCommand({
  name: 'quota write',
  summary: 'Create or replace a rate limit quota',
  details: [
    'Limits the rate of requests for secrets; requests above it are refused with status 429. Omitted settings are',
    'reset to their defaults.',
    '',
    '  rate            requests per interval, required',
    '  interval        length of the interval, default 1s',
    '  block_interval  how long a client above the rate is blocked, default 0',
    '  path            path of a mount or below one; a trailing * matches a prefix; default all paths',
    '  group_by        ip: one limit per client address (default); none: one limit for all clients',
    '',
    'Example: outpost quota write logins rate=5 interval=1s path=auth/userpass/login/*',
  ].join('\n'),
  options: { ...fieldOption, ...formatOption, ...coreOptions },
  operands: { shown: 'NAME KEY=VALUE...', min: 2, max: Number.POSITIVE_INFINITY },
  async run(values, [name = '', ...data], io) {
    const path = rulePath(name)
    const answer = await sendRequest(coreOf(values, io), { method: 'PUT', path, body: await readData(data) })
    printWriteResult(answer, `Wrote quota: ${name}`, values, io)
    return 0
  },
})

const remove = defineCommand({
  name: 'quota delete',
  summary: 'Delete a rate limit quota',
  options: { ...coreOptions },
  operands: nameOperand,
  async run(values, [name = ''], io) {
    await requireResponse(coreOf(values, io), { method: 'DELETE', path: rulePath(name) })
    io.out(`Success! Deleted quota (if it existed): ${name}\n`)
    return 0
  },
})

export const commands = [list, read, write, remove]
