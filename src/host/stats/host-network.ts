/** Network counters of the host. Nomad's HostStats has none, so they are in a response only if the caller asks for them. */
import { existsSync } from 'node:fs'
import { readProcFile } from './proc-file.ts'

/** Bytes since the interface was created. */
export interface NetworkStats {
  readonly Interface: string
  readonly ReceivedBytes: number
  readonly SentBytes: number
}

export interface NetworkRoots {
  readonly procRoot: string
  readonly sysRoot: string
}

/** Above the number of interfaces of real hosts; a host of containers has one for each of them. */
const INTERFACES_MAX = 4096
const LINE = /^\s*([^\s:]+):\s*(\d+)(?:\s+\d+){7}\s+(\d+)/gm

/**
 * The physical interfaces, because those of bridges and containers count the same bytes again. In a container, which has none, all
 * except the loopback interface. Empty if the kernel reports none.
 */
export function networkStats({ procRoot, sysRoot }: NetworkRoots): NetworkStats[] {
  const text = readProcFile(`${procRoot}/net/dev`) ?? ''
  const all = [...text.matchAll(LINE).take(INTERFACES_MAX)].map(([, name = '', received, sent]) => ({
    Interface: name,
    ReceivedBytes: Number(received),
    SentBytes: Number(sent),
  }))
  const physical = all.filter(({ Interface }) => existsSync(`${sysRoot}/class/net/${Interface}/device`))
  return physical.length > 0 ? physical : all.filter(({ Interface }) => Interface !== 'lo')
}
