/**
 * The address, token and TLS files of a command.
 *
 * Three families of variables name an address and a token: those of outpost, Nomad and Vault. A token is sent only to the address of
 * its own family, compared by value, so that a user with variables of two systems does not send the token of one to the other.
 * `docs/operating/commands.md` has the table, `test/cli/client/addresses.test.ts` tests each of its rows. `outpost login` stores a token in a file
 * of the home directory, which is used if no variable has a token for the address.
 */
import { readFileSync, statSync } from 'node:fs'
import { isErrno, messageOf } from '../../platform/errors.ts'
import { replaceFile } from '../../platform/program-file.ts'
import { CommandError, type CommandIo } from '../framework/define-command.ts'
import { flag, text } from '../framework/options.ts'
import { escapeJson } from '../framework/terminal-escapes.ts'
import { noColorOption } from '../output/terminal.ts'

/** Selects the order of the families. */
export type Subject = 'hosts' | 'secrets'

export interface AgentTarget {
  readonly url: URL
  /** Variable or option of the address; undefined for the default. */
  readonly from: string | undefined
  readonly token: string | undefined
  /** Variable or file of the token; undefined without a token. */
  readonly tokenFrom: string | undefined
  /** Variables whose token is not sent, because the address is not that of its family. */
  readonly withheld: readonly string[]
  readonly tls: TlsTrust
  /** Setting with the CA certificates; OUTPOST_CACERT unless given. */
  readonly caFrom?: string
}

/** TLS settings besides those of the system, as PEM. */
export interface TlsTrust {
  /** CA certificates instead of those of the system. */
  readonly ca?: string
  /** Client certificate and key. */
  readonly cert?: string
  readonly key?: string
}

type AddressFamily = 'OUTPOST' | 'NOMAD' | 'VAULT'

const ORDER: Readonly<Record<Subject, readonly AddressFamily[]>> = {
  hosts: ['OUTPOST', 'NOMAD', 'VAULT'],
  secrets: ['OUTPOST', 'VAULT', 'NOMAD'],
}
const DEFAULT_ADDRESS = 'http://127.0.0.1:4646'
/** Default addresses of the programs of each family. */
const DEFAULTS: Readonly<Record<AddressFamily, string>> = {
  OUTPOST: DEFAULT_ADDRESS,
  NOMAD: 'http://127.0.0.1:4646',
  VAULT: 'https://127.0.0.1:8200',
}

/**
 * Address, token and TLS settings from the environment. `address` is the value of the option -address and replaces OUTPOST_ADDR.
 * Throws CommandError for an invalid address.
 */
export function agentTarget(env: NodeJS.ProcessEnv, subject: Subject, address?: string): AgentTarget {
  const order = ORDER[subject]
  const from = address === undefined ? firstSet(env, names(order, 'ADDR')) : '-address'
  const url = parseAddress(address ?? (from && env[from]) ?? DEFAULT_ADDRESS)
  if (!url) throw new CommandError(`${from} is not a URL: set it to an address such as ${DEFAULT_ADDRESS}`)
  const tls = url.protocol === 'https:' ? tlsTrust(env, order) : {}
  return { url, from, ...tokenFor(url, env, order, address), tls }
}

function tokenFor(
  url: URL,
  env: NodeJS.ProcessEnv,
  order: readonly AddressFamily[],
  address: string | undefined,
): Pick<AgentTarget, 'token' | 'tokenFrom' | 'withheld'> {
  const isOf = (family: AddressFamily) => {
    const given = (family === 'OUTPOST' ? address : undefined) ?? (env[`${family}_ADDR`] || DEFAULTS[family])
    const familyUrl = parseAddress(given)
    return familyUrl !== undefined && canonicalAddress(familyUrl) === canonicalAddress(url)
  }
  const families = order.filter((family) => (env[`${family}_TOKEN`] ?? '') !== '')
  const withheld = families.filter((family) => !isOf(family)).map((family) => `${family}_TOKEN`)
  const match = families.find(isOf)
  if (match) return { token: env[`${match}_TOKEN`], tokenFrom: `${match}_TOKEN`, withheld }
  const stored = isOf('OUTPOST') ? storedToken(env) : undefined
  return { token: stored, tokenFrom: stored === undefined ? undefined : tokenFile(env), withheld }
}

/** Addresses with the same canonical text are equal. */
export function canonicalAddress(url: URL): string {
  return `${url.origin}${url.pathname.replace(/\/+$/, '')}`
}

/** The variable with the token for the address of a target. */
export function tokenVariableOf({ from }: Pick<AgentTarget, 'from'>): string {
  return from === undefined || from.startsWith('-') ? 'OUTPOST_TOKEN' : from.replace(/_ADDR$/, '_TOKEN')
}

function tlsTrust(env: NodeJS.ProcessEnv, order: readonly AddressFamily[]): TlsTrust {
  const ca = pemNamedBy(env, names(order, 'CACERT'))
  const cert = pemNamedBy(env, names(order, 'CLIENT_CERT'))
  const key = pemNamedBy(env, names(order, 'CLIENT_KEY'))
  if ((cert === undefined) !== (key === undefined)) {
    throw new CommandError('OUTPOST_CLIENT_CERT and OUTPOST_CLIENT_KEY must be set together')
  }
  const trust = {
    ...(ca === undefined ? {} : { ca }),
    ...(cert === undefined || key === undefined ? {} : { cert, key }),
  }
  try {
    process.getBuiltinModule('node:tls').createSecureContext(trust)
  } catch (error) {
    const variables = 'OUTPOST_CACERT, OUTPOST_CLIENT_CERT, OUTPOST_CLIENT_KEY'
    throw new CommandError(`invalid PEM file in one of ${variables}: ${messageOf(error)}`, 1, { cause: error })
  }
  return trust
}

function parseAddress(given: string): URL | undefined {
  const url = URL.parse(/^[a-z][a-z0-9+.-]*:\/\//i.test(given) ? given : `http://${given}`)
  return url && (url.protocol === 'http:' || url.protocol === 'https:') && url.hostname !== '' ? url : undefined
}

function names(order: readonly AddressFamily[], what: string): string[] {
  return order.map((family) => `${family}_${what}`)
}

function firstSet(env: NodeJS.ProcessEnv, variables: readonly string[]): string | undefined {
  return variables.find((name) => env[name] !== undefined && env[name] !== '')
}

/** The content of the file that the first of these variables names. Throws CommandError if it cannot be read. */
function pemNamedBy(env: NodeJS.ProcessEnv, variables: readonly string[]): string | undefined {
  const name = firstSet(env, variables)
  const file = name && env[name]
  if (file === undefined) return undefined
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    throw new CommandError(`cannot read ${file} of ${name}: ${messageOf(error)}`, 1, { cause: error })
  }
}

const TOKEN_FILE = '.outpost-token'
const OTHERS_MODE = 0o077

/** Path of the token file; undefined without a home directory. */
function tokenFile(env: NodeJS.ProcessEnv): string | undefined {
  const home = env['HOME'] ?? ''
  return home.startsWith('/') ? `${home.replace(/\/+$/, '')}/${TOKEN_FILE}` : undefined
}

/** Throws CommandError for a file that cannot be read, or that other users can read. */
function storedToken(env: NodeJS.ProcessEnv): string | undefined {
  const file = tokenFile(env)
  if (file === undefined) return undefined
  try {
    const token = readFileSync(file, 'latin1').trim()
    if ((statSync(file).mode & OTHERS_MODE) !== 0)
      throw new CommandError(`${file} is readable by other users: run chmod 600 ${file}`)
    if (/[^\x21-\x7e]/.test(token))
      throw new CommandError(`${file} does not contain a token: run "outpost login" again`)
    return token === '' ? undefined : token
  } catch (error) {
    if (error instanceof CommandError) throw error
    if (isErrno(error, 'ENOENT', 'ENOTDIR', 'EACCES')) return undefined
    throw new CommandError(`cannot read the stored token: ${messageOf(error)}`, 1, { cause: error })
  }
}

/** Returns the path of the file. Throws CommandError. */
export function storeToken(token: string, env: NodeJS.ProcessEnv): string {
  const file = tokenFile(env)
  if (file === undefined) throw new CommandError('cannot store the token: HOME is not set; use -no-store')
  try {
    replaceFile(file, `${token}\n`, { temporary: `${file}.new-${process.pid}` })
    return file
  } catch (error) {
    throw new CommandError(`cannot write ${file}: ${messageOf(error)}`, 1, { cause: error })
  }
}

export const agentOptions = {
  address: text({
    placeholder: 'URL',
    help: 'Address of the agent or server',
    fallback: undefined,
    shownDefault: 'OUTPOST_ADDR, else NOMAD_ADDR, else VAULT_ADDR, else http://127.0.0.1:4646',
  }),
  'no-color': noColorOption,
}

export const jsonOption = flag('Print JSON')

/** The target of a command for hosts. Throws CommandError. */
export function agentOf(values: { readonly address: string | undefined }, io: CommandIo): AgentTarget {
  return agentTarget(io.env, 'hosts', values.address)
}

/** Prints JSON in the format of all commands for hosts. */
export function printJson(value: unknown, io: CommandIo): void {
  io.out(escapeJson(`${JSON.stringify(value, undefined, 2)}\n`))
}
