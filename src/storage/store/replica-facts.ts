/** What a database says of its role in replication. */
import type { DatabaseSync } from 'node:sqlite'
import { Fault } from '../../platform/errors.ts'
import { factIn } from '../sqlite/facts.ts'
import type { Position } from '../sqlite/log-row.ts'
import type { StoreRole } from './replica.ts'

export interface ReplicaState {
  readonly role: StoreRole
  readonly isWhole: boolean
  readonly epoch: number
  readonly position: Position
}

export function roleIn(database: DatabaseSync): StoreRole {
  const role = factIn(database, 'role') ?? 'own'
  if (role === 'own' || role === 'replica' || role === 'fenced') return role
  throw new Fault('the role of the database is damaged')
}

/** False while a copy is under way. */
export function isWholeIn(database: DatabaseSync): boolean {
  return factIn(database, 'copy') !== true
}
