/** Warnings about clock skew between this process, nodes, servers and DR secondaries. */

/** Threshold of the warning. Nodes refuse calls above 60 s; activation of secondaries fails above 5 minutes. */
export const SKEW_WARNING_MS = 30_000

/** `skewMs`: the clock of `who` minus the clock of `other`. */
export function clockWarning(who: string, skewMs: number, other = 'this server'): string {
  const seconds = Math.round(Math.abs(skewMs) / 1000)
  return `clock of ${who} is ${seconds} s ${skewMs > 0 ? 'ahead of' : 'behind'} ${other}: synchronize both clocks (NTP)`
}
