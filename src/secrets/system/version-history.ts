/** The version of the API, and the versions of this program that have served a core. */
import * as v from 'valibot'
import { messageOf } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import type { Put, Storage } from '../../storage/barrier/storage.ts'

/**
 * The release of Vault that the tests compare commands and API with. Clients that support several releases decide by `version`
 * what to send: Terraform's provider manages static roles of the AWS engine only from 1.14.0 on. So this is the version of the
 * compatible API, and it must be a semantic version. Raise it together with the tests.
 */
const API_VERSION = '1.21.4'

const VERSIONS_PATH = 'core/versions'
/** The oldest are removed. */
const VERSIONS_MAX = 1000

const versionsSchema = v.array(v.object({ version: v.string(), installedAt: v.string() }))

/** In order of installation. */
export type ProgramVersions = v.InferOutput<typeof versionsSchema>

export function versionFacts(programVersion: string): { readonly version: string; readonly outpost_version: string } {
  return { version: API_VERSION, outpost_version: programVersion }
}

/** The entry to write when a version runs for the first time; undefined if the version is known. */
export function versionPut(known: ProgramVersions, version: string, nowMs: number): Put | undefined {
  if (known.some((each) => each.version === version)) return undefined
  const all = [...known, { version, installedAt: new Date(nowMs).toISOString() }].slice(-VERSIONS_MAX)
  return { path: VERSIONS_PATH, value: Buffer.from(JSON.stringify(all)) }
}

export function storedVersions(storage: Pick<Storage, 'get'>): ProgramVersions {
  const stored = storage.get(VERSIONS_PATH)
  const parsed = stored && v.safeParse(v.pipe(v.string(), v.parseJson(), versionsSchema), stored.toString('utf8'))
  return parsed?.success ? parsed.output : []
}

export interface RecordedVersion {
  readonly storage: Storage
  readonly version: string
  readonly nowMs: number
  readonly logger: Logger
}

/** Stores a version that runs for the first time, in the background. */
export function recordVersion({ storage, version, nowMs, logger }: RecordedVersion): void {
  const put = versionPut(storedVersions(storage), version, nowMs)
  if (!put) return
  storage.commit({ puts: [put], deletes: [] }).catch((error: unknown) => {
    logger.warn('version history write failed', { error: messageOf(error) })
  })
}
