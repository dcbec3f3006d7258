/** A barrier with a seal on a real store, for the tests of the seal. */
import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { Barrier } from '../../../src/storage/barrier/barrier.ts'
import type { InitRequest } from '../../../src/storage/seal/initial-shares.ts'
import type { SealSettings } from '../../../src/storage/seal/static-key.ts'
import { Seal, type SealOptions } from '../../../src/storage/seal/seal.ts'
import { SqliteStore } from '../../../src/storage/store/store.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

export const SHAMIR: SealSettings = { type: 'shamir' }
export const NONE = { shares: 0, threshold: 0, pgpKeys: [] }
export const FIRST = { rootToken: 's.the-root-token', puts: [{ path: 'sys/first', value: Buffer.from('first entry') }] }

export function asking(shares: number, threshold: number, more: Partial<InitRequest> = {}): InitRequest {
  return { unseal: { shares, threshold, pgpKeys: [] }, recovery: NONE, rootTokenPgpKey: '', ...more }
}

export function askingRecovery(shares: number, threshold: number): InitRequest {
  return { unseal: NONE, recovery: { shares, threshold, pgpKeys: [] }, rootTokenPgpKey: '' }
}

/** A static seal with the key `id`, which is made of the digit that ends it. */
export function machineKey(id: string): SealSettings & { readonly type: 'static' } {
  return { type: 'static', disabled: false, current: { id, source: (id.at(-1) ?? '0').repeat(64) } }
}

export interface SealWorld {
  readonly path: string
  readonly store: SqliteStore
  readonly barrier: Barrier
  readonly seal: Seal
}

export async function sealWorld(t: TestContext, settings = SHAMIR, options: SealOptions = {}): Promise<SealWorld> {
  const path = join(temporaryDirectory(t), 'secrets.db')
  const store = await SqliteStore.open(path)
  t.after(() => store.close())
  const barrier = new Barrier(store)
  return { path, store, barrier, seal: new Seal(store, barrier, settings, options) }
}

/** The same store in the next process. */
export function restarted({ path, store, seal: before }: SealWorld, settings = SHAMIR, options: SealOptions = {}) {
  before.resetUnseal()
  const barrier = new Barrier(store)
  return { path, store, barrier, seal: new Seal(store, barrier, settings, options) }
}

/** Gives the shares in turn; true when the last one has opened it. */
export async function give(seal: Seal, shares: readonly Buffer[], migrate = false): Promise<boolean> {
  let isOpen = false
  // The seal owns what it is given, and overwrites it.
  for (const share of shares) isOpen = await seal.unseal(Buffer.from(share), migrate)
  return isOpen
}

/** A share that is of the right form and of nothing. */
export function foreignShare(x: number): Buffer {
  return Buffer.concat([randomBytes(32), Buffer.from([x])])
}
