/** From secrets to variables and files: names and texts. Values never show in what is thrown. */
import { CommandError } from '../command-shape.ts'
import type { SecretData } from './secret-versions.ts'

/** One secret with where it is from, for errors. */
export interface NamedData {
  readonly path: string
  readonly data: SecretData
}

export type Texts = ReadonlyMap<string, string>

/** What programs are loaded or started by: who may write a secret must not choose what runs. */
const LOADED_BY = new RegExp(
  [
    'LD_.*|DYLD_.*|GCONV_PATH|GLIBC_TUNABLES|LOCPATH|PATH|IFS|ENV|BASH_ENV|BASH_FUNC_.*|SHELLOPTS|BASHOPTS|PS4|PROMPT_COMMAND|ZDOTDIR',
    'NODE_OPTIONS|NODE_PATH|PYTHON(?:PATH|STARTUP|HOME|USERBASE|BREAKPOINT)|PERL5?(?:LIB|OPT|DB)|RUBY(?:LIB|OPT)|LUA_(?:INIT|C?PATH).*',
    'JAVA_TOOL_OPTIONS|JDK_JAVA_OPTIONS|_JAVA_OPTIONS|CLASSPATH|DOTNET_STARTUP_HOOKS|COR(?:ECLR)?_PROFILER.*|PHPRC|PHP_INI_SCAN_DIR',
    'OPENSSL_(?:CONF|ENGINES|MODULES)|GIT_.*|SSH_ASKPASS',
  ]
    .map((names) => `^(?:${names})$`)
    .join('|'),
)
const FILE_NAME = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$/

/**
 * A variable for each key: the prefix and the key in upper case, with `_` for everything but letters, digits and `_`, and in
 * front of a digit at the beginning. Throws CommandError for what cannot be a variable, and for two keys of one name.
 */
export function variablesOf(secrets: readonly NamedData[], prefix: string): Texts {
  return collected(secrets, (key) => {
    const name = (prefix + key).toUpperCase().replaceAll(/[^A-Z0-9_]/g, '_')
    const variable = /^\d/.test(name) ? `_${name}` : name
    if (LOADED_BY.test(variable)) {
      throw new CommandError(
        `the key ${JSON.stringify(key)} would set ${variable}, which decides what programs run: give -env-prefix`,
      )
    }
    return variable
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
