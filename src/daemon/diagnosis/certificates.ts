/** Certificates and keys of the listener and of the connections, as a start would use them. */
import { createPrivateKey, X509Certificate } from 'node:crypto'
import { isIP } from 'node:net'
import type { DiagnosisFinding } from '../../cli/framework/services.ts'
import type { Config } from '../../config/config.ts'
import { expiryMsOf, expiryText } from '../../config/tls-files.ts'
import { messageOf } from '../../platform/errors.ts'
import { bytesOf } from '../../platform/program-file.ts'
import { type DiagnosisContext, failure, passed, skipped, warning } from './finding.ts'

/** Certificate and key, or a file of authorities. */
interface TlsFileSet {
  readonly block: 'tls' | 'nats' | 'secrets'
  readonly cert: string | undefined
  readonly key: string | undefined
  readonly ca: string | undefined
  /** Hosts whose clients verify the certificate. */
  readonly names: readonly string[]
}

export function checkCertificates({ config }: DiagnosisContext): DiagnosisFinding[] {
  const sets = setsOf(config)
  const findings = sets.flatMap((set) => [...pairFindings(set), ...authorityFindings(set)])
  return findings.length > 0 ? findings : [skipped('certificates', 'TLS is not configured')]
}

function setsOf({ advertise, apiAddr, nats, secrets, tls }: Config): TlsFileSet[] {
  const api = apiAddr === undefined ? [] : [new URL(apiAddr).host]
  const advertised = [...(advertise.http === undefined ? [] : [advertise.http]), ...api].map(hostIn)
  return [
    { block: 'tls', cert: tls.http ? tls.certFile : undefined, key: tls.keyFile, ca: tls.caFile, names: advertised },
    { block: 'nats', cert: nats?.certFile, key: nats?.keyFile, ca: nats?.caFile, names: [] },
    {
      block: 'secrets',
      cert: secrets?.address?.certFile,
      key: secrets?.address?.keyFile,
      ca: secrets?.address?.caFile,
      names: [],
    },
  ]
}

function hostIn(address: string): string {
  return URL.parse(`http://${address}`)?.hostname.replace(/^\[|\]$/g, '') ?? address
}

function pairFindings({ block, cert, key, names }: TlsFileSet): DiagnosisFinding[] {
  if (cert === undefined || key === undefined) return []
  const check = `certificates/${block}`
  let [pem, keyPem] = ['', '']
  try {
    ;[pem, keyPem] = [bytesOf(cert).toString(), bytesOf(key).toString()]
  } catch (error) {
    return [failure(check, `cannot be read: ${messageOf(error)}`, 'run as root, or correct the path or its mode')]
  }
  let leaf: X509Certificate
  try {
    leaf = new X509Certificate(pem)
  } catch {
    return [failure(check, `${cert} has no certificate in PEM format`, `correct ${block}.cert_file`)]
  }
  const findings: DiagnosisFinding[] = []
  try {
    if (!leaf.checkPrivateKey(createPrivateKey(keyPem))) {
      findings.push(
        failure(check, `${key} is not the key of ${cert}`, `correct ${block}.cert_file or ${block}.key_file`),
      )
    }
  } catch {
    findings.push(failure(check, `${key} has no private key in PEM format`, `correct ${block}.key_file`))
  }
  const missing = names.filter((name) => (isIP(name) > 0 ? leaf.checkIP(name) : leaf.checkHost(name)) === undefined)
  if (missing.length > 0) {
    const text = `${cert} is not valid for the advertised address ${missing.join(', ')}`
    findings.push(warning(check, text, 'issue a certificate with that name, or correct advertise.http or api_addr'))
  }
  findings.push(...expiryFindings(check, cert, pem))
  return findings.length > 0 ? findings : [passed(check, `${cert} matches its key, valid until ${leaf.validTo}`)]
}

function authorityFindings({ block, ca }: TlsFileSet): DiagnosisFinding[] {
  if (ca === undefined) return []
  const check = `certificates/${block}`
  try {
    const pem = bytesOf(ca).toString()
    if (expiryMsOf(pem) === undefined) {
      return [failure(check, `${ca} has no certificate in PEM format`, `correct ${block}.ca_file`)]
    }
    const findings = expiryFindings(check, ca, pem)
    return findings.length > 0 ? findings : [passed(check, `${ca} has valid authorities`)]
  } catch (error) {
    return [failure(check, `cannot be read: ${messageOf(error)}`, 'run as root, or correct the path or its mode')]
  }
}

function expiryFindings(check: string, file: string, pem: string): DiagnosisFinding[] {
  const [expiryMs, nowMs] = [expiryMsOf(pem), Date.now()]
  const text = expiryMs === undefined ? undefined : expiryText(expiryMs, nowMs)
  if (expiryMs === undefined || text === undefined) return []
  const next = `renew ${file}, then reload the service (SIGHUP)`
  return [expiryMs <= nowMs ? failure(check, `${file} ${text}`, next) : warning(check, `${file} ${text}`, next)]
}
