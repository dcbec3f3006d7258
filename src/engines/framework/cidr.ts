/** CIDR ranges that tokens and logins are bound to (`token_bound_cidrs`), and the addresses of callers. */
import { BlockList, isIP, isIPv6 } from 'node:net'
import { Rejection } from './engine.ts'

export class CidrRanges {
  readonly #list = new BlockList()

  /** Throws a Rejection (400) for an invalid range. */
  constructor(ranges: readonly string[]) {
    for (const each of ranges) this.#add(each)
  }

  #add(given: string): void {
    const { address, family, prefix } = rangeOf(given)
    this.#list.addSubnet(address, prefix, family)
  }

  /** False for an unknown address. */
  includes(remote: string | undefined): boolean {
    if (remote === undefined) return false
    const address = plainAddress(remote)
    const family = isIP(address)
    return family !== 0 && this.#list.check(address, family === 4 ? 'ipv4' : 'ipv6')
  }
}

interface CidrRange {
  readonly address: string
  readonly family: 'ipv4' | 'ipv6'
  readonly prefix: number
}

/** Throws a Rejection (400) for an invalid range. */
function rangeOf(given: string): CidrRange {
  const slash = given.lastIndexOf('/')
  const address = plainAddress(slash < 0 ? given : given.slice(0, slash))
  const family = isIP(address)
  const bits = family === 4 ? 32 : 128
  const prefix = slash < 0 ? bits : prefixOf(given.slice(slash + 1), bits, given.includes(':') && family === 4)
  if (family === 0 || prefix === undefined) {
    throw new Rejection(
      400,
      `bound CIDRs: ${JSON.stringify(given.slice(0, 64))} is not an address or a range such as "10.0.0.0/8"`,
    )
  }
  return { address, family: family === 4 ? 'ipv4' : 'ipv6', prefix }
}

/** Whether one of the others contains a range. Throws a Rejection (400) for an invalid range. */
export function isRangeWithin(given: string, others: readonly string[]): boolean {
  const { address, family, prefix } = rangeOf(given)
  return others.some((each) => {
    const other = rangeOf(each)
    return other.family === family && other.prefix <= prefix && new CidrRanges([each]).includes(address)
  })
}

/**
 * The intersection of two lists of ranges. An empty list stands for all addresses, so undefined is the empty intersection. Two
 * ranges are disjoint, or one contains the other. Throws a Rejection (400) for an invalid range.
 */
export function rangesInBoth(some: readonly string[], others: readonly string[]): readonly string[] | undefined {
  if (some.length === 0) return others
  if (others.length === 0) return some
  const within = some.filter((each) => isRangeWithin(each, others))
  const around = others.filter((each) => isRangeWithin(each, some))
  const both = [...new Set([...within, ...around])]
  return both.length > 0 ? both : undefined
}

function prefixOf(text: string, bits: number, isMapped: boolean): number | undefined {
  if (!/^\d{1,3}$/.test(text)) return undefined
  const prefix = Number(text) - (isMapped ? 96 : 0)
  return prefix >= 0 && prefix <= bits ? prefix : undefined
}

/** Groups of an IPv6 address that identify a network (/64), which is assigned to one customer or host. */
const NETWORK_GROUPS = 4
const GROUPS = 8

/** The address without its zone, and an IPv4-mapped IPv6 address as IPv4. */
function plainAddress(address: string): string {
  const zone = address.indexOf('%')
  const bare = zone < 0 ? address : address.slice(0, zone)
  return /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(bare)?.[1] ?? bare
}

/** Key for limits per caller: the IPv4 address, or the IPv6 /64 network, as one caller may use all its addresses. */
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

/** A trailing IPv4 address stands for two groups, which are not part of the network. */
function groupsOf(text: string): string[] {
  if (text === '') return []
  return text.split(':').flatMap((each) => (each.includes('.') ? ['0', '0'] : [each]))
}
