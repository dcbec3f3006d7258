/** `sys/tools`: hashes and random bytes. */
import { createHash, randomBytes } from 'node:crypto'
import { path, type Path, Rejection, type Reply } from '../../engines/framework/engine.ts'
import { inPath, integer, text } from '../../engines/framework/fields.ts'

const ALGORITHMS: Readonly<Record<string, string>> = {
  'sha2-224': 'sha224',
  'sha2-256': 'sha256',
  'sha2-384': 'sha384',
  'sha2-512': 'sha512',
  'sha3-224': 'sha3-224',
  'sha3-256': 'sha3-256',
  'sha3-384': 'sha3-384',
  'sha3-512': 'sha3-512',
}
/** Bounds the time that a request blocks the thread. No key needs more. */
const RANDOM_BYTES_MAX = 128 << 10
/** Vault's sources of random bytes. All use the operating system's generator here. */
const SOURCES = new Set(['platform', 'seal', 'all'])
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/

const HASH = {
  input: text('Input in base64'),
  algorithm: text(`One of ${Object.keys(ALGORITHMS).join(', ')}`, { fallback: 'sha2-256' }),
  format: text('`hex` or `base64`', { fallback: 'hex' }),
}
const RANDOM = {
  bytes: integer('Number of bytes', { fallback: 32 }),
  format: text('`hex` or `base64`', { fallback: 'base64' }),
  source: text('`platform`, `seal` or `all`, which are equivalent', { fallback: 'platform' }),
}

export function toolPaths(): Path[] {
  const urlalgorithm = inPath('Hash algorithm')
  const urlbytes = inPath('Number of bytes or source')
  return [
    path({ pattern: 'tools/hash', summary: 'Hash an input', fields: HASH, update: (input) => hash(input) }),
    path({
      pattern: 'tools/hash/:urlalgorithm',
      summary: 'Hash an input with an algorithm',
      fields: { ...HASH, urlalgorithm },
      update: (input) => hash({ ...input, algorithm: input.urlalgorithm }),
    }),
    path({
      pattern: 'tools/random',
      summary: 'Generate random bytes',
      fields: RANDOM,
      update: (input) => random(input),
    }),
    path({
      pattern: 'tools/random/:urlbytes',
      summary: 'Generate a number of random bytes',
      fields: { ...RANDOM, urlbytes },
      update: (input) =>
        SOURCES.has(input.urlbytes)
          ? random({ ...input, source: input.urlbytes })
          : random({ ...input, bytes: parseCount(input.urlbytes) }),
    }),
    path({
      pattern: 'tools/random/:source/:urlbytes',
      summary: 'Generate a number of random bytes from a source',
      fields: { ...RANDOM, source: inPath('`platform`, `seal` or `all`'), urlbytes },
      update: (input) => random({ ...input, bytes: parseCount(input.urlbytes) }),
    }),
  ]
}

function parseCount(given: string): number {
  if (!/^\d{1,9}$/.test(given)) throw new Rejection(400, 'error parsing url-set byte count: must be an integer')
  return Number(given)
}

function encode(bytes: Buffer, format: string): string {
  if (format === 'hex' || format === 'base64') return bytes.toString(format)
  throw new Rejection(400, `unsupported encoding format "${format.slice(0, 64)}"; must be "hex" or "base64"`)
}

function hash({
  algorithm,
  format,
  input = '',
}: {
  algorithm: string
  format: string
  input?: string | undefined
}): Reply {
  const name = Object.hasOwn(ALGORITHMS, algorithm) ? ALGORITHMS[algorithm] : undefined
  if (name === undefined) throw new Rejection(400, `unsupported algorithm "${algorithm.slice(0, 64)}"`)
  if (!isBase64(input)) throw new Rejection(400, 'unable to decode input as base64')
  const sum = createHash(name).update(Buffer.from(input, 'base64')).digest()
  return { data: { sum: encode(sum, format) } }
}

/** Only the last group is matched by `BASE64`, because megabytes would overflow the stack of the regular expression. */
function isBase64(input: string): boolean {
  const end = input.slice(-4)
  return input.length % 4 === 0 && !/[^A-Za-z0-9+/]/.test(input.slice(0, -4)) && BASE64.test(end)
}

function random({ bytes, format, source }: { bytes: number; format: string; source: string }): Reply {
  if (!SOURCES.has(source)) throw new Rejection(400, `unsupported entropy source "${source.slice(0, 64)}"`)
  if (bytes < 1) throw new Rejection(400, '"bytes" cannot be less than 1')
  if (bytes > RANDOM_BYTES_MAX) throw new Rejection(400, `"bytes" should be less than or equal to ${RANDOM_BYTES_MAX}`)
  return { data: { random_bytes: encode(randomBytes(bytes), format) } }
}
