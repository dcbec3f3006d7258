/** `outpost entity list|read|write|delete`, and the same commands for groups, which `group.ts` exports. */
import { coreOf, coreOptions, requireResponse, sendRequest } from '../core/core-access.ts'
import { fieldOption, formatOption, printKeys, printSecret, printWriteResult } from '../core/secret-output.ts'
import { type Command, CommandError, defineCommand } from '../framework/define-command.ts'
import { readData } from '../input/data-input.ts'

interface IdentityKind {
  readonly word: 'entity' | 'group'
  readonly article: 'an' | 'a'
  readonly plural: string
  readonly readSummary: string
  readonly deleteDetails: string
}

const ENTITIES: IdentityKind = {
  word: 'entity',
  article: 'an',
  plural: 'entities',
  readSummary: 'Show the aliases and groups and policies of an entity',
  deleteDetails: 'The tokens of the entity lose all permissions.',
}
export const GROUPS: IdentityKind = {
  word: 'group',
  article: 'a',
  plural: 'groups',
  readSummary: 'Show a group with its members and policies',
  deleteDetails: 'The members lose the policies of the group.',
}

const ID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/** The API path of an entity or group, which is given by name or by ID. */
export function identityPath(word: IdentityKind['word'], name: string): string {
  return ID.test(name) ? `identity/${word}/id/${name}` : `identity/${word}/name/${name}`
}

export function identityCommands({ article, deleteDetails, plural, readSummary, word }: IdentityKind): Command[] {
  const operands = { shown: 'NAME|ID', min: 1, max: 1, hint: `"outpost ${word} list" lists the names` }
  const list = defineCommand({
    name: `${word} list`,
    summary: `List ${plural}`,
    options: { ...formatOption, ...coreOptions },
    async run(values, _operands, io) {
      const answer = await sendRequest(coreOf(values, io), { path: `identity/${word}/name`, query: { list: true } })
      printKeys(answer, values, io)
      return 0
    },
  })
  const read = defineCommand({
    name: `${word} read`,
    summary: readSummary,
    options: { ...fieldOption, ...formatOption, ...coreOptions },
    operands,
    async run(values, [name = ''], io) {
      const answer = await sendRequest(coreOf(values, io), { path: identityPath(word, name) })
      if (!answer) throw new CommandError(`no ${word} ${JSON.stringify(name)}, check "outpost ${word} list"`)
      printSecret(answer, values, io)
      return 0
    },
  })
  const write = defineCommand({
    name: `${word} write`,
    summary: `Create or update ${article} ${word}`,
    details: `Example: outpost ${word} write ops policies=read-logs`,
    options: { ...fieldOption, ...formatOption, ...coreOptions },
    operands: { shown: 'NAME|ID [KEY=VALUE...]', min: 1, max: Number.POSITIVE_INFINITY },
    async run(values, [name = '', ...data], io) {
      const path = identityPath(word, name)
      const answer = await sendRequest(coreOf(values, io), { method: 'PUT', path, body: await readData(data) })
      printWriteResult(answer, `Data written to: ${path}`, values, io)
      return 0
    },
  })
  const remove = defineCommand({
    name: `${word} delete`,
    summary: `Delete ${article} ${word}`,
    details: deleteDetails,
    options: { ...coreOptions },
    operands,
    async run(values, [name = ''], io) {
      const path = identityPath(word, name)
      await requireResponse(coreOf(values, io), { method: 'DELETE', path })
      io.out(`Success! Data deleted (if it existed) at: ${path}\n`)
      return 0
    },
  })
  return [list, read, write, remove]
}

export const commands = identityCommands(ENTITIES)
