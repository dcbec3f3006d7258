/** `sys/mounts`, `sys/auth` and `sys/remount`: what is enabled where. */
import { path, type Path, Rejection, type Reply } from '../../engines/framework/engine.ts'
import { inPath, type EngineInput, text } from '../../engines/framework/fields.ts'
import type { MountChanges } from '../mounts/mount-changes.ts'
import type { MadeWith, Opened } from './core-parts.ts'
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

const AT = { path: inPath('Where it is or is to be') }

type MountParts = MadeWith<'version'> & Opened<{ readonly mounts: MountTable; readonly mountChanges: MountChanges }>

export function mountPaths(core: MountParts): Path[] {
  return [...secretMountPaths(core), ...authMountPaths(core), ...remountPaths(core)]
}

function secretMountPaths(core: MountParts): Path[] {
  return [
    path({
      pattern: 'mounts',
      summary: 'All secret engines that are enabled',
      fields: {},
      read: () => ({ data: listed(core, false), flattened: true }),
    }),
    path({
      pattern: 'mounts/:path*/tune',
      summary: 'Settings of a mount, of an auth method too when its path begins with auth/',
      fields: { ...AT, ...TUNE_FIELDS },
      read: ({ path: at }) => tuning(core, mountPath(at)),
      update: (input) => tune(core, mountPath(input.path), input),
    }),
    path({
      pattern: 'mounts/:path*',
      summary: 'A mount at its path; an auth method below auth/ can be read only',
      fields: { ...AT, ...ENABLE_FIELDS },
      read({ path: at }) {
        const wanted = mountPath(at)
        // Also of an auth method: clients read it here, where no sudo is needed.
        const mount = core.open.mounts.get(wanted)
        if (!mount) throw new Rejection(400, `No secret engine mount at ${wanted}`)
        return { data: mountInfo(mount, core.options.version), flattened: true }
      },
      update(input) {
        const wanted = mountPath(input.path)
        if (isReserved(wanted)) throw new Rejection(400, `cannot mount "${wanted}"`)
        return enable(core, wanted, input)
      },
      async delete({ path: at }) {
        const wanted = mountPath(at)
        if (isReserved(wanted)) throw new Rejection(400, `cannot unmount "${wanted}"`)
        await core.open.mountChanges.disable(wanted)
        return undefined
      },
    }),
  ]
}

function authMountPaths(core: MountParts): Path[] {
  return [
    path({
      pattern: 'auth',
      summary: 'All auth methods that are enabled',
      fields: {},
      read: () => ({ data: listed(core, true), flattened: true }),
    }),
    path({
      pattern: 'auth/:path*/tune',
      summary: 'Settings of an auth method',
      fields: { ...AT, ...TUNE_FIELDS },
      sudo: true,
      read: ({ path: at }) => tuning(core, AUTH_PREFIX + mountPath(at)),
      update: (input) => tune(core, AUTH_PREFIX + mountPath(input.path), input),
    }),
    path({
      pattern: 'auth/:path*',
      summary: 'An auth method at its path',
      fields: { ...AT, ...ENABLE_FIELDS },
      sudo: true,
      read({ path: at }) {
        const wanted = mountPath(at)
        const mount = core.open.mounts.get(AUTH_PREFIX + wanted)
        if (!mount) throw new Rejection(400, `No auth engine at ${wanted}`)
        return { data: mountInfo(mount, core.options.version), flattened: true }
      },
      update: (input) => enable(core, AUTH_PREFIX + mountPath(input.path), input),
      async delete({ path: at }) {
        const wanted = mountPath(at)
        if (wanted === 'token/') throw new Rejection(400, 'token credential backend cannot be disabled')
        await core.open.mountChanges.disable(AUTH_PREFIX + wanted)
        return undefined
      },
    }),
  ]
}

function remountPaths(core: MountParts): Path[] {
  return [
    path({
      pattern: 'remount',
      summary: 'Moves a mount, with everything in it, to another path',
      fields: { from: text('Path that it has'), to: text('Path that it is to have') },
      sudo: true,
      update: ({ from = '', to = '' }) => remount(core, from, to),
    }),
    path({
      pattern: 'remount/status/:migration_id',
      summary: 'How a move of a mount stands',
      fields: { migration_id: inPath('As the move was answered') },
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

function listed(core: MountParts, areAuth: boolean): Record<string, unknown> {
  const mounts = core.open.mounts.all().filter(({ record }) => isAuthPath(record.path) === areAuth)
  return Object.fromEntries(
    mounts.map((mount) => {
      const shown = areAuth ? mount.record.path.slice(AUTH_PREFIX.length) : mount.record.path
      return [shown, mountInfo(mount, core.options.version)]
    }),
  )
}

function tuning(core: MountParts, wanted: string): Reply {
  const mount = core.open.mounts.get(wanted)
  if (!mount) throw new Rejection(400, `cannot fetch sysview for path "${wanted}"`)
  return { data: tuneInfo(mount), flattened: true }
}

async function tune(
  core: MountParts,
  wanted: string,
  input: EngineInput<typeof TUNE_FIELDS>,
): Promise<Reply | undefined> {
  const warnings: string[] = []
  await core.open.mountChanges.tune(wanted, (record, mount: Mount) => {
    return applyTuning(record, mount, input, (warning) => warnings.push(warning))
  })
  return warnings.length > 0 ? { data: null, warnings } : undefined
}

async function enable(
  core: MountParts,
  wanted: string,
  input: EngineInput<typeof ENABLE_FIELDS>,
): Promise<Reply | undefined> {
  const { mountChanges, mounts } = core.open
  const { record, warnings } = newEnabledRecord(wanted, input, mounts)
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
