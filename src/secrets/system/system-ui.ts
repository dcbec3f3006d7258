/**
 * `sys/internal/ui/mounts`: the mounts that a caller may see. Commands call it first to learn the engine of a path, so it is
 * served to every caller with any permission below a mount.
 */
import { type Caller, path, type Path, Rejection } from '../../engines/framework/engine.ts'
import { inPath } from '../../engines/framework/fields.ts'
import type { PolicyEvaluator, WithOptions, OpenStores } from './core-parts.ts'
import { mountInfo, publicMountInfo } from '../mounts/mount-info.ts'
import { AUTH_PREFIX, isAuthPath } from '../mounts/mount-record.ts'
import type { Mount, MountTable } from '../mounts/mounts.ts'

type UiMountParts = PolicyEvaluator & WithOptions<'version'> & OpenStores<{ readonly mounts: MountTable }>

export function uiMountPaths(core: UiMountParts): Path[] {
  return [
    path({
      pattern: 'internal/ui/mounts',
      summary: 'List the mounts that the caller can access, and those that are listed without a token',
      tokenOptional: true,
      fields: {},
      read(_input, { caller }) {
        const [secret, auth]: [Record<string, unknown>, Record<string, unknown>] = [{}, {}]
        for (const mount of core.open.mounts.all()) {
          const info = visibleInfo(core, caller, mount)
          const { path: at } = mount.record
          if (!info) continue
          if (isAuthPath(at)) auth[at.slice(AUTH_PREFIX.length)] = info
          else secret[at] = info
        }
        return { data: { auth, secret } }
      },
    }),
    path({
      pattern: 'internal/ui/mounts/:path*',
      summary: 'Read the mount of a path, for callers with any permission below it',
      tokenOptional: true,
      fields: { path: inPath('Path of a mount or of anything below one') },
      read({ path: at }, { caller }) {
        if (caller.tokenHash === '') throw new Rejection(403, 'permission denied')
        const mount = core.open.mounts.find(at)?.mount
        if (!mount || !reaches(core, caller, mount)) {
          const shown = at.endsWith('/') ? at : `${at}/`
          const text = "preflight capability check returned 403, please ensure client's policies grant access to path"
          throw new Rejection(403, `${text} "${shown}"`)
        }
        return { data: { ...mountInfo(mount, core.options.version), path: mount.record.path } }
      },
    }),
  ]
}

function visibleInfo(core: UiMountParts, caller: Caller, mount: Mount): Record<string, unknown> | undefined {
  if (reaches(core, caller, mount)) return mountInfo(mount, core.options.version)
  return mount.record.config.listingVisibility === 'unauth' ? publicMountInfo(mount) : undefined
}

/** True if the caller's policies allow anything at or below a mount. */
function reaches(core: UiMountParts, caller: Caller, { record }: Mount): boolean {
  return caller.tokenHash !== '' && core.aclOf(caller).allowsAnythingUnder(record.path)
}
