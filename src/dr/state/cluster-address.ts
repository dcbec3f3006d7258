/** Finds cluster addresses of a primary that secondaries on other hosts cannot reach. */

const LOOPBACK = /^(?:localhost|127(?:\.\d{1,3}){3}|\[?::1\]?)$/i
const WILDCARD = /^(?:0\.0\.0\.0|\[?::\]?)$/
const LISTEN_NEXT =
  'set addresses.cluster (or bind_addr) to an address of this host that secondaries reach, and restart it'

/**
 * `announced`: what activation tokens contain. `given`: the part of it that an operator gave as primary_cluster_addr; empty where the
 * configuration decides. `listenHost`: where the cluster port listens.
 */
export function clusterAddressWarnings(announced: string, given: string, listenHost: string): readonly string[] {
  const host = hostOf(announced)
  const change =
    given === ''
      ? `${LISTEN_NEXT}; set advertise.cluster if secondaries use another address`
      : 'it was given as primary_cluster_addr: enable the primary again with an address that secondaries reach'
  if (LOOPBACK.test(host))
    return [`the cluster address ${announced} is on loopback, a secondary on another host cannot reach it: ${change}`]
  if (WILDCARD.test(host)) {
    return [
      `the cluster address ${announced} names no host, a secondary on another host cannot reach it: set advertise.cluster to the address that secondaries use, and restart this server`,
    ]
  }
  if (!LOOPBACK.test(listenHost)) return []
  return [
    `the cluster port listens on ${listenHost} only, a secondary on another host reaches ${announced} only through a proxy on this host: ${LISTEN_NEXT}`,
  ]
}

function hostOf(address: string): string {
  return address.replace(/^https:\/\//, '').replace(/:\d+\/?$/, '')
}
