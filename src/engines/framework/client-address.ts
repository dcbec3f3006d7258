/** Addresses of callers, in one form for each caller. */
import { isIPv6 } from 'node:net'

/** Groups of an IPv6 address that name a network: what one customer or one host has. */
const NETWORK_GROUPS = 4
const GROUPS = 8

/** Without a zone; IPv4 that is written as IPv6 in its own form. */
export function plainAddress(address: string): string {
  const zone = address.indexOf('%')
  const bare = zone < 0 ? address : address.slice(0, zone)
  return /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(bare)?.[1] ?? bare
}

/** What a caller is counted by: its IPv4 address, or its IPv6 network of 64 bits, of which one caller has all addresses. */
export function callerNetwork(remote: string): string {
  const address = plainAddress(remote)
  if (!isIPv6(address)) return address
  const [head = '', tail] = address.split('::')
  const front = groupsOf(head)
  const back = tail === undefined ? [] : groupsOf(tail)
  const zeros = Array.from({ length: Math.max(0, GROUPS - front.length - back.length) }, () => '0')
  const groups = [...front, ...zeros, ...back].slice(0, NETWORK_GROUPS)
  return `${groups.map((each) => Number.parseInt(each, 16).toString(16)).join(':')}::/64`
}

/** An IPv4 address at the end stands for two groups, which are none of the network's. */
function groupsOf(text: string): string[] {
  if (text === '') return []
  return text.split(':').flatMap((each) => (each.includes('.') ? ['0', '0'] : [each]))
}
