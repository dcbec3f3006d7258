/** The reads of a drill: given paths, or a random sample of the secrets that its token may read. */
import { randomInt } from 'node:crypto'
import { messageOf } from '../../../../platform/errors.ts'
import { sendRequest, type CoreAccess, requireResponse } from '../../../core/core-access.ts'
import { isJsonObject } from '../../../output/json.ts'
import { escapeLine } from '../../../framework/terminal-escapes.ts'
import type { TimedSteps } from './progress.ts'

/** Attempts per sample: a random walk may end at a secret that was found already. */
const ATTEMPTS = 4
const DEPTH_MAX = 64

export interface ReadResult {
  readonly isGood: boolean
}

/** Prints a line per path; a failed read does not stop the others. */
export async function readPaths(core: CoreAccess, paths: readonly string[], steps: TimedSteps): Promise<ReadResult[]> {
  const results: ReadResult[] = []
  for (const path of paths) {
    const { isGood } = await steps.run(
      () => readOne(core, path, steps.signal),
      ({ text }) => `read ${escapeLine(path)}: ${text}`,
    )
    results.push({ isGood })
  }
  return results
}

async function readOne(core: CoreAccess, path: string, signal: AbortSignal): Promise<ReadResult & { text: string }> {
  try {
    const answer = await sendRequest(core, { path, signal })
    if (!answer) return { isGood: false, text: 'not found' }
    // A 404 with data: the latest version was deleted.
    return { isGood: true, text: answer.status === 404 ? 'deleted, metadata exists' : 'ok' }
  } catch (error) {
    return { isGood: false, text: messageOf(error) }
  }
}

interface MountPaths {
  /** Prefix of lists. */
  readonly list: string
  /** Prefix of reads. */
  readonly read: string
}

/** At most `count` distinct paths of secrets, round-robin over the mounts. Rejects with a CommandError. */
export async function samplePaths(core: CoreAccess, count: number, signal: AbortSignal): Promise<string[]> {
  const mounts = await kvMounts(core, signal)
  const listed = new Map<string, readonly string[]>()
  const paths = new Set<string>()
  for (let tries = 0; tries < count * ATTEMPTS && paths.size < count; tries++) {
    const mount = mounts[tries % mounts.length]
    const name = mount && (await randomSecret(mount.list))
    if (mount && name !== undefined) paths.add(`${mount.read}${name}`)
    if (mounts.length === 0) break
  }
  return [...paths]

  async function randomSecret(prefix: string): Promise<string | undefined> {
    let below = ''
    for (let depth = 0; depth < DEPTH_MAX; depth++) {
      const names = listed.get(prefix + below) ?? (await namesIn(core, prefix + below, signal))
      listed.set(prefix + below, names)
      const name = names.length === 0 ? undefined : names[randomInt(names.length)]
      if (name === undefined) return undefined
      below += name
      if (!name.endsWith('/')) return below
    }
    return undefined
  }
}

/** KV mounts that the token may see. */
async function kvMounts(core: CoreAccess, signal: AbortSignal): Promise<MountPaths[]> {
  const { fields } = await requireResponse(core, { path: 'sys/internal/ui/mounts', signal })
  const mounts = fields.under('data').value('secret')
  if (!isJsonObject(mounts)) return []
  return Object.entries(mounts).flatMap(([path, mount]) => {
    if (!isJsonObject(mount) || mount['type'] !== 'kv') return []
    const options = mount['options']
    const isVersioned = isJsonObject(options) && options['version'] === '2'
    return [isVersioned ? { list: `${path}metadata/`, read: `${path}data/` } : { list: path, read: path }]
  })
}

async function namesIn(core: CoreAccess, path: string, signal: AbortSignal): Promise<string[]> {
  const answer = await sendRequest(core, { path, query: { list: true }, signal })
  const keys = answer?.fields.under('data').value('keys')
  return Array.isArray(keys) ? keys.filter((key) => typeof key === 'string') : []
}
