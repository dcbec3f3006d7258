/** Certificates for tests, made by openssl. */
import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'

const KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes']

/**
 * `ca.pem`, a `<name>.pem` and `<name>.key` signed by it for each name (valid for 127.0.0.1), and the self-signed
 * `stranger.pem`. Certificates of the names in `expired` have expired. Returns false without openssl.
 */
export function makeCertificates(
  directory: string,
  names: readonly string[],
  expired: readonly string[] = [],
): boolean {
  const openssl = (...args: string[]) => execFileSync('openssl', args, { cwd: directory, stdio: 'ignore' })
  const own = (name: string, subject: string) =>
    openssl('req', '-x509', ...KEY, '-keyout', `${name}.key`, '-out', `${name}.pem`, '-subj', subject, '-days', '2')
  try {
    openssl('version')
  } catch {
    return false
  }
  writeFileSync(join(directory, 'san'), 'subjectAltName=IP:127.0.0.1\n')
  own('ca', '/CN=test CA')
  for (const name of [...names, ...expired]) {
    openssl('req', ...KEY, '-keyout', `${name}.key`, '-out', `${name}.csr`, '-subj', `/CN=${name}`)
    const signed = ['x509', '-req', '-in', `${name}.csr`, '-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial']
    openssl(...signed, '-out', `${name}.pem`, '-days', expired.includes(name) ? '-1' : '2', '-extfile', 'san')
  }
  own('stranger', '/CN=stranger')
  return true
}
