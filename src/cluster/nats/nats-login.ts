/**
 * Credentials and TLS settings of a connection to NATS. Files are read again for each attempt to connect, so a file that an
 * operator has fixed or renewed takes effect at the next attempt.
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
import { bytesOf } from '../../platform/program-file.ts'

/** At most one of: a credentials file, an NKEY, user and password, a token. Files are paths. */
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
  /** Called at each TLS handshake with the expiry time of the server's certificate, in milliseconds since 1970. */
  readonly onServerCertificate?: (expiryMs: number) => void
}

/**
 * Reads the files. The certificate of the server must be valid for one of `names`, which are hosts with or without scheme and port.
 * @throws Fault that names the setting whose file cannot be used; it never contains the content of the file.
 */
export function loginOf(
  options: LoginOptions,
  names: readonly string[],
): Pick<NodeConnectionOptions, 'authenticator' | 'tls'> {
  // The client uses TLS whenever a server offers it. With TLS settings it also refuses a server that does not.
  const { servers, caFile, certFile } = options
  const requiresTls = caFile !== undefined || certFile !== undefined || servers.some((server) => /^tls:/i.test(server))
  const authenticator = authenticatorsOf(options)
  return requiresTls ? { authenticator, tls: tlsOf(options, names) } : { authenticator }
}

/** The settings with credentials, for the log. */
export function loginSettings({ credentialsFile, nkeyFile, user, tokenFile, certFile }: LoginOptions): string {
  const settings = [
    credentialsFile && `nats.credentials_file ${credentialsFile}`,
    nkeyFile && `nats.nkey_file ${nkeyFile}`,
    user && `nats.user ${user} and nats.password_file`,
    tokenFile && `nats.token_file ${tokenFile}`,
    certFile && `nats.cert_file ${certFile}`,
  ].filter((setting) => setting !== undefined)
  return settings.length > 0 ? settings.join(', ') : 'a connection without credentials'
}

function authenticatorsOf(options: LoginOptions): Authenticator[] {
  const { credentialsFile, nkeyFile, user, passwordFile, tokenFile } = options
  if (credentialsFile !== undefined) {
    const bytes = readBytes('nats.credentials_file', credentialsFile)
    return [checkedAuthenticator(credsAuthenticator(bytes), 'nats.credentials_file', credentialsFile)]
  }
  if (nkeyFile !== undefined) {
    const seed = new TextEncoder().encode(readLine('nats.nkey_file', nkeyFile))
    return [checkedAuthenticator(nkeyAuthenticator(seed), 'nats.nkey_file', nkeyFile)]
  }
  if (tokenFile !== undefined) return [tokenAuthenticator(readLine('nats.token_file', tokenFile))]
  if (user === undefined || passwordFile === undefined) return []
  return [usernamePasswordAuthenticator(user, readLine('nats.password_file', passwordFile))]
}

/** The error for credentials that cannot sign would otherwise come from the handshake, without the name of the file. */
function checkedAuthenticator(authenticator: Authenticator, setting: string, file: string): Authenticator {
  try {
    authenticator('nonce')
  } catch {
    const what = setting === 'nats.nkey_file' ? 'the seed of an nkey (a line SU…)' : 'credentials (a JWT and a seed)'
    throw new Fault(`${setting}: ${file} does not contain ${what}`)
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
    // Without it the client checks no name for a server that is configured by its address.
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

/** The content without its final line break. */
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
