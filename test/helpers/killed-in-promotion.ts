/**
 * Preloaded into a process with `OUTPOST_TEST_KILL`: kills the process during a promotion, once the first step is
 * durable.
 */
import { resolve } from 'node:path'
import { SqliteStore } from '../../src/storage/store/store.ts'

if (process.env['OUTPOST_TEST_KILL'] === 'promotion') {
  const open = SqliteStore.open.bind(SqliteStore)
  SqliteStore.open = async (...args) => {
    const store = await open(...args)
    const setRole = store.setRole.bind(store)
    store.setRole = (role, epoch) => {
      if (role === 'own' && epoch !== undefined && store.role === 'replica') process.kill(process.pid, 'SIGKILL')
      return setRole(role, epoch)
    }
    return store
  }
}

/** The environment of such a process. */
export const KILLED_IN_PROMOTION = {
  OUTPOST_NODE_OPTIONS: `--import=${import.meta.filename}`,
  OUTPOST_TEST_KILL: 'promotion',
  OUTPOST_TEST_PROGRAM: resolve(import.meta.dirname, '../../bin/outpost'),
}
