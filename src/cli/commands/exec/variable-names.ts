/**
 * Which keys of a secret become variables of a command, and how those are named.
 *
 * Who may write a secret must not choose what code a program runs, and no list of the variables that loaders, shells, interpreters
 * and build tools obey is complete. So a variable is set only if it is allowed: by its name on the command line (`-env`,
 * `-allow-env`, `-env-prefix`), else by the default: names whose last word says that the value is a credential. Programs read those
 * as data. docs/decisions/087 has the reasons.
 */
import { UsageError } from '../../framework/options.ts'

/** `DB_PASSWORD`, `AWS_ACCESS_KEY_ID`, `TOKEN`. */
const CREDENTIAL = /^(?:[A-Z0-9_]*_)?(?:PASSWORD|PASSWD|PASSPHRASE|USER|USERNAME|TOKEN|SECRET|KEY|KEY_ID)$/
const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]*$/
const PATTERN = /^[A-Za-z0-9_*]+$/

export interface VariableRules {
  /** Variables that the command line names, with their keys. */
  readonly named: ReadonlyMap<string, string>
  /** In front of each other key; empty for none. */
  readonly prefix: string
  /** Patterns for variables besides the default, with `*` for any characters. */
  readonly allowed: readonly string[]
  /** What the command has without secrets: a key replaces none of it unless the command line names the variable. */
  readonly environment: NodeJS.ProcessEnv
}

/** What is wrong with a variable; undefined for nothing. */
export type VariableFault = 'not allowed' | 'in the environment' | undefined

/** From `NAME=KEY` on the command line. Throws UsageError. */
export function namedVariables(given: readonly string[]): ReadonlyMap<string, string> {
  const named = new Map<string, string>()
  for (const each of given) {
    const at = each.indexOf('=')
    const [name, key] = [each.slice(0, Math.max(at, 0)), each.slice(at + 1)]
    if (!VARIABLE.test(name) || key === '') {
      throw new UsageError(`option -env: ${JSON.stringify(each)} is not NAME=KEY, as in -env DB_PASSWORD=password`)
    }
    if (named.has(name)) throw new UsageError(`option -env: the variable ${name} is given twice`)
    named.set(name, key)
  }
  return named
}

/** Throws UsageError for a pattern that no variable can match. */
export function allowedPatterns(given: readonly string[]): readonly string[] {
  const wrong = given.find((pattern) => !PATTERN.test(pattern))
  if (wrong === undefined) return given.map((pattern) => pattern.toUpperCase())
  throw new UsageError(`option -allow-env: ${JSON.stringify(wrong)} has other characters than letters, digits, _ and *`)
}

/** The prefix and the key in upper case, with `_` for everything but letters, digits and `_`, and in front of a first digit. */
export function variableOf(key: string, prefix: string): string {
  const name = (prefix + key).toUpperCase().replaceAll(/[^A-Z0-9_]/g, '_')
  return /^\d/.test(name) ? `_${name}` : name
}

/** Of a variable that is named after its key. */
export function faultOfVariable(variable: string, rules: VariableRules): VariableFault {
  if (rules.prefix !== '' || rules.allowed.includes(variable)) return undefined
  const matches = (pattern: string) => new RegExp(`^${pattern.replaceAll('*', '.*')}$`).test(variable)
  const isDefault = rules.named.size === 0 && CREDENTIAL.test(variable)
  if (!isDefault && !rules.allowed.some(matches)) return 'not allowed'
  // Many programs take a name in small letters for the same.
  const isTaken = Object.keys(rules.environment).some((name) => name.toUpperCase() === variable)
  return isTaken ? 'in the environment' : undefined
}
