/**
 * The TLS files that settings name: each must be readable and contain a certificate or key as its setting requires, and a key must match
 * its certificate.
 * `outpost validate` and the agent's start report the same faults. Expired certificates are not faults (`tls-files.ts`).
 */
import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto'
import { errnoOf, messageOf } from '../platform/errors.ts'
import { bytesOf } from '../platform/program-file.ts'
import { type FaultList, locationPrefix, type Setting } from './fields.ts'
import type { RawConfig } from './schema.ts'

export interface TlsCheckOptions {
  /** False for a check outside the service, which does not see its credentials. */
  readonly isStarting: boolean
}

interface TlsChecks extends TlsCheckOptions {
  readonly faults: FaultList
  readonly warnings: string[]
}

/** The settings of one block; the names of all blocks are the same. */
interface TlsSettings {
  readonly cert_file?: Setting<string>
  readonly key_file?: Setting<string>
  readonly ca_file?: Setting<string>
}

/** systemd mounts the credentials of a service here. */
const CREDENTIALS = '/run/credentials/'

export function checkTlsFiles({ nats, secrets, tls }: RawConfig, checks: TlsChecks): void {
  if (tls?.http?.value === true) checkBlock('tls', tls, checks)
  if (nats) checkBlock('nats', nats, checks)
  if (secrets) checkBlock('secrets', secrets, checks)
}

function checkBlock(block: string, { ca_file: ca, cert_file: cert, key_file: key }: TlsSettings, checks: TlsChecks) {
  if (ca) certificateIn(`${block}.ca_file`, ca, checks)
  const certificate = cert && certificateIn(`${block}.cert_file`, cert, checks)
  const privateKey = key && privateKeyIn(`${block}.key_file`, key, checks)
  if (!cert || !certificate || !key || !privateKey || certificate.checkPrivateKey(privateKey)) return
  checks.faults.add(
    key.where,
    `${block}.key_file: ${key.value} is not the key of the certificate in ${cert.value} (${block}.cert_file), set the key that the certificate was issued for`,
  )
}

/** The first certificate; undefined after a fault. */
function certificateIn(name: string, file: Setting<string>, checks: TlsChecks): X509Certificate | undefined {
  const pem = pemIn(name, file, checks)
  if (pem === undefined) return undefined
  try {
    return new X509Certificate(pem)
  } catch {
    const next = 'expected a certificate in PEM format'
    return checks.faults.add(file.where, `${name}: ${file.value} contains no certificate, ${next}`)
  }
}

function privateKeyIn(name: string, file: Setting<string>, checks: TlsChecks): KeyObject | undefined {
  const pem = pemIn(name, file, checks)
  if (pem === undefined) return undefined
  try {
    return createPrivateKey(pem)
  } catch {
    const next = 'expected a key in PEM format without a passphrase'
    return checks.faults.add(file.where, `${name}: ${file.value} contains no private key, ${next}`)
  }
}

/** The content; undefined after a fault, and for a credential that only the service sees. */
function pemIn(name: string, { value: file, where }: Setting<string>, checks: TlsChecks): string | undefined {
  const { faults, isStarting, warnings } = checks
  try {
    return bytesOf(file).toString()
  } catch (error) {
    const isCredential = file.startsWith(CREDENTIALS)
    if (isCredential && !isStarting) {
      warnings.push(`${locationPrefix(where)}${name}: ${file} is not checked, only the service can read it`)
      return undefined
    }
    const next = isCredential ? 'add LoadCredential= for it to the unit' : nextStep(error)
    return faults.add(where, `${name} cannot be read: ${readFailure(file, error)}: ${next}`)
  }
}

function readFailure(file: string, error: unknown): string {
  const errno = errnoOf(error)
  if (errno === 'ENOENT') return `${file} does not exist`
  return errno === 'EACCES' ? `permission denied for ${file}` : messageOf(error)
}

function nextStep(error: unknown): string {
  const user = process.getuid?.() ?? 'unknown'
  return errnoOf(error) === 'EACCES'
    ? `let the user with uid ${user} read it`
    : 'correct the path, or store the PEM file there'
}
