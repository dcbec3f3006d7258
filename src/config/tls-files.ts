/**
 * The PEM files that a TLS configuration names, read.
 */
import { readFileSync } from 'node:fs'
import { messageOf } from '../platform/errors.ts'
import type { TlsConfig } from './config.ts'

/** PEM texts. */
export interface TlsTexts {
  readonly cert: string
  readonly key: string
  readonly ca?: string
  readonly minVersion: TlsConfig['minVersion']
  readonly verifyClient: boolean
}

/** Undefined when TLS is off. Throws an Error that names the setting whose file cannot be read. */
export function readTlsFiles(tls: TlsConfig): TlsTexts | undefined {
  const { http, certFile, keyFile, caFile, minVersion, verifyHttpsClient } = tls
  if (!http || certFile === undefined || keyFile === undefined) return undefined
  return {
    cert: readPem('tls.cert_file', certFile),
    key: readPem('tls.key_file', keyFile),
    minVersion,
    verifyClient: verifyHttpsClient,
    ...(caFile === undefined ? {} : { ca: readPem('tls.ca_file', caFile) }),
  }
}

function readPem(setting: string, file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    throw new Error(`${setting} cannot be read: ${messageOf(error)}`, { cause: error })
  }
}
