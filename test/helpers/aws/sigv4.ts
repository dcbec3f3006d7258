/** Verifies the signature of a request (AWS Signature Version 4), implemented from the specification without the SDK. */
import { createHash, createHmac, timingSafeEqual } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import { AwsError } from './wire.ts'

const SKEW_MS = 300_000

export interface Signed {
  readonly method: string
  readonly url: string
  readonly headers: IncomingHttpHeaders
  readonly body: string
  /** The signed hash, if it differs from that of the body: S3. */
  readonly payloadHash?: string
}

export interface Scope {
  readonly keyId: string
  readonly region: string
  readonly service: string
  readonly sessionToken: string | undefined
}

function hmac(key: string | Buffer, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest()
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex')
}

function incomplete(why: string): AwsError {
  return new AwsError('IncompleteSignature', why, 400)
}

interface Claim {
  readonly keyId: string
  readonly date: string
  readonly region: string
  readonly service: string
  readonly names: readonly string[]
  readonly signature: string
}

function claimOf(headers: IncomingHttpHeaders): Claim | undefined {
  const { authorization } = headers
  if (authorization === undefined) return undefined
  const form =
    /^AWS4-HMAC-SHA256 Credential=([^/]+)\/(\d{8})\/([^/]+)\/([^/]+)\/aws4_request, SignedHeaders=([^,]+), Signature=([0-9a-f]{64})$/
  const [, keyId = '', date = '', region = '', service = '', names = '', signature = ''] =
    form.exec(authorization) ?? []
  if (signature === '') throw incomplete('Authorization header is not of AWS4-HMAC-SHA256')
  return { keyId, date, region, service, names: names.split(';'), signature }
}

/** The claimed signer; undefined for a request without a signature. `secretOf` throws for an unknown key. */
export function verified(
  { body, headers, method, payloadHash = sha256(body), url }: Signed,
  secretOf: (keyId: string) => string,
  nowMs: number,
): Scope | undefined {
  const claim = claimOf(headers)
  if (!claim) return undefined
  const stamp = String(headers['x-amz-date'] ?? '')
  const [, year, month, day, hour, minute, second] = /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/.exec(stamp) ?? []
  if (second === undefined || !stamp.startsWith(claim.date)) throw incomplete('Date must be in ISO-8601 basic format')
  const secret = secretOf(claim.keyId)
  for (const name of ['host', 'x-amz-date']) {
    if (!claim.names.includes(name)) throw incomplete(`'${name}' must be a signed header`)
  }
  const signedAtMs = Date.parse(`${year}-${month}-${day}T${hour}:${minute}:${second}Z`)
  if (Math.abs(signedAtMs - nowMs) > SKEW_MS) {
    const word = signedAtMs < nowMs ? 'Signature expired' : 'Signature not yet current'
    throw new AwsError('SignatureDoesNotMatch', `${word}: ${stamp} is not within 5 min of the server's time`, 403)
  }
  const [path = '/', query = ''] = url.split('?')
  const lines = claim.names.map(
    (name) =>
      `${name}:${String(headers[name] ?? '')
        .trim()
        .replace(/ +/g, ' ')}\n`,
  )
  const request = [method, path, query, lines.join(''), claim.names.join(';'), payloadHash].join('\n')
  const scope = `${claim.date}/${claim.region}/${claim.service}/aws4_request`
  const text = `AWS4-HMAC-SHA256\n${stamp}\n${scope}\n${sha256(request)}`
  const key = ['aws4_request'].reduce(hmac, hmac(hmac(hmac(`AWS4${secret}`, claim.date), claim.region), claim.service))
  if (!timingSafeEqual(hmac(key, text), Buffer.from(claim.signature, 'hex'))) {
    const why = 'The request signature we calculated does not match the signature you provided.'
    throw new AwsError('SignatureDoesNotMatch', why, 403)
  }
  const token = headers['x-amz-security-token']
  const { keyId, region, service } = claim
  return { keyId, region, service, sessionToken: typeof token === 'string' ? token : undefined }
}
