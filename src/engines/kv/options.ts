/** The one option of a mount of secrets: whether they have versions. */
import { type CheckedOptions, type MountOptions, Rejection } from '../engine.ts'

/** What `version` may be; `1`, secrets without versions, is not served yet. */
const SERVED = new Set(['2'])

/** `before` is there when a mount is tuned. Throws a Rejection (400). */
export function checkVersion(given: MountOptions, before?: MountOptions): CheckedOptions {
  const { version = '1' } = given
  if (before?.['version'] === '2' && version === '1') throw new Rejection(400, 'cannot downgrade mount from version 2')
  if (version !== '1' && version !== '2') throw new Rejection(400, 'the version of a kv mount is 1 or 2')
  if (!SERVED.has(version)) {
    throw new Rejection(400, 'kv version 1 is not offered: enable type kv-v2, or kv with the option version=2')
  }
  return { options: { ...given, version } }
}
