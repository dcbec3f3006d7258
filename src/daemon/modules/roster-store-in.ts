/** Connects the roster of the cluster module with its database in the storage module. */
import { parseRoster, type RosterStore } from '../../cluster/roster/roster-records.ts'
import type { RosterDatabase } from '../../storage/store/roster-store.ts'

/** Store of the roster in its database. */
export function rosterStoreIn(database: RosterDatabase): RosterStore {
  return {
    saveNode: (id, record, publicKey) => database.put('node', id, { record, publicKey }),
    saveAllocation: (id, record) => database.put('allocation', id, record),
    removeNode: (id) => database.remove('node', id),
    removeAllocation: (id) => database.remove('allocation', id),
    saveOwner: (id, owner) => database.put('claim', id, owner),
    removeOwner: (id) => database.remove('claim', id),
    load() {
      const [nodes, allocations, owners] = [database.rows('node'), database.rows('allocation'), database.rows('claim')]
      return parseRoster({ nodes, allocations, owners }, (table, id) => database.logUnreadable(table, id))
    },
  }
}
