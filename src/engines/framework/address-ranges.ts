/** The addresses that a token is bound to. */
import { BlockList, isIP } from 'node:net'
import { plainAddress } from './client-address.ts'
import { Rejection } from './engine.ts'

export class AddressRanges {
  readonly #list = new BlockList()

  /** Throws a Rejection (400) for a range that is none. */
  constructor(ranges: readonly string[]) {
    for (const each of ranges) this.#add(each)
  }

  #add(given: string): void {
    const { address, family, prefix } = rangeOf(given)
    this.#list.addSubnet(address, prefix, family)
  }

  /** False for an address that is not known. */
  includes(remote: string | undefined): boolean {
    if (remote === undefined) return false
    const address = plainAddress(remote)
    const family = isIP(address)
    return family !== 0 && this.#list.check(address, family === 4 ? 'ipv4' : 'ipv6')
  }
}

interface Range {
  readonly address: string
  readonly family: 'ipv4' | 'ipv6'
  readonly prefix: number
}

/** Throws a Rejection (400) for a range that is none. */
function rangeOf(given: string): Range {
  const slash = given.lastIndexOf('/')
  const address = plainAddress(slash < 0 ? given : given.slice(0, slash))
  const family = isIP(address)
  const bits = family === 4 ? 32 : 128
  const prefix = slash < 0 ? bits : prefixOf(given.slice(slash + 1), bits, given.includes(':') && family === 4)
  if (family === 0 || prefix === undefined) {
    throw new Rejection(
      400,
      `bound CIDRs: ${JSON.stringify(given.slice(0, 64))} is no address and no range such as "10.0.0.0/8"`,
    )
  }
  return { address, family: family === 4 ? 'ipv4' : 'ipv6', prefix }
}

/** Whether all addresses of a range are in one of the others. Throws a Rejection (400) for a range that is none. */
export function isRangeWithin(given: string, others: readonly string[]): boolean {
  const { address, family, prefix } = rangeOf(given)
  return others.some((each) => {
    const other = rangeOf(each)
    return other.family === family && other.prefix <= prefix && new AddressRanges([each]).includes(address)
  })
}

/**
 * The addresses that are in both of two lists, of which an empty one stands for all addresses; undefined where there is none. Two
 * ranges have nothing in common, or one is within the other. Throws a Rejection (400) for a range that is none.
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
