/** The text of a warning about clocks that differ: of nodes and of DR secondaries alike. */

/** From here on a difference is reported. Calls to nodes are refused from 60 s on, activations of secondaries from 5 minutes on. */
export const SKEW_WARNING_MS = 30_000

/** `skewMs`: the clock of `who` minus the clock of this server. */
export function clockWarning(who: string, skewMs: number): string {
  const seconds = Math.round(Math.abs(skewMs) / 1000)
  return `clock of ${who} is ${seconds} s ${skewMs > 0 ? 'ahead of' : 'behind'} this server: set both clocks right (NTP)`
}
