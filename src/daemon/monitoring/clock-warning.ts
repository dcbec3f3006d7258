/** Warnings about clock skew between this process, nodes, servers and DR secondaries. */

/** `skewMs`: the clock of `host` minus the clock of `other`. */
export function clockWarning(host: string, skewMs: number, other = 'this server'): string {
  return `${skewText(host, skewMs, other)}: synchronize both clocks (NTP)`
}

/** `clock of node "web-7" is 40 s ahead of this server`. */
export function skewText(host: string, skewMs: number, other: string): string {
  const seconds = Math.round(Math.abs(skewMs) / 1000)
  return `clock of ${host} is ${seconds} s ${skewMs > 0 ? 'ahead of' : 'behind'} ${other}`
}
