/** The versions of this program that have served a core, kept with it. */
import * as v from 'valibot'
import type { Put, Storage } from '../../storage/barrier/storage.ts'

const VERSIONS_PATH = 'core/versions'
/** The oldest are forgotten. */
const VERSIONS_MAX = 1000

const versionsSchema = v.array(v.object({ version: v.string(), installedAt: v.string() }))

/** In the order in which they came. */
export type Versions = v.InferOutput<typeof versionsSchema>

/** What is to be written when a version runs for the first time; undefined when it has run here before. */
export function versionNote(known: Versions, version: string, nowMs: number): Put | undefined {
  if (known.some((each) => each.version === version)) return undefined
  const all = [...known, { version, installedAt: new Date(nowMs).toISOString() }].slice(-VERSIONS_MAX)
  return { path: VERSIONS_PATH, value: Buffer.from(JSON.stringify(all)) }
}

export function keptVersions(storage: Pick<Storage, 'get'>): Versions {
  const kept = storage.get(VERSIONS_PATH)
  const parsed = kept && v.safeParse(v.pipe(v.string(), v.parseJson(), versionsSchema), kept.toString('utf8'))
  return parsed?.success ? parsed.output : []
}
