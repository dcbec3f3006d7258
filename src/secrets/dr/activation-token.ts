/**
 * What an activation token stands for. One that was sealed to the public key of this server is opened here; any other is a
 * wrapping token, which the primary takes once, over its API. Everything that can be known of a token is looked at before
 * that one use.
 */
import { isObject } from '../../engines/framework/fields.ts'
import { Rejection } from '../../engines/framework/engine.ts'
import { messageOf } from '../../platform/errors.ts'
import type { Bundle, ReplicationSide, UnwrapTarget } from './dr-replication.ts'

/** How a token begins that was sealed to a public key. */
const SEALED_PREFIX = 'dr1.'
const NEW_TOKEN = 'make a new one on the primary (sys/replication/dr/primary/secondary-token)'

export interface ActivationInput {
  readonly token: string
  readonly primary_api_addr: string
  readonly ca_file: string
  readonly ca_path: string
  readonly ca_cert: string
  /** Permits plain HTTP to a primary that is not on loopback. */
  readonly insecure: boolean
}

/** The bundle of an activation token. Rejects with a Rejection (400) that says what is wrong with the token. */
export async function bundleOf(side: ReplicationSide, input: ActivationInput, nowMs: number): Promise<Bundle> {
  const token = input.token.trim()
  if (token.startsWith(SEALED_PREFIX)) return side.dr.openSealedBundle(token)
  const claims = claimsOf(token)
  if (typeof claims?.['exp'] === 'number' && claims['exp'] * 1000 <= nowMs) {
    throw new Rejection(400, `error unwrapping secondary token: the activation token has expired; ${NEW_TOKEN}`)
  }
  const named = typeof claims?.['addr'] === 'string' ? claims['addr'] : ''
  const address = checkedAddress(input.primary_api_addr || named, input.insecure)
  const target = { address, caFile: input.ca_file, caPath: input.ca_path, caCert: input.ca_cert }
  return side.dr.parseBundle(bundleIn(await unwrapped(side, token, target), address))
}

const LOOPBACK_HOST = /^(?:localhost|127\.\d+\.\d+\.\d+|\[::1\])$/

/** Throws a Rejection (400) for what is no URL, and for plain HTTP to another host unless the caller accepts that. */
function checkedAddress(address: string, isInsecureAccepted: boolean): string {
  if (address === '') {
    throw new Rejection(400, 'the token names no address of the primary: give primary_api_addr, its API as a URL')
  }
  const url = URL.parse(address)
  if (url && /^https?:$/.test(url.protocol) && url.username === '' && url.search === '' && url.hash === '') {
    if (url.protocol === 'http:' && !LOOPBACK_HOST.test(url.hostname) && !isInsecureAccepted) {
      throw new Rejection(
        400,
        `the API of the primary is plain HTTP (${url.origin}): the activation token and the link key that it yields would be readable on the network; give primary_api_addr with https://, use secondary/generate-public-key, or set insecure=true`,
      )
    }
    return address.replace(/\/+$/, '')
  }
  throw new Rejection(400, 'primary_api_addr: expected a URL, as https://host:port')
}

type Unwrapped = Awaited<ReturnType<ReplicationSide['unwrap']>>

async function unwrapped(side: ReplicationSide, token: string, target: UnwrapTarget): Promise<Unwrapped> {
  try {
    return await side.unwrap(token, target)
  } catch (error) {
    const why = messageOf(error)
    throw new Rejection(
      400,
      `error unwrapping secondary token: Post "${target.address}/v1/sys/wrapping/unwrap": ${why}`,
    )
  }
}

function bundleIn({ status, text }: Unwrapped, address: string): unknown {
  const body = parsed(text)
  if (status === 200 && isObject(body) && isObject(body['data'])) return body['data']
  const said = isObject(body) && Array.isArray(body['errors']) ? body['errors'].map(String).join('; ') : ''
  const what = `error response unwrapping secondary token; status code is ${status}`
  if (status === 400 || status === 403 || status === 404) {
    const why = `the activation token was used already, has expired, was revoked, or is of another cluster than ${address}`
    throw new Rejection(400, `${what}: ${why}; ${NEW_TOKEN}`)
  }
  const rest = said === '' ? '' : `: ${said.slice(0, 500)}`
  throw new Rejection(400, `${what}${rest}: check that ${address} is the API of the primary, and that it is unsealed`)
}

/** What a JSON Web Token says of itself; it is the primary that checks it. */
function claimsOf(token: string): Readonly<Record<string, unknown>> | undefined {
  const [, claims, signature, ...more] = token.split('.')
  if (claims === undefined || signature === undefined || more.length > 0) return undefined
  const value = parsed(Buffer.from(claims, 'base64url').toString('utf8'))
  return isObject(value) ? value : undefined
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
