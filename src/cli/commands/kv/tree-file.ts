/** The file that an export made, or a person: secrets by their names, looked at as a whole before anything is sent. */
import { statSync } from 'node:fs'
import { CommandError, type CommandIo } from '../../framework/command-shape.ts'
import { textOf } from '../../input/data-input.ts'
import { isJsonObject } from '../../output/exact-json.ts'
import { jsonIn, sourceName } from './json-file.ts'

/** It is in memory as text and as values. */
const BYTES_MAX = 256 << 20

/** A name, and `{"data": {...}, "custom_metadata": {...}}`. */
export type NamedSecret = readonly [name: string, secret: Readonly<Record<string, unknown>>]

/** Throws UsageError where it cannot be read, CommandError where it is too large. */
export async function contentOf(file: string): Promise<string> {
  const bytes = file === '-' ? 0 : (statSync(file, { throwIfNoEntry: false })?.size ?? 0)
  if (bytes > BYTES_MAX) {
    throw new CommandError(`${file} has more than ${BYTES_MAX} bytes: export and import folders of it one by one`)
  }
  return await textOf(file, BYTES_MAX)
}

/** Throws a CommandError that names the line and column, or the secret, that is wrong. */
export function secretsIn(text: string, file: string, io: CommandIo): NamedSecret[] {
  const value = jsonIn(text, file)
  const source = sourceName(file)
  // What the command writes, or the answer of the endpoint as it is.
  const tree = isJsonObject(value) && isJsonObject(value['data']) && !value['secrets'] ? value['data'] : value
  const secrets = isJsonObject(tree) ? tree['secrets'] : undefined
  if (!isJsonObject(tree) || !isJsonObject(secrets)) {
    throw new CommandError(`${source} holds no {"secrets": {NAME: {"data": {...}}}}`)
  }
  if (typeof tree['next'] === 'string') {
    io.err(`warning: ${source} is one page of an export, there were more behind it\n`)
  }
  return Object.entries(secrets).map(([name, secret]) => [name, checked(name, secret, source)])
}

function checked(name: string, secret: unknown, source: string): Readonly<Record<string, unknown>> {
  const say = (what: string) => new CommandError(`${source}: secret ${JSON.stringify(name)}: ${what}`)
  if (!isJsonObject(secret)) throw say('it must be an object with "data"')
  const { custom_metadata: custom, data, ...more } = secret
  if (!isJsonObject(data)) throw say('"data" must be an object')
  const unknown = Object.keys(more)[0]
  if (unknown !== undefined) throw say(`it has ${JSON.stringify(unknown)} beside "data" and "custom_metadata"`)
  if (custom !== undefined && custom !== null) {
    const isTexts = isJsonObject(custom) && Object.values(custom).every((each) => typeof each === 'string')
    if (!isTexts) throw say('"custom_metadata" must be an object of texts')
  }
  return secret
}
