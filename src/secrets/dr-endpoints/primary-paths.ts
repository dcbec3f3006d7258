/** The operator endpoints of a DR primary: enable, demote, disable, and issue and revoke secondaries. */
import { type EngineCall, path, type Path, Rejection, type Reply } from '../../engines/framework/engine.ts'
import { boolean, duration, text } from '../../engines/framework/fields.ts'
import { ResponseWrapping } from '../wrapping/wrapping.ts'
import type { ActivationBundle, DrCore, EventLog, ReplicationMode, ReplicationSide } from './dr-side.ts'

const TTL_SECONDS_DEFAULT = 1800
export const NOT_CONFIGURED = 'DR replication is not configured on this server'
const ISSUED_PATH = 'sys/replication/dr/primary/secondary-token'
const ID_LENGTH_MAX = 256
/** A leading dot is reserved for entries below an ID, such as `.current`. */
const ID = /^[^./\p{Cc}][^/\p{Cc}]*$/u

const SOON = 'Vault will be unavailable for a brief period and will resume service shortly.'
export const DISABLING = `This cluster is having replication disabled. ${SOON}`

export function primaryPaths(core: DrCore, logEvent: EventLog): Path[] {
  return [
    path({
      pattern: 'replication/dr/primary/enable',
      summary: 'Enable DR replication with this cluster as the primary',
      sudo: true,
      fields: {
        primary_cluster_addr: text(
          'Cluster address for secondaries as host:port; the address of this server by default',
          {
            fallback: '',
          },
        ),
      },
      async update({ primary_cluster_addr: given }, call) {
        const side = requireMode(core, 'disabled')
        await side.dr.enablePrimary({ primaryClusterAddr: clusterAddress(given) })
        logEvent('DR replication enabled as primary', call)
        const warnings = logAddressWarnings(core, side)
        return warningReply(`This cluster is being enabled as a primary for replication. ${SOON}`, warnings)
      },
    }),
    path({
      pattern: 'replication/dr/primary/demote',
      summary: 'Demote this primary to a secondary, which does not connect to a primary before update-primary',
      sudo: true,
      whileFenced: true,
      fields: {
        secondary_id: text(
          'Demote only if this secondary has all commits, so that its promotion loses nothing; otherwise the request is refused',
          { fallback: '' },
        ),
      },
      async update({ secondary_id: secondaryId }, call) {
        await requireMode(core, 'primary').dr.demote({ secondaryId })
        logEvent('DR primary demoted to secondary', call)
        return warningReply(`This cluster is being demoted to a replication secondary. ${SOON}`)
      },
    }),
    path({
      pattern: 'replication/dr/primary/disable',
      summary: 'Disable DR replication on this primary',
      sudo: true,
      whileFenced: true,
      fields: {},
      async update(_input, call) {
        await requireMode(core, 'primary').dr.disable()
        logEvent('DR replication disabled on primary', call)
        return warningReply(DISABLING)
      },
    }),
    ...secondaryIdPaths(core, logEvent),
    ...treePaths(core),
  ]
}

function secondaryIdPaths(core: DrCore, logEvent: EventLog): Path[] {
  const idField = text('ID of the secondary, for revocation and in the status', { fallback: '' })
  return [
    path({
      pattern: 'replication/dr/primary/secondary-token',
      summary: 'Issue an activation token for a secondary, wrapped for one use or encrypted to its public key',
      sudo: true,
      fields: {
        id: idField,
        ttl: duration('TTL of the token', { fallback: TTL_SECONDS_DEFAULT }),
        secondary_public_key: text(
          'Public key from secondary/generate-public-key, so that the secondary does not have to reach the API of the primary',
          {
            fallback: '',
          },
        ),
      },
      async update(input, call): Promise<Reply> {
        const side = requireMode(core, 'primary')
        const { secondary_public_key: publicKey, ttl } = input
        const id = parseId(input.id)
        if (ttl < 1) throw new Rejection(400, 'ttl: must be at least one second')
        ResponseWrapping.check(ttl)
        const key = publicKey === '' ? {} : { publicKey }
        const issued = await side.dr.issueSecondary({ id, ttlMs: ttl * 1000, ...key })
        logEvent('DR secondary activation token issued', call, { id })
        const warnings = logAddressWarnings(core, side)
        if ('sealed' in issued) return { data: { token: issued.sealed }, warnings }
        return { ...wrapBundle(core, issued.bundle, ttl, call), warnings }
      },
    }),
    path({
      pattern: 'replication/dr/primary/revoke-secondary',
      summary: 'Revoke a secondary immediately; it requires a new activation token to reconnect',
      sudo: true,
      whileFenced: true,
      fields: { id: idField },
      async update(input, call) {
        const side = requireMode(core, 'primary')
        const id = parseId(input.id)
        await side.dr.revokeSecondary(id)
        logEvent('DR secondary revoked', call, { id })
        return undefined
      },
    }),
  ]
}

/** For the tree of a secondary see `secondary-paths.ts`. */
function treePaths(core: DrCore): Path[] {
  return [
    path({
      pattern: 'replication/reindex',
      summary: 'Rebuild the Merkle tree of this primary in the background',
      sudo: true,
      whileFenced: true,
      fields: REINDEX,
      async update(input) {
        await requireMode(core, 'primary').dr.reindex(reindexOf(input))
        return warningReply(REINDEXING)
      },
    }),
    path({
      pattern: 'replication/merkle-check',
      summary: 'Compare the Merkle tree of this primary with the stored entries',
      whileFenced: true,
      fields: {},
      update: async () => ({ data: await requireMode(core, 'primary').dr.merkleCheck() }),
    }),
  ]
}

export const REINDEX = {
  diff: boolean('Compare each key, which is slower', { fallback: false }),
  force: boolean('Rebuild the whole tree from the stored entries', { fallback: false }),
  skip_flush: boolean('Do not wait until the tree is durable', { fallback: false }),
}

export const REINDEXING =
  'The Merkle tree is being rebuilt in the background. Reads and writes continue; the status shows the progress.'

export function reindexOf({
  diff,
  force,
  skip_flush: skipFlush,
}: {
  diff: boolean
  force: boolean
  skip_flush: boolean
}) {
  return { diff, force, skipFlush }
}

export function warningReply(warning: string, more: readonly string[] = []): Reply {
  return { data: null, warnings: [warning, ...more] }
}

/** Returns the warnings about the cluster address and logs them. */
function logAddressWarnings({ options }: DrCore, { dr }: ReplicationSide): readonly string[] {
  const { warnings } = dr
  for (const warning of warnings) options.logger.warn('secondaries may not reach this DR primary', { warning })
  return warnings
}

function wrapBundle(core: DrCore, bundle: ActivationBundle, ttlSeconds: number, call: EngineCall): Reply {
  const rest = {
    lease_id: '',
    renewable: false,
    lease_duration: 0,
    data: bundle,
    wrap_info: null,
    warnings: null,
    auth: null,
  }
  const { info, parts } = core.open.wrapping.wrap(JSON.stringify({ request_id: call.requestId, ...rest }), {
    ttlSeconds,
    isJwt: true,
    creationPath: ISSUED_PATH,
    wrappedAccessor: '',
  })
  return { wrapped: info, parts }
}

/** Throws a Rejection (400) if the cluster is in another mode. */
export function requireMode(core: DrCore, required: ReplicationMode): ReplicationSide {
  const side = core.options.replication
  if (!side) throw new Rejection(400, NOT_CONFIGURED)
  const { mode } = side.dr
  if (mode === required) return side
  const state = `the DR replication mode of this cluster is "${mode}"`
  throw new Rejection(400, `${state}: this operation requires "${required}"`)
}

/** Throws a Rejection (400) for a malformed address. */
export function clusterAddress(given: string): string {
  const rest = given.replace(/^https:\/\//, '').replace(/\/$/, '')
  if (given === '' || /^(?:\[[\da-fA-F:]+\]|[^\s:/@[\]]+):\d{1,5}$/.test(rest)) return given
  throw new Rejection(
    400,
    `primary_cluster_addr: expected https://host:port or host:port, got ${JSON.stringify(given)}`,
  )
}

function parseId(id: string): string {
  if (id === '') throw new Rejection(400, 'missing id, which identifies the secondary')
  if (id.length <= ID_LENGTH_MAX && ID.test(id)) return id
  throw new Rejection(400, `id: up to ${ID_LENGTH_MAX} characters, without a slash and without a leading dot`)
}
