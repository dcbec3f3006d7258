/**
 * Resolves an activation token to its bundle. A token that was sealed to the public key of this server is opened here. Any other is
 * a wrapping token, which the primary unwraps once over its API. Everything that can be checked locally is checked before that use.
 */
import { isObject } from '../../engines/framework/fields.ts'
import { Rejection } from '../../engines/framework/engine.ts'
import { messageOf } from '../../platform/errors.ts'
import type { ActivationBundle, ReplicationSide, UnwrapTarget } from './dr-side.ts'

/** Prefix of a token that was sealed to a public key */
const SEALED_PREFIX = 'dr1.'
const NEW_TOKEN = 'create a new one on the primary (sys/replication/dr/primary/secondary-token)'

export interface ActivationInput {
  readonly token: string
  readonly primary_api_addr: string
  readonly ca_file: string
  readonly ca_path: string
  readonly ca_cert: string
  /** Permits plain HTTP to a primary that is not on loopback. */
  readonly insecure: boolean
}

/** Rejects with a Rejection (400) for an invalid token. */
export async function resolveBundle(
  side: ReplicationSide,
  input: ActivationInput,
  nowMs: number,
): Promise<ActivationBundle> {
  const token = input.token.trim()
  if (token.startsWith(SEALED_PREFIX)) return side.dr.openSealedBundle(token)
  const claims = claimsOf(token)
  if (typeof claims?.['exp'] === 'number' && claims['exp'] * 1000 <= nowMs) {
    throw new Rejection(400, `error unwrapping secondary token: the activation token has expired; ${NEW_TOKEN}`)
  }
  const claimed = typeof claims?.['addr'] === 'string' ? claims['addr'] : ''
  const address = parseAddress(input.primary_api_addr || claimed, input.insecure)
  const target = { address, caFile: input.ca_file, caPath: input.ca_path, caCert: input.ca_cert }
  return side.dr.parseBundle(bundleIn(await unwrap(side, token, target), address))
}

const LOOPBACK_HOST = /^(?:localhost|127\.\d+\.\d+\.\d+|\[::1\])$/

/** Throws a Rejection (400) for a malformed URL, and for plain HTTP to another host unless the caller accepts that. */
function parseAddress(address: string, isInsecureAccepted: boolean): string {
  if (address === '') {
    throw new Rejection(400, 'the token has no address of the primary: set primary_api_addr to the URL of its API')
  }
  const url = URL.parse(address)
  if (url && /^https?:$/.test(url.protocol) && url.username === '' && url.search === '' && url.hash === '') {
    if (url.protocol === 'http:' && !LOOPBACK_HOST.test(url.hostname) && !isInsecureAccepted) {
      throw new Rejection(
        400,
        `the API of the primary is plain HTTP (${url.origin}): the activation token and the link key that it yields would be readable on the network; set primary_api_addr to an https:// address, use secondary/generate-public-key, or set insecure=true`,
      )
    }
    return address.replace(/\/+$/, '')
  }
  throw new Rejection(400, 'primary_api_addr: expected a URL such as https://host:port')
}

type UnwrapResponse = Awaited<ReturnType<ReplicationSide['unwrap']>>

async function unwrap(side: ReplicationSide, token: string, target: UnwrapTarget): Promise<UnwrapResponse> {
  try {
    return await side.unwrap(token, target)
  } catch (error) {
    const reason = messageOf(error)
    throw new Rejection(
      400,
      `error unwrapping secondary token: Post "${target.address}/v1/sys/wrapping/unwrap": ${reason}`,
    )
  }
}

function bundleIn({ status, text }: UnwrapResponse, address: string): unknown {
  const body = parseJson(text)
  if (status === 200 && isObject(body) && isObject(body['data'])) return body['data']
  const errors = isObject(body) && Array.isArray(body['errors']) ? body['errors'].map(String).join('; ') : ''
  const failure = `error response unwrapping secondary token; status code is ${status}`
  if (status === 400 || status === 403 || status === 404) {
    const reason = `the activation token was used already, has expired, was revoked, or belongs to another cluster than ${address}`
    throw new Rejection(400, `${failure}: ${reason}; ${NEW_TOKEN}`)
  }
  const detail = errors === '' ? '' : `: ${errors.slice(0, 500)}`
  throw new Rejection(
    400,
    `${failure}${detail}: check that ${address} is the API of the primary, and that it is unsealed`,
  )
}

/** The claims of a JSON Web Token, unverified: the primary verifies the token. */
function claimsOf(token: string): Readonly<Record<string, unknown>> | undefined {
  const [, claims, signature, ...more] = token.split('.')
  if (claims === undefined || signature === undefined || more.length > 0) return undefined
  const value = parseJson(Buffer.from(claims, 'base64url').toString('utf8'))
  return isObject(value) ? value : undefined
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
