/**
 * Which agent or server a command talks to, and with which token.
 *
 * Three families of variables name an address and a token: ours, Nomad's and Vault's. A token is sent only to the address of
 * its own family, compared by value: who has the variables of two systems set must not give one the token of the other.
 * `docs/operating.md` has the table, `test/cli/client/addresses.test.ts` tests each of its rows.
 */
import { readFileSync } from 'node:fs'
import { messageOf } from '../../platform/errors.ts'
import { CommandError } from '../framework/command-shape.ts'
import { storedToken, tokenFile } from './token-file.ts'

/** What a command is about, which decides whose variables come first. */
export type Subject = 'hosts' | 'secrets'

export interface AgentTarget {
  readonly url: URL
  /** Which variable or option the address is from; undefined for the default. */
  readonly from: string | undefined
  readonly token: string | undefined
  /** Which variable or file the token is from; undefined where none is sent. */
  readonly tokenFrom: string | undefined
  /** Variables with a token that is not sent, because the address is not that of its family. */
  readonly withheld: readonly string[]
  readonly tls: TlsTrust
  /** What names the authorities to trust; OUTPOST_CACERT unless given. */
  readonly caFrom?: string
}

/** What an address with https needs beyond the system's own, as PEM. */
export interface TlsTrust {
  /** The authorities to trust instead of the system's. */
  readonly ca?: string
  /** The certificate to show, and its key. */
  readonly cert?: string
  readonly key?: string
}

type Family = 'OUTPOST' | 'NOMAD' | 'VAULT'

/** Ours before both; then the family that the command is about. */
const ORDER: Readonly<Record<Subject, readonly Family[]>> = {
  hosts: ['OUTPOST', 'NOMAD', 'VAULT'],
  secrets: ['OUTPOST', 'VAULT', 'NOMAD'],
}
const DEFAULT_ADDRESS = 'http://127.0.0.1:4646'
/** Where the program of each family talks to when its variable is not set. */
const DEFAULTS: Readonly<Record<Family, string>> = {
  OUTPOST: DEFAULT_ADDRESS,
  NOMAD: 'http://127.0.0.1:4646',
  VAULT: 'https://127.0.0.1:8200',
}

/**
 * Address, token and trust from the environment; `address`, when it is given, is that of the option -address, and takes the
 * place of OUTPOST_ADDR. Throws CommandError for an address that is none.
 */
export function agentTarget(env: NodeJS.ProcessEnv, subject: Subject, address?: string): AgentTarget {
  const order = ORDER[subject]
  const from = address === undefined ? firstSet(env, names(order, 'ADDR')) : '-address'
  const url = parseAddress(address ?? (from && env[from]) ?? DEFAULT_ADDRESS)
  if (!url) throw new CommandError(`${from} is not an address, set it to something like ${DEFAULT_ADDRESS}`)
  const tls = url.protocol === 'https:' ? tlsTrust(env, order) : {}
  return { url, from, ...tokenFor(url, env, order, address), tls }
}

function tokenFor(
  url: URL,
  env: NodeJS.ProcessEnv,
  order: readonly Family[],
  address: string | undefined,
): Pick<AgentTarget, 'token' | 'tokenFrom' | 'withheld'> {
  const isOf = (family: Family) => {
    const own = (family === 'OUTPOST' ? address : undefined) ?? (env[`${family}_ADDR`] || DEFAULTS[family])
    const theirs = parseAddress(own)
    return theirs !== undefined && placeOf(theirs) === placeOf(url)
  }
  const given = order.filter((family) => (env[`${family}_TOKEN`] ?? '') !== '')
  const withheld = given.filter((family) => !isOf(family)).map((family) => `${family}_TOKEN`)
  const sent = given.find(isOf)
  if (sent) return { token: env[`${sent}_TOKEN`], tokenFrom: `${sent}_TOKEN`, withheld }
  const kept = isOf('OUTPOST') ? storedToken(env) : undefined
  return { token: kept, tokenFrom: kept === undefined ? undefined : tokenFile(env), withheld }
}

/** Two addresses with the same text here are one place. */
export function placeOf(url: URL): string {
  return `${url.origin}${url.pathname.replace(/\/+$/, '')}`
}

/** The variable with the token that goes to the address of a target. */
export function tokenVariableOf({ from }: Pick<AgentTarget, 'from'>): string {
  return from === undefined || from.startsWith('-') ? 'OUTPOST_TOKEN' : from.replace(/_ADDR$/, '_TOKEN')
}

function tlsTrust(env: NodeJS.ProcessEnv, order: readonly Family[]): TlsTrust {
  const ca = pemNamedBy(env, names(order, 'CACERT'))
  const cert = pemNamedBy(env, names(order, 'CLIENT_CERT'))
  const key = pemNamedBy(env, names(order, 'CLIENT_KEY'))
  if ((cert === undefined) !== (key === undefined)) {
    throw new CommandError('OUTPOST_CLIENT_CERT and OUTPOST_CLIENT_KEY go together, set both or none')
  }
  const trust = {
    ...(ca === undefined ? {} : { ca }),
    ...(cert === undefined || key === undefined ? {} : { cert, key }),
  }
  try {
    process.getBuiltinModule('node:tls').createSecureContext(trust)
  } catch (error) {
    const variables = 'OUTPOST_CACERT, OUTPOST_CLIENT_CERT, OUTPOST_CLIENT_KEY'
    throw new CommandError(`one of ${variables} names no usable PEM file: ${messageOf(error)}`, 1, { cause: error })
  }
  return trust
}

function parseAddress(text: string): URL | undefined {
  const url = URL.parse(/^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `http://${text}`)
  return url && (url.protocol === 'http:' || url.protocol === 'https:') && url.hostname !== '' ? url : undefined
}

function names(order: readonly Family[], what: string): string[] {
  return order.map((family) => `${family}_${what}`)
}

function firstSet(env: NodeJS.ProcessEnv, variables: readonly string[]): string | undefined {
  return variables.find((name) => env[name] !== undefined && env[name] !== '')
}

/** The file that the first of these variables names. Throws CommandError when it cannot be read. */
function pemNamedBy(env: NodeJS.ProcessEnv, variables: readonly string[]): string | undefined {
  const name = firstSet(env, variables)
  const file = name && env[name]
  if (file === undefined) return undefined
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    throw new CommandError(`${name} names ${file}, which cannot be read: ${messageOf(error)}`, 1, { cause: error })
  }
}
