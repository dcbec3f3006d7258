/** How a server takes an activation token to the primary that issued it: `sys/wrapping/unwrap` over HTTP or HTTPS. */
import { closeSync, constants, fstatSync, openSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { openResponse, responseText } from './cli/http-client.ts'
import { messageOf } from './kit/errors.ts'
import type { UnwrapTarget } from './secrets/replication/dr-replication.ts'

/** For the whole of it. */
const ANSWER_MS = 30_000
const FILES_MAX = 1000
/** Of one file of authorities. */
const PEM_BYTES_MAX = 1 << 20

/** Rejects with an Error whose message says why there is no answer: a file of the authorities, the connection, its TLS. */
export async function unwrapAt(
  token: string,
  { address, caCert, caFile, caPath }: UnwrapTarget,
): Promise<{ readonly status: number; readonly text: string }> {
  const ca = [caCert, ...(caFile === '' ? [] : [pemIn(caFile)]), ...(caPath === '' ? [] : pemsIn(caPath))]
    .filter((pem) => pem !== '')
    .join('\n')
  const url = new URL(address)
  const from = { from: 'the activation token', token: undefined, tokenFrom: undefined, withheld: [] }
  const target = { url, tls: ca === '' ? {} : { ca }, ...from, caFrom: 'ca_file' }
  const response = await openResponse(target, {
    method: 'POST',
    path: '/v1/sys/wrapping/unwrap',
    headers: { 'X-Vault-Token': token, 'X-Vault-Request': 'true' },
    body: {},
    headMs: ANSWER_MS,
    signal: AbortSignal.timeout(ANSWER_MS),
  })
  return { status: response.statusCode ?? 0, text: await responseText(response, target) }
}

function pemIn(file: string): string {
  try {
    // A pipe or a device would hold up everything else, for ever.
    const fd = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK)
    try {
      const at = fstatSync(fd)
      if (!at.isFile() || at.size > PEM_BYTES_MAX) throw new Error(`${file} is no file of certificates`)
      return readFileSync(fd, 'utf8')
    } finally {
      closeSync(fd)
    }
  } catch (error) {
    throw new Error(`ca_file or ca_path cannot be read: ${messageOf(error)}`, { cause: error })
  }
}

/** Every file of the directory: what is no PEM in it is left out by TLS. */
function pemsIn(directory: string): string[] {
  try {
    const files = readdirSync(directory, { withFileTypes: true }).filter((entry) => !entry.isDirectory())
    return files
      .slice(0, FILES_MAX)
      .map(({ name }) => pemIn(join(directory, name)))
      .filter((text) => text.includes('-----BEGIN CERTIFICATE-----'))
  } catch (error) {
    throw new Error(`ca_path cannot be read: ${messageOf(error)}`, { cause: error })
  }
}
