/**
 * The host names under which a listener on loopback is called.
 *
 * A web page whose name its author lets resolve to 127.0.0.1 ("DNS rebinding") is of the same origin as what listens
 * there, so that its browser lets it send any request and read any answer. What gives it away is the Host header, which
 * no page can choose. A call from this machine names a loopback address, `localhost`, or a name that the operator gave.
 */
import type { IncomingMessage } from 'node:http'
import { isIP } from 'node:net'
import { Refusal } from '../platform/errors.ts'

const LOOPBACK = /^(?:localhost|.+\.localhost|127(?:\.\d{1,3}){3}|\[::1\]|\[::ffff:7f[\da-f]{2}:[\da-f]{1,4}\])$/
/** A host and an optional port, as RFC 3986 spells them, without percent-encoding and without a zone. */
const HOST_AND_PORT = /^(?:\[[\da-f:.]+\]|[\w.-]+)(?::\d{0,5})?$/i
/** Header values that are remembered as served; past that, all are forgotten. */
const REMEMBERED_MAX = 64

export class ServedHosts {
  #names: ReadonlySet<string>
  readonly #remembered = new Set<string>()

  /** `names`: what is served beside the names of loopback; a host or `host:port`, whose port counts for nothing. */
  constructor(names: readonly string[]) {
    this.#names = namesOf(names)
  }

  /** From the next request on. */
  set(names: readonly string[]): void {
    this.#names = namesOf(names)
    this.#remembered.clear()
  }

  /** Throws a Refusal (403) for a request that came in on loopback under a name that is not served. */
  check(request: IncomingMessage): void {
    const { host } = request.headers
    if (host !== undefined && this.#remembered.has(host)) return
    if (!isLoopbackAddress(request.socket.localAddress ?? '')) return
    // Only HTTP/1.0 may leave Host out (Node refuses it otherwise), and no browser speaks that.
    if (host === undefined) return
    const name = canonicalName(host)
    if (name === undefined || !(LOOPBACK.test(name) || this.#names.has(name))) throw notServed(host)
    if (this.#remembered.size >= REMEMBERED_MAX) this.#remembered.clear()
    this.#remembered.add(host)
  }
}

/** The name of a host in one spelling: lower case, without port and final dot, addresses in their shortest form. */
function canonicalName(host: string): string | undefined {
  if (!HOST_AND_PORT.test(host)) return undefined
  try {
    return new URL(`http://${host}`).hostname.replace(/\.$/, '')
  } catch {
    return undefined
  }
}

function namesOf(names: readonly string[]): ReadonlySet<string> {
  const known = names.map((name) => canonicalName(isAddress6(name) ? `[${name}]` : name))
  return new Set(known.filter((name) => name !== undefined))
}

/** The colon first: Node's pattern of such an address takes 4 ms to compile, and most hosts are never called by one. */
function isAddress6(name: string): boolean {
  return name.includes(':') && isIP(name) === 6
}

function isLoopbackAddress(address: string): boolean {
  return address === '::1' || address.startsWith('127.') || address.startsWith('::ffff:127.')
}

function notServed(host: string): Refusal {
  const named = HOST_AND_PORT.test(host) && host.length <= 255 ? `the host "${host}"` : 'this Host header'
  const mend = 'call it by "localhost" or 127.0.0.1, or add the name to http_allowed_hosts'
  return new Refusal('permission_denied', `${named} is not served on this loopback address: ${mend}`)
}
