/** `sys/mounts`, `sys/auth` and `sys/remount`: enables, disables, tunes and moves engines and auth methods. */
import { path, type Path, Rejection, type Reply } from '../../engines/framework/engine.ts'
import { inPath, type EngineInput, text } from '../../engines/framework/fields.ts'
import type { MountChanges } from '../mounts/mount-changes.ts'
import type { WithOptions, OpenStores } from './core-parts.ts'
import { mountInfo, tuneInfo } from '../mounts/mount-info.ts'
import { AUTH_PREFIX, isAuthPath } from '../mounts/mount-record.ts'
import {
  ENABLE_FIELDS,
  newEnabledRecord,
  isReserved,
  mountPath,
  TUNE_FIELDS,
  applyTuning,
} from '../mounts/mount-settings.ts'
import type { Mount, MountTable } from '../mounts/mounts.ts'

const AT = { path: inPath('Path of the mount') }

type MountParts = WithOptions<'version'> &
  OpenStores<{ readonly mounts: MountTable; readonly mountChanges: MountChanges }>

export function mountPaths(core: MountParts): Path[] {
  return [...secretMountPaths(core), ...authMountPaths(core), ...remountPaths(core)]
}

function secretMountPaths(core: MountParts): Path[] {
  return [
    path({
      pattern: 'mounts',
      summary: 'List the enabled secrets engines',
      fields: {},
      read: () => ({ data: mountMap(core, false), flattened: true }),
    }),
    path({
      pattern: 'mounts/:path*/tune',
      summary: 'Read or change the settings of a mount; those of an auth method are below auth/',
      fields: { ...AT, ...TUNE_FIELDS },
      read: ({ path: at }) => tuning(core, mountPath(at)),
      update: (input) => tune(core, mountPath(input.path), input),
    }),
    path({
      pattern: 'mounts/:path*',
      summary: 'Read, enable or disable a mount; an auth method below auth/ can only be read',
      fields: { ...AT, ...ENABLE_FIELDS },
      read({ path: at }) {
        const mountedAt = mountPath(at)
        // Also serves auth methods, because clients read them here, where sudo is not required.
        const mount = core.open.mounts.get(mountedAt)
        if (!mount) throw new Rejection(400, `No secret engine mount at ${mountedAt}`)
        return { data: mountInfo(mount, core.options.version), flattened: true }
      },
      update(input) {
        const mountedAt = mountPath(input.path)
        if (isReserved(mountedAt)) throw new Rejection(400, `cannot mount "${mountedAt}"`)
        return enable(core, mountedAt, input)
      },
      async delete({ path: at }) {
        const mountedAt = mountPath(at)
        if (isReserved(mountedAt)) throw new Rejection(400, `cannot unmount "${mountedAt}"`)
        await core.open.mountChanges.disable(mountedAt)
        return undefined
      },
    }),
  ]
}

function authMountPaths(core: MountParts): Path[] {
  return [
    path({
      pattern: 'auth',
      summary: 'List the enabled auth methods',
      fields: {},
      read: () => ({ data: mountMap(core, true), flattened: true }),
    }),
    path({
      pattern: 'auth/:path*/tune',
      summary: 'Read or change the settings of an auth method',
      fields: { ...AT, ...TUNE_FIELDS },
      sudo: true,
      read: ({ path: at }) => tuning(core, AUTH_PREFIX + mountPath(at)),
      update: (input) => tune(core, AUTH_PREFIX + mountPath(input.path), input),
    }),
    path({
      pattern: 'auth/:path*',
      summary: 'Read, enable or disable an auth method',
      fields: { ...AT, ...ENABLE_FIELDS },
      sudo: true,
      read({ path: at }) {
        const mountedAt = mountPath(at)
        const mount = core.open.mounts.get(AUTH_PREFIX + mountedAt)
        if (!mount) throw new Rejection(400, `No auth engine at ${mountedAt}`)
        return { data: mountInfo(mount, core.options.version), flattened: true }
      },
      update: (input) => enable(core, AUTH_PREFIX + mountPath(input.path), input),
      async delete({ path: at }) {
        const mountedAt = mountPath(at)
        if (mountedAt === 'token/') throw new Rejection(400, 'token credential backend cannot be disabled')
        await core.open.mountChanges.disable(AUTH_PREFIX + mountedAt)
        return undefined
      },
    }),
  ]
}

function remountPaths(core: MountParts): Path[] {
  return [
    path({
      pattern: 'remount',
      summary: 'Move a mount with its data to another path',
      fields: { from: text('Current path'), to: text('New path') },
      sudo: true,
      update: ({ from = '', to = '' }) => remount(core, from, to),
    }),
    path({
      pattern: 'remount/status/:migration_id',
      summary: 'Read the state of a move',
      fields: { migration_id: inPath('ID from the response of the move') },
      read({ migration_id: id }) {
        const migration = core.open.mountChanges.migration(id)
        if (!migration) return undefined
        const { from, to } = migration
        const info = { source_mount: from, target_mount: to, status: 'success' }
        return { data: { migration_id: id, migration_info: info } }
      },
    }),
  ]
}

function mountMap(core: MountParts, areAuth: boolean): Record<string, unknown> {
  const mounts = core.open.mounts.all().filter(({ record }) => isAuthPath(record.path) === areAuth)
  return Object.fromEntries(
    mounts.map((mount) => {
      const shown = areAuth ? mount.record.path.slice(AUTH_PREFIX.length) : mount.record.path
      return [shown, mountInfo(mount, core.options.version)]
    }),
  )
}

function tuning(core: MountParts, mountedAt: string): Reply {
  const mount = core.open.mounts.get(mountedAt)
  if (!mount) throw new Rejection(400, `cannot fetch sysview for path "${mountedAt}"`)
  return { data: tuneInfo(mount), flattened: true }
}

async function tune(
  core: MountParts,
  mountedAt: string,
  input: EngineInput<typeof TUNE_FIELDS>,
): Promise<Reply | undefined> {
  const warnings: string[] = []
  await core.open.mountChanges.tune(mountedAt, (record, mount: Mount) => {
    return applyTuning(record, mount, input, (warning) => warnings.push(warning))
  })
  return warnings.length > 0 ? { data: null, warnings } : undefined
}

async function enable(
  core: MountParts,
  mountedAt: string,
  input: EngineInput<typeof ENABLE_FIELDS>,
): Promise<Reply | undefined> {
  const { mountChanges, mounts } = core.open
  const { record, warnings } = newEnabledRecord(mountedAt, input, mounts)
  await mountChanges.enable(record)
  return warnings.length > 0 ? { data: null, warnings } : undefined
}

async function remount(core: MountParts, from: string, to: string): Promise<Reply> {
  if (from === '') throw new Rejection(400, 'both "from" and "to" path must be specified as a string')
  if (to === '') throw new Rejection(400, 'both "from" and "to" path must be specified as a string')
  const [source, target] = [mountPath(from), mountPath(to)]
  for (const each of [source, target]) {
    const fixed = isAuthPath(each) ? each === 'auth/token/' || each === AUTH_PREFIX : isReserved(each)
    if (fixed) throw new Rejection(400, `cannot remount "${each}"`)
  }
  if (isAuthPath(source) && !isAuthPath(target)) {
    throw new Rejection(400, `cannot remount auth mount to non-auth mount "${target}"`)
  }
  if (!isAuthPath(source) && isAuthPath(target)) {
    throw new Rejection(400, `cannot remount non-auth mount to auth mount "${target}"`)
  }
  const { id } = await core.open.mountChanges.move(source, target)
  return { data: { migration_id: id }, flattened: true }
}
