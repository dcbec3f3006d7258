/** `sys/version-history` and `sys/internal/counters`. */
import { nextTurn } from '../../platform/scheduler.ts'
import type { Storage } from '../../storage/barrier/storage.ts'
import { path, type Path } from '../../engines/framework/engine.ts'
import type { OpenStores } from './core-parts.ts'
import { TOKENS_PREFIX } from '../tokens/token-entry.ts'
import { storedVersions } from './version-history.ts'

/** Entries per time slice of a few milliseconds */
const COUNTED_AT_ONCE = 5000

export function counterPaths(core: OpenStores<{ readonly storage: Storage }>): Path[] {
  return [
    path({
      pattern: 'version-history',
      summary: 'List the versions of this program that have served this core',
      fields: {},
      list() {
        const all = storedVersions(core.open.storage)
        const entries = all.map(({ installedAt, version }, at): [string, object] => {
          return [
            version,
            { build_date: '', previous_version: all[at - 1]?.version ?? null, timestamp_installed: installedAt },
          ]
        })
        return { data: { keys: all.map(({ version }) => version), key_info: Object.fromEntries(entries) } }
      },
    }),
    path({
      pattern: 'internal/counters/tokens',
      summary: 'Count the service tokens',
      fields: {},
      async read() {
        return { data: { counters: { service_tokens: { total: await countTokens(core.open.storage) } } } }
      },
    }),
  ]
}

/** Includes expired tokens that were not removed yet. Throws while the core is sealed. */
export async function countTokens(storage: Storage): Promise<number> {
  const prefix = `${TOKENS_PREFIX}id/`
  let total = 0
  for (const page of storage.pages(prefix, COUNTED_AT_ONCE)) {
    total += page.length
    await nextTurn()
  }
  return total
}
