/** The search in the list of hosts: words, and `key=value` for metadata. */
import type { ServerNodes } from '../../api/types.ts'

export type HostStub = ServerNodes[number] & {
  /** Seconds since the epoch. */
  readonly StatusUpdatedAt?: number
  /** Of the last heartbeat, if it is late. By the clock of the browser: the server sends the age. */
  readonly heartbeatAtMs?: number
}

export interface HostSearch {
  /** In lower case; all must occur in a field of the host. */
  readonly words: readonly string[]
  /** The server compares these, because lists have no metadata. */
  readonly meta: readonly (readonly [key: string, value: string])[]
}

/** A term: without spaces, or with a part in double quotes. */
const TERM = /(?:[^\s"]|"[^"]*"?)+/g

export function parseSearch(text: string): HostSearch {
  const words: string[] = []
  const meta: (readonly [string, string])[] = []
  for (const [term] of text.matchAll(TERM)) {
    const plain = term.replaceAll('"', '')
    const mark = plain.indexOf('=')
    if (mark > 0) meta.push([plain.slice(0, mark), plain.slice(mark + 1)])
    else if (plain !== '') words.push(plain.toLowerCase())
  }
  return { words, meta }
}

/** Texts of hosts in lower case, made once: a search compares thousands with each key press. */
const texts = new WeakMap<HostStub, string>()

function textOf(host: HostStub): string {
  let text = texts.get(host)
  if (text === undefined) {
    const { Address, Datacenter, ID, Name, NodeClass, NodePool, Version } = host
    text = [Name, ID, Address, NodeClass, NodePool, Datacenter, Version].join('\n').toLowerCase()
    texts.set(host, text)
  }
  return text
}

export function filterHosts(
  hosts: readonly HostStub[],
  { words }: HostSearch,
  status: string | undefined,
): readonly HostStub[] {
  if (words.length === 0 && status === undefined) return hosts
  return hosts.filter((host) => {
    if (status !== undefined && host.Status !== status) return false
    const text = textOf(host)
    return words.every((word) => text.includes(word))
  })
}

/** Numbers of hosts by status, most first. */
export function countStatuses(hosts: readonly HostStub[]): readonly (readonly [status: string, count: number])[] {
  const counts = new Map<string, number>()
  for (const { Status } of hosts) counts.set(Status, (counts.get(Status) ?? 0) + 1)
  return [...counts].toSorted(([, one], [, other]) => other - one)
}
