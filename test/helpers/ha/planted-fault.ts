/**
 * Preloaded into a server: plants a defect in the module `ha`, which the checker must find. It replaces text of one source file while
 * Node loads it, so the program has no switch for it. The server must run from its sources (`LAUNCHER`), not from a bundle.
 */
import { readFileSync } from 'node:fs'
import { registerHooks } from 'node:module'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'

interface PlantedDefect {
  readonly file: string
  readonly before: string
  readonly after: string
}

const ROOT = resolve(import.meta.dirname, '../../..')
export const LAUNCHER = resolve(ROOT, 'bin/outpost')

export const PLANTED_DEFECTS = {
  'lease twice as long': {
    file: 'src/ha/lease/lease.ts',
    before: 'this.#options.nowMs() < this.#validUntilMs',
    after: 'this.#options.nowMs() < this.#validUntilMs + 2 * TIMINGS.haLeaseMs',
  },
  'acknowledgement before that of the stream': {
    file: 'src/ha/stream/stream-commit-log.ts',
    before: 'open.last = await stream.publish(part, open.last, open.ended.signal)',
    after: 'void stream.publish(part, open.last++, open.ended.signal).catch(() => undefined)',
  },
  'no fence in the stream': {
    file: 'src/ha/stream/commit-stream.ts',
    before: 'expect: { lastSequence: last },',
    after: '',
  },
  'no check of an answer': {
    file: 'src/ha/ha-routing.ts',
    before: 'const isSameTerm = server.isServing && server.lease?.term === term',
    after: 'const isSameTerm = true',
  },
} as const satisfies Readonly<Record<string, PlantedDefect>>

export type DefectName = keyof typeof PLANTED_DEFECTS

function isDefectName(name: string): name is DefectName {
  return Object.hasOwn(PLANTED_DEFECTS, name)
}

/** The environment of a server with this defect. */
export function plantedIn(defect: DefectName): Readonly<Record<string, string>> {
  return { OUTPOST_NODE_OPTIONS: `--import=${import.meta.filename}`, OUTPOST_TEST_PLANTED: defect }
}

const name = process.env['OUTPOST_TEST_PLANTED'] ?? ''
if (isDefectName(name)) {
  const { after, before, file } = PLANTED_DEFECTS[name]
  const url = pathToFileURL(resolve(ROOT, file)).href
  registerHooks({
    load(loaded, context, nextLoad) {
      const result = nextLoad(loaded, context)
      if (loaded !== url) return result
      const text = readFileSync(resolve(ROOT, file), 'utf8')
      if (text.split(before).length !== 2) throw new Error(`${file} must have this text once: ${before}`)
      return { ...result, source: text.replace(before, after) }
    },
  })
}
