/**
 * `sys/audit`: which devices record requests. `sys/audit-hash`: what a value looks like in their lines. `sys/audit-verify` and
 * `sys/audit-acknowledge`: which lines a device has written, and the end of an alarm about other ones.
 */
import { path, type Path, Rejection, type Reply } from '../../engines/framework/engine.ts'
import { boolean, inPath, text, textMap } from '../../engines/framework/fields.ts'
import { type DeviceRecord } from '../audit/audit-store.ts'
import type { AuditStore } from '../audit/audit-store.ts'
import type { AuditTrail } from '../audit/audit.ts'
import { DEVICE_TYPES } from '../audit/audit-options.ts'
import { hashed } from '../audit/audit-values.ts'
import { mountPath } from '../mounts/mount-settings.ts'

interface Auditing {
  readonly trail: AuditTrail
  readonly devices: AuditStore
}

/** Open while the core is active. */
interface Parts {
  readonly open: { readonly auditing: Auditing }
}

/** Of one request to `audit-verify`. */
const VERIFIED_LINES_MAX = 10_000

const AT = { path: inPath('Where the device is or is to be') }

export function auditPaths(core: Parts): Path[] {
  return [
    path({
      pattern: 'audit',
      summary: 'All audit devices',
      fields: {},
      sudo: true,
      read: () => ({ data: listed(core.open.auditing), flattened: true }),
    }),
    path({
      pattern: 'audit/:path*',
      summary: 'An audit device at its path',
      fields: {
        ...AT,
        type: text(`One of ${DEVICE_TYPES.join(', ')}`, { fallback: '' }),
        description: text('What it is for, for people', { fallback: '' }),
        options: textMap('Options of the device'),
        local: boolean('Whether it is left out of replication between clusters', { fallback: false }),
      },
      sudo: true,
      async update({ description, local, options, path: at, type: given }) {
        const type = DEVICE_TYPES.find((each) => each === given)
        if (!type) throw new Rejection(400, `unknown audit device type "${given}": it is ${DEVICE_TYPES.join(' or ')}`)
        await core.open.auditing.devices.enable({
          path: mountPath(at),
          type,
          description,
          local,
          options: Object.fromEntries(options ?? []),
        })
        return undefined
      },
      async delete({ path: at }) {
        await core.open.auditing.devices.disable(mountPath(at))
        return undefined
      },
    }),
    ...chainPaths(core),
  ]
}

function chainPaths(core: Parts): Path[] {
  return [
    path({
      pattern: 'audit-acknowledge/:path*',
      summary: 'Clears the broken chain of an audit device',
      fields: AT,
      sudo: true,
      async update({ path: at }) {
        await core.open.auditing.devices.acknowledge(mountPath(at))
        return undefined
      },
    }),
    path({
      pattern: 'audit-verify/:path*',
      summary: 'Checks that lines of audit files were written by a device',
      fields: {
        ...AT,
        lines: text('For each line its chain ID, the SHA-256 of its text before the code and its code, one line each', {
          fallback: '',
        }),
      },
      sudo: true,
      async update({ lines, path: at }) {
        const all = lines.split('\n', VERIFIED_LINES_MAX + 1)
        if (all.length > VERIFIED_LINES_MAX) throw new Rejection(400, `"lines": at most ${VERIFIED_LINES_MAX} at once`)
        const wrong = await core.open.auditing.devices.verify(mountPath(at), all)
        return { data: { valid: wrong === -1, first_invalid: wrong === -1 ? null : wrong } }
      },
    }),
    path({
      pattern: 'audit-hash/:path*',
      summary: 'A value as the lines of a device show it',
      fields: { ...AT, input: text('The value') },
      update: ({ input, path: at }) => hashReply(core.open.auditing, mountPath(at), input),
    }),
  ]
}

function listed({ devices, trail }: Auditing): Record<string, unknown> {
  const states = new Map(trail.states.map((state) => [state.path, state]))
  return Object.fromEntries(devices.all().map((record) => [record.path, shown(record, states.get(record.path))]))
}

function shown(
  { description, local, options, path: at, type }: DeviceRecord,
  state: AuditTrail['states'][number] | undefined,
) {
  return {
    path: at,
    type,
    description,
    options,
    local,
    chain: state && { id: state.chainId, ...state.head, ...(state.broken && { broken: state.broken }) },
    failures: state?.failures,
    ...(state?.fault !== undefined && { fault: state.fault }),
  }
}

function hashReply({ trail }: Auditing, at: string, input: string | undefined): Reply {
  if (input === undefined || input === '') throw new Rejection(400, 'the "input" parameter is empty')
  const device = trail.devices.find(({ path: each }) => each === at)
  if (!device) throw new Rejection(400, `unknown audit backend "${at.slice(0, -1)}"`)
  return { data: { hash: hashed(device.shown.key, input) }, flattened: true }
}
