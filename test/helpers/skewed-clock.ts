/** Preloaded into a process: shifts its wall clock by `OUTPOST_TEST_SKEW_MS`. */
const skewMs = Number(process.env['OUTPOST_TEST_SKEW_MS'] ?? 0)
const now = Date.now

Date.now = () => now() + skewMs

/** The environment of a process with this clock skew. */
export function skewedBy(ms: number): Readonly<Record<string, string>> {
  return { OUTPOST_NODE_OPTIONS: `--import=${import.meta.filename}`, OUTPOST_TEST_SKEW_MS: String(ms) }
}
