/**
 * The successor of a root key, for standby servers of the same cluster. A rekey replaces the root key, and a standby holds the replaced
 * one: without its successor it could not take over before key holders unseal it again. So the batch of the rekey has the new root key,
 * encrypted with the replaced one, under a name that is derived from the replaced one. A standby reads it when the keyring has changed.
 * The active server removes it after a minute.
 *
 * The log keeps the batch as long as it keeps others: until then a replaced root key with the log opens the new one.
 */
import { createHmac } from 'node:crypto'
import type { Put } from '../sqlite/batch.ts'
import type { Store } from '../store/store.ts'
import { decrypt, encrypt } from './cipher.ts'

export const SUCCESSORS = 'core/root-key-successor/'
/** A root key has no term. */
const NO_TERM = 0

export function successorEntry(replaced: Buffer, rootKey: Buffer): Put {
  const path = pathOf(replaced)
  return { path, value: encrypt(path, rootKey, { term: NO_TERM, key: replaced }) }
}

/** Undefined if none is stored. Throws a Fault for a damaged entry. The caller overwrites it. */
export function successorOf(store: Pick<Store, 'get'>, replaced: Buffer): Buffer | undefined {
  const path = pathOf(replaced)
  const entry = store.get(path)
  return entry && decrypt(path, entry.value, () => replaced)
}

function pathOf(rootKey: Buffer): string {
  return SUCCESSORS + createHmac('sha256', rootKey).update('successor').digest('hex')
}
