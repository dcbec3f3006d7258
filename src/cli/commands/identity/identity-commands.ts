/** `outpost entity …` and `outpost group …`: who callers are, by name or by ID. */
import { CommandError, defineCommand } from '../../framework/command-shape.ts'
import { askCore, coreOf, coreOptions, requireCore } from '../../core/core-access.ts'
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

type Kind = 'entity' | 'group'

const ID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
const NAMED = (kind: Kind) => ({
  shown: 'NAME|ID',
  min: 1,
  max: 1,
  missing: `which one? as in: outpost ${kind} read NAME`,
})

/** Of what is named by name or ID. */
export function pathOf(kind: Kind, name: string): string {
  return ID.test(name) ? `identity/${kind}/id/${name}` : `identity/${kind}/name/${name}`
}

function listCommand(kind: Kind, plural: string) {
  return defineCommand({
    name: `${kind} list`,
    summary: `List the names of all ${plural}`,
    options: { ...formatOption, ...coreOptions },
    operands: { shown: '', min: 0, max: 0, missing: '' },
    async run(values, _operands, io) {
      const answer = await askCore(coreOf(values, io), { path: `identity/${kind}/name`, query: { list: true } })
      const keys = answer ? keysOf(answer) : []
      printAs(formatOf(values, io), keys, io, () => keysTable(keys))
      return 0
    },
  })
}

function readCommand(kind: Kind, what: string) {
  return defineCommand({
    name: `${kind} read`,
    summary: `Show ${what}`,
    options: { ...fieldOption, ...formatOption, ...coreOptions },
    operands: NAMED(kind),
    async run(values, [name = ''], io) {
      const answer = await askCore(coreOf(values, io), { path: pathOf(kind, name) })
      if (!answer) throw new CommandError(`there is no ${kind} ${name}`)
      printSecret(answer, values, io)
      return 0
    },
  })
}

function writeCommand(kind: Kind, what: string) {
  return defineCommand({
    name: `${kind} write`,
    summary: `Make or change ${what}`,
    details: `Example: outpost ${kind} write ops policies=read-logs`,
    options: { ...fieldOption, ...formatOption, ...coreOptions },
    operands: {
      shown: 'NAME|ID [KEY=VALUE...]',
      min: 1,
      max: Number.POSITIVE_INFINITY,
      missing: `which one? as in: outpost ${kind} write NAME policies=…`,
    },
    async run(values, [name = '', ...data], io) {
      const body = await readData(data)
      const answer = await askCore(coreOf(values, io), { method: 'PUT', path: pathOf(kind, name), body })
      printWritten(answer, `Data written to: ${pathOf(kind, name)}`, values, io)
      return 0
    },
  })
}

function deleteCommand(kind: Kind, what: string) {
  return defineCommand({
    name: `${kind} delete`,
    summary: `Remove ${what}`,
    options: { ...coreOptions },
    operands: NAMED(kind),
    async run(values, [name = ''], io) {
      await requireCore(coreOf(values, io), { method: 'DELETE', path: pathOf(kind, name) })
      io.out(`Success! Data deleted (if it existed) at: ${pathOf(kind, name)}\n`)
      return 0
    },
  })
}

export const entityList = listCommand('entity', 'entities')
export const entityRead = readCommand('entity', 'an entity: its aliases, groups and policies')
export const entityWrite = writeCommand('entity', 'an entity')
export const entityDelete = deleteCommand('entity', 'an entity: its tokens have no rights any more')
export const groupList = listCommand('group', 'groups')
export const groupRead = readCommand('group', 'a group: its members and policies')
export const groupWrite = writeCommand('group', 'a group')
export const groupDelete = deleteCommand('group', 'a group')
