/**
 * Preloaded into a server: plants a defect in the module `ha`, which the checker must find. It replaces text of source files while
 * Node loads them, so the program has no switch for it. The server must run from its sources (`LAUNCHER`), not from a bundle.
 */
import { readFileSync } from 'node:fs'
import { registerHooks } from 'node:module'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'

interface PlantedEdit {
  readonly file: string
  /** Occurs once in the file (`test/mutant-list.test.ts`). */
  readonly before: string
  readonly after: string
}

const ROOT = resolve(import.meta.dirname, '../../..')
export const LAUNCHER = resolve(ROOT, 'bin/outpost')

/** The server serves until its timer notices that the lease has ended: a process that continues after a pause serves first. */
const NO_LEASE_CHECK: PlantedEdit = {
  file: 'src/ha/ha-server.ts',
  before: "return this.#phase === 'active' && (this.#parts?.lease.isValid ?? false)",
  after: "return this.#phase === 'active'",
}

export const PLANTED_DEFECTS = {
  'lease twice as long': [
    {
      file: 'src/ha/lease/lease.ts',
      before: 'this.#options.nowMs() < this.#validUntilMs',
      after: 'this.#options.nowMs() < this.#validUntilMs + 2 * TIMINGS.haLeaseMs',
    },
  ],
  'acknowledgement before that of the stream': [
    {
      file: 'src/ha/stream/stream-commit-log.ts',
      before: 'open.last = await publishMessage(stream, message, open.last, open.ended.signal)',
      after: 'void publishMessage(stream, message, open.last++, open.ended.signal).catch(() => undefined)',
    },
  ],
  // The stream decides only when the lease does not.
  'no fence in the stream': [
    NO_LEASE_CHECK,
    { file: 'src/ha/stream/commit-stream.ts', before: 'expect: { lastSequence: last },', after: '' },
  ],
  'no check of the lease': [NO_LEASE_CHECK],
} as const satisfies Readonly<Record<string, readonly PlantedEdit[]>>

export type DefectName = keyof typeof PLANTED_DEFECTS

function isDefectName(name: string): name is DefectName {
  return Object.hasOwn(PLANTED_DEFECTS, name)
}

/** The environment of a server with this defect. */
export function plantedIn(defect: DefectName): Readonly<Record<string, string>> {
  return { OUTPOST_NODE_OPTIONS: `--import=${import.meta.filename}`, OUTPOST_TEST_PLANTED: defect }
}

/** The source with the defect. Throws an Error for a text that does not occur once. */
export function withDefect(edits: readonly PlantedEdit[], root = ROOT): ReadonlyMap<string, string> {
  const sources = new Map<string, string>()
  for (const { after, before, file } of edits) {
    const path = resolve(root, file)
    const text = sources.get(path) ?? readFileSync(path, 'utf8')
    if (text.split(before).length !== 2) throw new Error(`${file} must have this text once: ${before}`)
    sources.set(path, text.replace(before, after))
  }
  return sources
}

const name = process.env['OUTPOST_TEST_PLANTED'] ?? ''
if (isDefectName(name)) {
  const sources = new Map(
    [...withDefect(PLANTED_DEFECTS[name])].map(([path, text]) => [pathToFileURL(path).href, text]),
  )
  registerHooks({
    load(url, context, nextLoad) {
      const result = nextLoad(url, context)
      const source = sources.get(url)
      return source === undefined ? result : { ...result, source }
    },
  })
}
