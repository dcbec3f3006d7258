/**
 * How this process says who it is to a NATS server, and checks who the server is. Files are read anew for every attempt
 * to connect: what an operator puts right, or renews, counts from the next attempt on.
 */
import { checkServerIdentity } from 'node:tls'
import type { Authenticator, NodeConnectionOptions } from '@nats-io/transport-node'
import {
  credsAuthenticator,
  nkeyAuthenticator,
  tokenAuthenticator,
  usernamePasswordAuthenticator,
} from '@nats-io/transport-node'
import { Fault, messageOf } from '../../platform/errors.ts'
import { bytesOf } from '../../platform/own-file.ts'

/** At most one way to say who we are: a file of credentials, an nkey, user and password, or a token. Paths of files. */
export interface LoginOptions {
  readonly servers: readonly string[]
  readonly credentialsFile?: string
  readonly nkeyFile?: string
  readonly user?: string
  readonly passwordFile?: string
  readonly tokenFile?: string
  readonly caFile?: string
  readonly certFile?: string
  readonly keyFile?: string
  /** Called at each TLS handshake with the end of validity of the server's certificate, in milliseconds since 1970. */
  readonly onServerCertificate?: (expiryMs: number) => void
}

/**
 * Reads the files; the certificate of the server must be for one of `names`, which are hosts with or without scheme and
 * port. Throws a Fault that names the setting whose file cannot be used, and shows nothing of its content.
 */
export function loginOf(
  options: LoginOptions,
  names: readonly string[],
): Pick<NodeConnectionOptions, 'authenticator' | 'tls'> {
  // A server that offers TLS gets it in any case; where it is wanted, none that does not offer it is spoken to.
  const { servers, caFile, certFile } = options
  const isWanted = caFile !== undefined || certFile !== undefined || servers.some((server) => /^tls:/i.test(server))
  const authenticator = authenticatorsOf(options)
  return isWanted ? { authenticator, tls: tlsOf(options, names) } : { authenticator }
}

/** Which settings say who we are, for the log. */
export function loginSettings({ credentialsFile, nkeyFile, user, tokenFile, certFile }: LoginOptions): string {
  const ways = [
    credentialsFile && `nats.credentials_file ${credentialsFile}`,
    nkeyFile && `nats.nkey_file ${nkeyFile}`,
    user && `nats.user ${user} and nats.password_file`,
    tokenFile && `nats.token_file ${tokenFile}`,
    certFile && `nats.cert_file ${certFile}`,
  ].filter((way) => way !== undefined)
  return ways.length > 0 ? ways.join(', ') : 'nothing that says who we are'
}

function authenticatorsOf(options: LoginOptions): Authenticator[] {
  const { credentialsFile, nkeyFile, user, passwordFile, tokenFile } = options
  if (credentialsFile !== undefined) {
    const bytes = readBytes('nats.credentials_file', credentialsFile)
    return [usable(credsAuthenticator(bytes), 'nats.credentials_file', credentialsFile)]
  }
  if (nkeyFile !== undefined) {
    const seed = new TextEncoder().encode(readLine('nats.nkey_file', nkeyFile))
    return [usable(nkeyAuthenticator(seed), 'nats.nkey_file', nkeyFile)]
  }
  if (tokenFile !== undefined) return [tokenAuthenticator(readLine('nats.token_file', tokenFile))]
  if (user === undefined || passwordFile === undefined) return []
  return [usernamePasswordAuthenticator(user, readLine('nats.password_file', passwordFile))]
}

/** One that cannot sign would end the connection in the middle of its greeting, without a word about the file. */
function usable(authenticator: Authenticator, setting: string, file: string): Authenticator {
  try {
    authenticator('nonce')
  } catch {
    const what = setting === 'nats.nkey_file' ? 'the seed of an nkey (a line SU…)' : 'credentials (a JWT and a seed)'
    throw new Fault(`${setting}: ${file} does not hold ${what}`)
  }
  return authenticator
}

interface TlsSettings {
  readonly ca?: string
  readonly cert?: string
  readonly key?: string
  readonly checkServerIdentity: typeof checkServerIdentity
}

function tlsOf(
  { caFile, certFile, keyFile, onServerCertificate }: LoginOptions,
  names: readonly string[],
): TlsSettings {
  return {
    ...(caFile === undefined ? {} : { ca: readBytes('nats.ca_file', caFile).toString() }),
    ...(certFile === undefined ? {} : { cert: readBytes('nats.cert_file', certFile).toString() }),
    ...(keyFile === undefined ? {} : { key: readBytes('nats.key_file', keyFile).toString() }),
    // The client of NATS has no name to compare with where the server is given by its address.
    checkServerIdentity(_, certificate) {
      onServerCertificate?.(Date.parse(certificate.valid_to))
      const errors = names.map((name) => checkServerIdentity(hostOf(name), certificate))
      return errors.includes(undefined) ? undefined : errors[0]
    },
  }
}

function hostOf(server: string): string {
  return new URL(`http://${server.replace(/^[a-z]+:\/\//i, '')}`).hostname.replace(/^\[|\]$/g, '')
}

/** The file without the line break at its end. */
function readLine(setting: string, file: string): string {
  return readBytes(setting, file)
    .toString()
    .replace(/\r?\n$/, '')
}

function readBytes(setting: string, file: string): Buffer {
  let bytes: Buffer
  try {
    bytes = bytesOf(file)
  } catch (error) {
    throw new Fault(`${setting} cannot be read: ${messageOf(error)}`, { cause: error })
  }
  if (bytes.toString().trim() === '') throw new Fault(`${setting}: ${file} is empty`)
  return bytes
}
