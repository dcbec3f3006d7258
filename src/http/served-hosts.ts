/**
 * Host names that are allowed on a loopback listener, against DNS rebinding.
 *
 * A web page whose host name resolves to 127.0.0.1 is of the same origin as the listener, so its browser lets it send any request and
 * read any response. The Host header, which no page can choose, reveals it. A call from this machine uses a loopback address,
 * `localhost`, or a name from the configuration.
 */
import type { IncomingMessage } from 'node:http'
import { isIP } from 'node:net'
import { Refusal } from '../platform/errors.ts'

const LOOPBACK = /^(?:localhost|.+\.localhost|127(?:\.\d{1,3}){3}|\[::1\]|\[::ffff:7f[\da-f]{2}:[\da-f]{1,4}\])$/
/** Host and optional port of RFC 3986, without percent-encoding and zone. */
const HOST_AND_PORT = /^(?:\[[\da-f:.]+\]|[\w.-]+)(?::\d{0,5})?$/i
/** Cached valid headers; above it the cache is cleared. */
const REMEMBERED_MAX = 64

export class ServedHosts {
  #names: ReadonlySet<string>
  readonly #remembered = new Set<string>()

  /** `names`: additional hosts; the port of `host:port` is ignored. */
  constructor(names: readonly string[]) {
    this.#names = namesOf(names)
  }

  /** From the next request on. */
  set(names: readonly string[]): void {
    this.#names = namesOf(names)
    this.#remembered.clear()
  }

  /** Throws a Refusal (403) for a request on loopback with an unknown host name. */
  check(request: IncomingMessage): void {
    const { host } = request.headers
    if (host !== undefined && this.#remembered.has(host)) return
    if (!isLoopbackAddress(request.socket.localAddress ?? '')) return
    // Only HTTP/1.0 allows requests without Host (Node refuses others), and browsers do not use it.
    if (host === undefined) return
    const name = canonicalName(host)
    if (name === undefined || !(LOOPBACK.test(name) || this.#names.has(name))) throw notServed(host)
    if (this.#remembered.size >= REMEMBERED_MAX) this.#remembered.clear()
    this.#remembered.add(host)
  }
}

/** Canonical host name: lower case, without port and final dot, addresses in their shortest form. */
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

/** Checks the colon first: Node's pattern for IPv6 addresses takes 4 ms to compile. */
function isAddress6(name: string): boolean {
  return name.includes(':') && isIP(name) === 6
}

function isLoopbackAddress(address: string): boolean {
  return address === '::1' || address.startsWith('127.') || address.startsWith('::ffff:127.')
}

function notServed(host: string): Refusal {
  const named = HOST_AND_PORT.test(host) && host.length <= 255 ? `the host "${host}"` : 'this Host header'
  const remedy = 'use "localhost" or 127.0.0.1, or add the name to http_allowed_hosts'
  return new Refusal('permission_denied', `${named} is not served on this loopback address: ${remedy}`)
}
