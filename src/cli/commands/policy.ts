/** `outpost policy list|read|write|delete`. */
import { sendRequest, coreOf, coreOptions } from '../core/core-access.ts'
import { terminalSafe, cell, formatOf, formatOption, keysOf, printAs, printWriteResult } from '../core/secret-output.ts'
import { CommandError, defineCommand } from '../framework/define-command.ts'
import { textOf } from '../input/data-input.ts'

const list = defineCommand({
  name: 'policy list',
  summary: 'List policies',
  options: { ...formatOption, ...coreOptions },
  async run(values, _operands, io) {
    const answer = await sendRequest(coreOf(values, io), { path: 'sys/policies/acl', query: { list: true } })
    const keys = answer ? keysOf(answer) : []
    printAs(formatOf(values, io), keys, io, () => keys.map((key) => `${cell(key)}\n`).join(''))
    return 0
  },
})

const read = defineCommand({
  name: 'policy read',
  summary: 'Print a policy',
  details: 'Prints the document exactly as it was written.',
  options: { ...formatOption, ...coreOptions },
  operands: { shown: 'NAME', min: 1, max: 1 },
  async run(values, [name = ''], io) {
    const answer = await sendRequest(coreOf(values, io), { path: `sys/policies/acl/${name.trim().toLowerCase()}` })
    if (!answer) throw new CommandError(`no policy named ${JSON.stringify(name)}, check "outpost policy list"`)
    const text = answer.fields.under('data').text('policy')
    printAs(formatOf(values, io), { policy: text }, io, () =>
      terminalSafe(text === '' || text.endsWith('\n') ? text : `${text}\n`),
    )
    return 0
  },
})

const write = defineCommand({
  name: 'policy write',
  summary: 'Write a policy from a file',
  details: [
    'If the policy is invalid, reports the line and column of the error and changes nothing. To test a policy',
    'first, use "outpost policy check".',
    '',
    'Example: outpost policy write app app.hcl',
  ].join('\n'),
  options: { ...formatOption, ...coreOptions },
  operands: { shown: 'NAME FILE|-', min: 2, max: 2 },
  async run(values, [name = '', file = ''], io) {
    const body = { policy: await textOf(file) }
    const path = `sys/policies/acl/${name.trim().toLowerCase()}`
    const answer = await sendRequest(coreOf(values, io), { method: 'PUT', path, body })
    printWriteResult(answer, `Wrote policy: ${name.trim().toLowerCase()}`, values, io)
    return 0
  },
})

const remove = defineCommand({
  name: 'policy delete',
  summary: 'Delete a policy',
  details: 'All tokens with the policy lose its permissions immediately.',
  options: { ...formatOption, ...coreOptions },
  operands: { shown: 'NAME', min: 1, max: 1 },
  async run(values, [name = ''], io) {
    const path = `sys/policies/acl/${name.trim().toLowerCase()}`
    const answer = await sendRequest(coreOf(values, io), { method: 'DELETE', path })
    printWriteResult(answer, `Deleted policy (if it existed): ${name.trim().toLowerCase()}`, values, io)
    return 0
  },
})

export const commands = [list, read, write, remove]
