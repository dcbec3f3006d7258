/** From secrets to variables and files: names and texts. Values never show in what is thrown. */
import { CommandError } from '../command-shape.ts'
import { decidesWhatRuns } from './refused-variables.ts'
import type { SecretData } from './secret-versions.ts'

/** One secret with where it is from, for errors. */
export interface NamedData {
  readonly path: string
  readonly data: SecretData
}

export type Texts = ReadonlyMap<string, string>

const FILE_NAME = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$/

/** What names variables. */
export interface VariableNames {
  /** Before each key; empty for none. */
  readonly prefix: string
  /** What the command has without secrets: a key alone replaces none of it. */
  readonly environment: NodeJS.ProcessEnv
}

/**
 * A variable for each key: the prefix and the key in upper case, with `_` for everything but letters, digits and `_`, and in
 * front of a digit at the beginning. Throws CommandError for what cannot be a variable, for two keys of one name, for a name that
 * decides what runs and, without a prefix, for one that the environment has.
 */
export function variablesOf(secrets: readonly NamedData[], { environment, prefix }: VariableNames): Texts {
  // A name in small letters means the same to many programs.
  const taken = new Set(prefix === '' ? Object.keys(environment).map((name) => name.toUpperCase()) : [])
  return collected(secrets, (key) => {
    const name = (prefix + key).toUpperCase().replaceAll(/[^A-Z0-9_]/g, '_')
    const variable = /^\d/.test(name) ? `_${name}` : name
    const why = decidesWhatRuns(variable)
      ? 'which decides what programs run'
      : taken.has(variable)
        ? 'which the environment of the command has already'
        : undefined
    if (why === undefined) return variable
    throw new CommandError(
      `the key ${JSON.stringify(key)} would set ${variable}, ${why}: give ${prefix === '' ? '' : 'another '}-env-prefix`,
    )
  })
}

/** A file for each key, named as the key is. Throws CommandError for what cannot be a name of a file, and for two of one name. */
export function filesOf(secrets: readonly NamedData[]): Texts {
  return collected(secrets, (key) => {
    if (FILE_NAME.test(key)) return key
    throw new CommandError(`the key ${JSON.stringify(key)} is no name of a file: letters, digits, "_", "-" and "." are`)
  })
}

function collected(secrets: readonly NamedData[], nameOf: (key: string) => string): Texts {
  const texts = new Map<string, string>()
  const from = new Map<string, string>()
  for (const { data, path } of secrets) {
    for (const [key, value] of Object.entries(data)) {
      const name = nameOf(key)
      const where = `${JSON.stringify(key)} of ${path}`
      const other = from.get(name)
      if (other !== undefined) throw new CommandError(`${other} and ${where} would both be ${name}`)
      from.set(name, where)
      texts.set(name, textOf(value, where))
    }
  }
  return texts
}

/** Texts as they are, nothing for null, everything else as JSON. */
function textOf(value: unknown, where: string): string {
  const text = typeof value === 'string' ? value : value === null ? '' : JSON.stringify(value)
  if (text.includes('\0')) throw new CommandError(`the value of ${where} has a zero byte in it, which no program takes`)
  return text
}
