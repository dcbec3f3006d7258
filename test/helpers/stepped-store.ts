/**
 * A store that calls `passed` when a commit is about to be queued, is queued, and is durable. The callback may kill the
 * process.
 */
import type { Store } from '../../src/storage/store/store.ts'

export function steppedStore(real: Store, passed: () => void): Store {
  return {
    get: (name) => real.get(name),
    pending: (name) => real.pending(name),
    list: (prefix, options) => real.list(prefix, options),
    paths: (prefix, options) => real.paths(prefix, options),
    onFailure: (listener) => real.onFailure(listener),
    async commit(batch) {
      passed()
      const done = real.commit(batch)
      passed()
      const sequence = await done
      passed()
      return sequence
    },
  }
}
