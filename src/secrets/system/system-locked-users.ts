/** `sys/locked-users`: user names and role IDs that are temporarily locked after failed logins. */
import { path, type Path } from '../../engines/framework/engine.ts'
import { inPath, text } from '../../engines/framework/fields.ts'
import type { UserLockout } from '../logins/user-lockout.ts'
import { isAuthPath } from '../mounts/mount-record.ts'
import type { MountTable } from '../mounts/mounts.ts'
import type { OpenStores } from './core-parts.ts'

type LockedParts = OpenStores<{ readonly mounts: MountTable; readonly userLockout: UserLockout }>

export function lockedUserPaths(core: LockedParts): Path[] {
  return [
    path({
      pattern: 'locked-users',
      summary: 'List the locked names by auth method',
      fields: { mount_accessor: text('Only names of this auth method', { fallback: '' }) },
      async read({ mount_accessor: requested }) {
        const { mounts: table, userLockout } = core.open
        await userLockout.ready()
        const mounts = table.all().filter(({ record }) => {
          return isAuthPath(record.path) && (requested === '' || record.accessor === requested)
        })
        const counts = mounts.flatMap((mount) => {
          const names = userLockout.locked(mount)
          const { accessor } = mount.record
          return names.length > 0 ? [{ mount_accessor: accessor, counts: names.length, alias_identifiers: names }] : []
        })
        const total = counts.reduce((sum, each) => sum + each.counts, 0)
        const all = { namespace_id: 'root', namespace_path: '', counts: total, mount_accessors: counts }
        return { data: { by_namespace: total > 0 ? [all] : [], total } }
      },
    }),
    path({
      pattern: 'locked-users/:mount_accessor/unlock/:alias_identifier',
      summary: 'Unlock a user name or a role ID',
      fields: {
        mount_accessor: inPath('Accessor of the auth method'),
        alias_identifier: inPath('Name of the user, or ID of the role', { fold: 'case' }),
      },
      sudo: true,
      async update({ alias_identifier: name, mount_accessor: accessor }) {
        await core.open.userLockout.unlock(accessor, name)
        return undefined
      },
    }),
  ]
}
