/**
 * The one option of a kv mount: whether its secrets have versions. A mount without it has version 1. The option is stored only
 * where the caller gave it: clients that manage mounts compare the options that they read with those that they set.
 */
import { type CheckedOptions, type MountOptions, Rejection } from '../../framework/engine.ts'

/** Each secret is kept in the same form with both versions: there is nothing to wait for. */
const UPGRADED = 'the mount has version 2 now: each secret is version 1 of itself, below data/'

/** `before` is there when a mount is tuned. Throws a Rejection (400). */
export function checkVersion(given: MountOptions, before?: MountOptions): CheckedOptions {
  const { version = '1' } = given
  if (before?.['version'] === '2' && version === '1') throw new Rejection(400, 'cannot downgrade mount from version 2')
  if (version !== '1' && version !== '2') throw new Rejection(400, 'the version of a kv mount is 1 or 2')
  const isUpgraded = before !== undefined && before['version'] !== '2' && version === '2'
  return { options: { ...given }, ...(isUpgraded && { warnings: [UPGRADED] }) }
}
