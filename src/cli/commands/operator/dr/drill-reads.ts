/** What a drill reads from its copy: paths that were given, or a sample of the versioned and plain secrets that its token may read. */
import { randomInt } from 'node:crypto'
import { messageOf } from '../../../../platform/errors.ts'
import { askCore, type CoreAccess, requireCore } from '../../../core/core-access.ts'
import { isJsonObject } from '../../../output/exact-json.ts'
import { shownName } from '../../../framework/shown.ts'
import type { Steps } from './steps.ts'

/** A walk down that ends at a secret which was found before is tried so often. */
const TRIES = 4
const DEPTH_MAX = 64

export interface ReadOutcome {
  readonly isGood: boolean
}

/** A line for each; what could not be read is said and ends nothing. */
export async function readPaths(core: CoreAccess, paths: readonly string[], steps: Steps): Promise<ReadOutcome[]> {
  const outcomes: ReadOutcome[] = []
  for (const path of paths) {
    const { isGood } = await steps.run(
      () => readOne(core, path, steps.signal),
      ({ said }) => `read ${shownName(path)}: ${said}`,
    )
    outcomes.push({ isGood })
  }
  return outcomes
}

async function readOne(core: CoreAccess, path: string, signal: AbortSignal): Promise<ReadOutcome & { said: string }> {
  try {
    const answer = await askCore(core, { path, signal })
    if (!answer) return { isGood: false, said: 'nothing is there' }
    // It has metadata: its newest version was deleted.
    return { isGood: true, said: answer.status === 404 ? 'deleted, its metadata is there' : 'read' }
  } catch (error) {
    return { isGood: false, said: messageOf(error) }
  }
}

interface Root {
  /** Where names are listed, and where a name is read. */
  readonly listed: string
  readonly read: string
}

/** At most `count` paths of secrets, each once, mounts in turn. Rejects with a CommandError. */
export async function samplePaths(core: CoreAccess, count: number, signal: AbortSignal): Promise<string[]> {
  const roots = await rootsOf(core, signal)
  const known = new Map<string, readonly string[]>()
  const found = new Set<string>()
  for (let tries = 0; tries < count * TRIES && found.size < count; tries++) {
    const root = roots[tries % roots.length]
    const name = root && (await leafBelow(root.listed))
    if (root && name !== undefined) found.add(`${root.read}${name}`)
    if (roots.length === 0) break
  }
  return [...found]

  async function leafBelow(listed: string): Promise<string | undefined> {
    let below = ''
    for (let depth = 0; depth < DEPTH_MAX; depth++) {
      const names = known.get(listed + below) ?? (await namesIn(core, listed + below, signal))
      known.set(listed + below, names)
      const name = names.length === 0 ? undefined : names[randomInt(names.length)]
      if (name === undefined) return undefined
      below += name
      if (!name.endsWith('/')) return below
    }
    return undefined
  }
}

/** Mounts of secrets that the token may see. */
async function rootsOf(core: CoreAccess, signal: AbortSignal): Promise<Root[]> {
  const { fields } = await requireCore(core, { path: 'sys/internal/ui/mounts', signal })
  const mounts = fields.under('data').value('secret')
  if (!isJsonObject(mounts)) return []
  return Object.entries(mounts).flatMap(([path, mount]) => {
    if (!isJsonObject(mount) || mount['type'] !== 'kv') return []
    const options = mount['options']
    const isVersioned = isJsonObject(options) && options['version'] === '2'
    return [isVersioned ? { listed: `${path}metadata/`, read: `${path}data/` } : { listed: path, read: path }]
  })
}

async function namesIn(core: CoreAccess, path: string, signal: AbortSignal): Promise<string[]> {
  const answer = await askCore(core, { path, query: { list: true }, signal })
  const keys = answer?.fields.under('data').value('keys')
  return Array.isArray(keys) ? keys.filter((key) => typeof key === 'string') : []
}
