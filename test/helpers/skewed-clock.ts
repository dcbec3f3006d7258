/** Preloaded into a process: its wall clock differs by `OUTPOST_TEST_SKEW_MS` from that of the machine. */
const skewMs = Number(process.env['OUTPOST_TEST_SKEW_MS'] ?? 0)
const now = Date.now

Date.now = () => now() + skewMs

/** The environment of a process whose clock differs by so much. */
export function skewedBy(ms: number): Readonly<Record<string, string>> {
  return { OUTPOST_NODE_OPTIONS: `--import=${import.meta.filename}`, OUTPOST_TEST_SKEW_MS: String(ms) }
}
