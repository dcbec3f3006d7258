/** From secrets to variables and files: names and texts. Values never show in what is thrown. */
import { CommandError } from '../../framework/command-shape.ts'
import type { SecretData } from './secret-versions.ts'
import { faultOfVariable, variableOf, type VariableRules } from './variable-names.ts'

/** One secret with where it is from, for errors. */
export interface NamedData {
  readonly path: string
  readonly data: SecretData
}

export type Texts = ReadonlyMap<string, string>

const FILE_NAME = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$/

/**
 * The variables that the command line names, and those that are named after their key as far as they are allowed. Once the command
 * line names one, keys that are not allowed are left out; else they are an error. Throws CommandError for them, for a named key that is
 * missing or in two secrets, and for two keys of one variable.
 */
export function variablesOf(secrets: readonly NamedData[], rules: VariableRules): Texts {
  const named = [...rules.named].map(([name, key]) => ({ ...onlyOne(key, secrets), name }))
  const keys = new Set(rules.named.values())
  const others = valuesOf(secrets)
    .filter(({ key }) => !keys.has(key))
    .map((each) => ({ ...each, name: variableOf(each.key, rules.prefix) }))
  const allowed = others.filter(({ key, name, path }) => {
    const fault = faultOfVariable(name, rules)
    if (fault === undefined) return true
    if (fault === 'not allowed' && rules.named.size > 0) return false
    throw new CommandError(`the key ${JSON.stringify(key)} of ${path} would set ${name}, ${REMEDY[fault](key, name)}`)
  })
  return collected([...named, ...allowed])
}

/** A writer of secrets chooses the keys, and an operator may copy the remedy: a key that a shell would interpret is not in it. */
function keyInCommand(key: string): string {
  return FILE_NAME.test(key) ? key : 'KEY'
}

const REMEDY = {
  'not allowed': (key: string, variable: string) =>
    `which is not allowed: give -allow-env=${variable}, -env NAME=${keyInCommand(key)} or -env-prefix=TEXT`,
  'in the environment': (key: string, variable: string) =>
    `which the environment of the command has already: give -allow-env=${variable} to replace it, -env NAME=${keyInCommand(key)} or -env-prefix=TEXT`,
}

function onlyOne(key: string, secrets: readonly NamedData[]): NamedValue {
  const [first, second] = valuesOf(secrets).filter((each) => each.key === key)
  if (!first) throw new CommandError(`-env: no secret has the key ${JSON.stringify(key)}`)
  if (!second) return first
  throw new CommandError(`-env: ${first.path} and ${second.path} both have the key ${JSON.stringify(key)}`)
}

/** A file for each key, named as the key is. Throws CommandError for what cannot be a name of a file, and for two of one name. */
export function filesOf(secrets: readonly NamedData[]): Texts {
  const values = valuesOf(secrets)
  const wrong = values.find(({ key }) => !FILE_NAME.test(key))
  if (!wrong) return collected(values)
  const shown = JSON.stringify(wrong.key)
  throw new CommandError(`the key ${shown} is no name of a file: letters, digits, "_", "-" and "." are`)
}

interface NamedValue {
  /** Of the variable or of the file; the key until another is chosen. */
  readonly name: string
  readonly key: string
  /** Of the secret. */
  readonly path: string
  readonly value: unknown
}

function valuesOf(secrets: readonly NamedData[]): NamedValue[] {
  return secrets.flatMap(({ data, path }) =>
    Object.entries(data).map(([key, value]) => ({ name: key, key, path, value })),
  )
}

function collected(values: readonly NamedValue[]): Texts {
  const texts = new Map<string, string>()
  const from = new Map<string, string>()
  for (const { key, name, path, value } of values) {
    const where = `${JSON.stringify(key)} of ${path}`
    const other = from.get(name)
    if (other !== undefined) throw new CommandError(`${other} and ${where} would both be ${name}`)
    from.set(name, where)
    texts.set(name, textOf(value, where))
  }
  return texts
}

/** Texts as they are, nothing for null, everything else as JSON. */
function textOf(value: unknown, where: string): string {
  const text = typeof value === 'string' ? value : value === null ? '' : JSON.stringify(value)
  if (text.includes('\0')) throw new CommandError(`the value of ${where} has a zero byte in it, which no program takes`)
  return text
}
