/**
 * Secrets as environment variables and files: names and texts. Errors never contain values.
 *
 * A user who may write a secret must not control which code a program runs, and no list of the variables that loaders, shells,
 * interpreters and build tools interpret is complete. So a variable is set only if it is allowed: by name on the command line (`-env`,
 * `-allow-env`, `-env-prefix`), or because the last word of its name denotes a credential, which programs use as data
 * (docs/decisions/087).
 */
import { CommandError } from '../../framework/define-command.ts'
import { UsageError } from '../../framework/options.ts'
import { fieldsOf } from '../../output/json.ts'
import { type Credentials, credentialsOf } from '../cloud/credential-formats.ts'
import type { SecretData } from './secret-updates.ts'

/** The data of a secret and its path. */
export interface PathSecret {
  readonly path: string
  readonly data: SecretData
}

/** Variables or files by name. */
export type SecretTexts = ReadonlyMap<string, string>

const FILE_NAME = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$/

/**
 * The variables of `-env`, and one for each other allowed key. With `-env`, keys that are not allowed are omitted; otherwise they are an
 * error. Throws CommandError for them, for a key of `-env` that is missing or in two secrets, and for two keys with the same variable.
 */
export function variablesOf(secrets: readonly PathSecret[], rules: VariableRules): SecretTexts {
  const named = [...rules.named].map(([name, key]) => ({ ...onlyOne(key, secrets), name }))
  const keys = new Set(rules.named.values())
  const others = valuesOf(secrets)
    .filter(({ key }) => !keys.has(key))
    .map((each) => ({ ...each, name: variableOf(each.key, rules.prefix) }))
  const allowed = others.filter(({ key, name, path }) => {
    const fault = faultOfVariable(name, rules)
    if (fault === undefined) return true
    if (fault === 'not allowed' && rules.named.size > 0) return false
    throw new CommandError(`key ${JSON.stringify(key)} of ${path} would set ${name}, ${REMEDY[fault](key, name)}`)
  })
  return textsOf([...named, ...allowed])
}

/** An operator may copy the message into a shell, and the keys are chosen by writers of secrets: such a key is not shown. */
function keyInCommand(key: string): string {
  return FILE_NAME.test(key) ? key : 'KEY'
}

const REMEDY = {
  'not allowed': (key: string, variable: string) =>
    `which is not allowed: use -allow-env=${variable}, -env NAME=${keyInCommand(key)} or -env-prefix=TEXT`,
  'in the environment': (key: string, variable: string) =>
    `which is already in the environment: use -allow-env=${variable} to replace it, -env NAME=${keyInCommand(key)} or -env-prefix=TEXT`,
}

function onlyOne(key: string, secrets: readonly PathSecret[]): NamedValue {
  const [first, second] = valuesOf(secrets).filter((each) => each.key === key)
  if (!first) throw new CommandError(`option -env: no secret has the key ${JSON.stringify(key)}`)
  if (!second) return first
  throw new CommandError(`option -env: ${first.path} and ${second.path} both have the key ${JSON.stringify(key)}`)
}

/** A file for each key, with the name of the key. Throws CommandError for invalid file names and duplicate names. */
export function filesOf(secrets: readonly PathSecret[]): SecretTexts {
  const values = valuesOf(secrets)
  const invalid = values.find(({ key }) => !FILE_NAME.test(key))
  if (!invalid) return textsOf(values)
  throw new CommandError(
    `key ${JSON.stringify(invalid.key)} cannot be a file name: only letters, digits, "_", "-" and "." are allowed`,
  )
}

interface NamedValue {
  /** Name of the variable or file. */
  readonly name: string
  readonly key: string
  /** Path of the secret. */
  readonly path: string
  readonly value: unknown
}

function valuesOf(secrets: readonly PathSecret[]): NamedValue[] {
  return secrets.flatMap(({ data, path }) =>
    Object.entries(data).map(([key, value]) => ({ name: key, key, path, value })),
  )
}

function textsOf(values: readonly NamedValue[]): SecretTexts {
  const texts = new Map<string, string>()
  const from = new Map<string, string>()
  for (const { key, name, path, value } of values) {
    const where = `${JSON.stringify(key)} of ${path}`
    const other = from.get(name)
    if (other !== undefined) throw new CommandError(`${other} and ${where} have the same name ${name}`)
    from.set(name, where)
    texts.set(name, textOf(value, where))
  }
  return texts
}

/** Strings unchanged, an empty string for null, other values as JSON. */
function textOf(value: unknown, where: string): string {
  const text = typeof value === 'string' ? value : value === null ? '' : JSON.stringify(value)
  if (text.includes('\0')) throw new CommandError(`the value of ${where} contains a NUL byte`)
  return text
}

/** `DB_PASSWORD`, `AWS_ACCESS_KEY_ID`, `TOKEN`. */
const CREDENTIAL = /^(?:[A-Z0-9_]*_)?(?:PASSWORD|PASSWD|PASSPHRASE|USER|USERNAME|TOKEN|SECRET|KEY|KEY_ID)$/
const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]*$/
const PATTERN = /^[A-Za-z0-9_*]+$/

export interface VariableRules {
  /** Keys of `-env` by variable. */
  readonly named: ReadonlyMap<string, string>
  /** Prefix of the other variables; may be empty. */
  readonly prefix: string
  /** Patterns of further variables; `*` matches any characters. */
  readonly allowed: readonly string[]
  /** The environment without secrets. A key replaces a variable only if the command line names the variable. */
  readonly environment: NodeJS.ProcessEnv
}

export type VariableFault = 'not allowed' | 'in the environment' | undefined

/** From `NAME=KEY` on the command line. Throws UsageError. */
export function namedVariables(given: readonly string[]): ReadonlyMap<string, string> {
  const named = new Map<string, string>()
  for (const each of given) {
    const at = each.indexOf('=')
    const [name, key] = [each.slice(0, Math.max(at, 0)), each.slice(at + 1)]
    if (!VARIABLE.test(name) || key === '') {
      throw new UsageError(
        `option -env: expected NAME=KEY as in -env DB_PASSWORD=password, got ${JSON.stringify(each)}`,
      )
    }
    if (named.has(name)) throw new UsageError(`option -env: duplicate variable ${name}`)
    named.set(name, key)
  }
  return named
}

/** Throws UsageError for a pattern that no variable can match. */
export function allowedPatterns(given: readonly string[]): readonly string[] {
  const invalid = given.find((pattern) => !PATTERN.test(pattern))
  if (invalid === undefined) return given.map((pattern) => pattern.toUpperCase())
  throw new UsageError(`option -allow-env: ${JSON.stringify(invalid)} may contain only letters, digits, _ and *`)
}

/** Prefix and key in upper case; `_` replaces other characters than letters, digits and `_`, and precedes a leading digit. */
function variableOf(key: string, prefix: string): string {
  const name = (prefix + key).toUpperCase().replaceAll(/[^A-Z0-9_]/g, '_')
  return /^\d/.test(name) ? `_${name}` : name
}

/** The fault of a variable that is named after its key. */
function faultOfVariable(variable: string, rules: VariableRules): VariableFault {
  if (rules.prefix !== '' || rules.allowed.includes(variable)) return undefined
  const matches = (pattern: string) => new RegExp(`^${pattern.replaceAll('*', '.*')}$`).test(variable)
  const isDefault = rules.named.size === 0 && CREDENTIAL.test(variable)
  if (!isDefault && !rules.allowed.some(matches)) return 'not allowed'
  // Many programs treat lower-case names alike.
  const isInUse = Object.keys(rules.environment).some((name) => name.toUpperCase() === variable)
  return isInUse ? 'in the environment' : undefined
}

/**
 * The environment with AWS credentials. An existing session token is removed, because it belongs to other keys. Throws CommandError for
 * a secret without AWS credentials.
 */
export function awsEnvironment({ data, path }: PathSecret, environment: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const credentials = credentialsOf(fieldsOf({ data }), path, 0)
  const {
    AWS_SESSION_TOKEN: _token,
    AWS_SECURITY_TOKEN: _legacy,
    AWS_CREDENTIAL_EXPIRATION: _end,
    ...rest
  } = environment
  return { ...rest, ...awsVariables(credentials) }
}

function awsVariables({ accessKeyId, secretAccessKey, sessionToken }: Credentials): Record<string, string> {
  return {
    AWS_ACCESS_KEY_ID: accessKeyId,
    AWS_SECRET_ACCESS_KEY: secretAccessKey,
    ...(sessionToken === '' ? {} : { AWS_SESSION_TOKEN: sessionToken }),
  }
}
