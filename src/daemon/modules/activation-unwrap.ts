/** Unwraps an activation token at the primary that issued it: `sys/wrapping/unwrap` over HTTP or HTTPS. */
import { closeSync, constants, fstatSync, openSync, opendirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { openResponse, responseText } from '../../cli/client/http-client.ts'
import { messageOf } from '../../platform/errors.ts'
import type { UnwrapTarget } from '../../secrets/dr-endpoints/dr-side.ts'

/** Timeout of the whole request. */
const ANSWER_MS = 30_000
/** Limits of a CA directory; systems have a few hundred files. */
const FILES_MAX = 1000
const DIRECTORY_BYTES_MAX = 8 << 20
/** Limit of a CA file. */
const PEM_BYTES_MAX = 1 << 20

/** Rejects with an Error that names the cause: CA file, connection, TLS. */
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
    headTimeoutMs: ANSWER_MS,
    signal: AbortSignal.timeout(ANSWER_MS),
  })
  return { status: response.statusCode ?? 0, text: await responseText(response, target) }
}

function pemIn(file: string): string {
  try {
    // O_NONBLOCK: a pipe or device would block the event loop.
    const fd = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK)
    try {
      const at = fstatSync(fd)
      if (!at.isFile() || at.size > PEM_BYTES_MAX) throw new Error(`${file} is not a certificate file`)
      return readFileSync(fd, 'utf8')
    } finally {
      closeSync(fd)
    }
  } catch (error) {
    throw new Error(`ca_file or ca_path cannot be read: ${messageOf(error)}`, { cause: error })
  }
}

/** All files with certificates in a directory. Synchronous, so number and size are bounded. */
function pemsIn(directory: string): string[] {
  try {
    const pems: string[] = []
    let bytes = 0
    for (const name of namesIn(directory)) {
      const text = pemIn(join(directory, name))
      bytes += text.length
      if (bytes > DIRECTORY_BYTES_MAX) throw tooLarge(directory, `${DIRECTORY_BYTES_MAX >> 20} MiB`)
      if (text.includes('-----BEGIN CERTIFICATE-----')) pems.push(text)
    }
    return pems
  } catch (error) {
    throw new Error(`ca_path cannot be read: ${messageOf(error)}`, { cause: error })
  }
}

function namesIn(directory: string): string[] {
  const names: string[] = []
  const open = opendirSync(directory)
  try {
    for (let entry = open.readSync(); entry; entry = open.readSync()) {
      if (entry.isDirectory()) continue
      names.push(entry.name)
      if (names.length > FILES_MAX) throw tooLarge(directory, `${FILES_MAX} files`)
    }
  } finally {
    open.closeSync()
  }
  return names
}

function tooLarge(directory: string, most: string): Error {
  return new Error(`${directory} has more than ${most}: set ca_file to the file of the CA`)
}
