/**
 * `sys/audit`: audit devices. `sys/audit-hash`: the HMAC of a value in a device's lines. `sys/audit-verify`: checks that a device
 * has written given lines. `sys/audit-acknowledge`: clears the alarm about lines that it has not written.
 */
import { path, type Path, Rejection, type Reply } from '../../engines/framework/engine.ts'
import { boolean, inPath, text, textMap } from '../../engines/framework/fields.ts'
import { type DeviceRecord } from '../audit/audit-store.ts'
import type { AuditStore } from '../audit/audit-store.ts'
import type { AuditTrail } from '../audit/audit.ts'
import { DEVICE_TYPES } from '../audit/audit-options.ts'
import { hmacOf } from '../audit/audit-hmac.ts'
import { mountPath } from '../mounts/mount-settings.ts'

interface Auditing {
  readonly trail: AuditTrail
  readonly devices: AuditStore
}

interface AuditParts {
  readonly open: { readonly auditing: Auditing }
}

/** Lines in one request to `audit-verify` */
const VERIFIED_LINES_MAX = 10_000

const AT = { path: inPath('Path of the device') }

export function auditPaths(core: AuditParts): Path[] {
  return [
    path({
      pattern: 'audit',
      summary: 'List the audit devices',
      fields: {},
      sudo: true,
      read: () => ({ data: deviceMap(core.open.auditing), flattened: true }),
    }),
    path({
      pattern: 'audit/:path*',
      summary: 'Enable or disable an audit device',
      fields: {
        ...AT,
        type: text(`One of ${DEVICE_TYPES.join(', ')}`, { fallback: '' }),
        description: text('Description of its purpose', { fallback: '' }),
        options: textMap('Options of the device'),
        local: boolean('Whether the device is excluded from replication', { fallback: false }),
      },
      sudo: true,
      async update({ description, local, options, path: at, type: given }) {
        const type = DEVICE_TYPES.find((each) => each === given)
        if (!type)
          throw new Rejection(400, `unknown audit device type "${given}": must be ${DEVICE_TYPES.join(' or ')}`)
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

function chainPaths(core: AuditParts): Path[] {
  return [
    path({
      pattern: 'audit-acknowledge/:path*',
      summary: 'Acknowledge the broken chain of an audit device',
      fields: AT,
      sudo: true,
      async update({ path: at }) {
        await core.open.auditing.devices.acknowledge(mountPath(at))
        return undefined
      },
    }),
    path({
      pattern: 'audit-verify/:path*',
      summary: 'Verify that a device has written the lines of an audit file',
      fields: {
        ...AT,
        lines: text('Chain ID, SHA-256 of the text before the HMAC, and HMAC of each audit line, one per line', {
          fallback: '',
        }),
      },
      sudo: true,
      async update({ lines, path: at }) {
        const all = lines.split('\n', VERIFIED_LINES_MAX + 1)
        if (all.length > VERIFIED_LINES_MAX)
          throw new Rejection(400, `"lines": at most ${VERIFIED_LINES_MAX} in one request`)
        const firstInvalid = await core.open.auditing.devices.verify(mountPath(at), all)
        return { data: { valid: firstInvalid === -1, first_invalid: firstInvalid === -1 ? null : firstInvalid } }
      },
    }),
    path({
      pattern: 'audit-hash/:path*',
      summary: 'Compute the HMAC of a value as in the lines of a device',
      fields: { ...AT, input: text('The value') },
      update: ({ input, path: at }) => hashReply(core.open.auditing, mountPath(at), input),
    }),
  ]
}

function deviceMap({ devices, trail }: Auditing): Record<string, unknown> {
  const states = new Map(trail.states.map((state) => [state.path, state]))
  return Object.fromEntries(devices.all().map((record) => [record.path, deviceInfo(record, states.get(record.path))]))
}

function deviceInfo(
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
  return { data: { hash: hmacOf(device.format.key, input) }, flattened: true }
}
