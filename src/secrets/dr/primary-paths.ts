/** What operators of a DR primary do: make the cluster one, issue and revoke secondaries, step down, end replication. */
import { type EngineCall, path, type Path, Rejection, type Reply } from '../../engines/framework/engine.ts'
import { boolean, duration, text } from '../../engines/framework/fields.ts'
import { ResponseWrapping } from '../wrapping/wrapping.ts'
import type { Bundle, DrMode, ReplicationSide } from './dr-replication.ts'
import { type Doorway, type ReplicationParts, sideOf } from './dr-parts.ts'

const TTL_SECONDS_DEFAULT = 1800
const ISSUED_PATH = 'sys/replication/dr/primary/secondary-token'
const ID_LENGTH_MAX = 256
/** The names that others keep below theirs (`.current`) begin with a dot. */
const ID = /^[^./\p{Cc}][^/\p{Cc}]*$/u

const SOON = 'Vault will be unavailable for a brief period and will resume service shortly.'
export const DISABLING = `This cluster is having replication disabled. ${SOON}`

export function primaryPaths(core: ReplicationParts, { tell }: Doorway): Path[] {
  return [
    path({
      pattern: 'replication/dr/primary/enable',
      summary: 'Make this cluster the primary of a new replication set for disaster recovery',
      sudo: true,
      fields: {
        primary_cluster_addr: text('Where secondaries connect to, host:port; the address of this server unless given', {
          fallback: '',
        }),
      },
      async update({ primary_cluster_addr: given }, call) {
        const side = sideIn(core, 'disabled')
        await side.dr.enablePrimary({ primaryClusterAddr: clusterAddress(given) })
        tell('this cluster is a DR primary', call)
        const warnings = unreachable(core, side)
        return told(`This cluster is being enabled as a primary for replication. ${SOON}`, warnings)
      },
    }),
    path({
      pattern: 'replication/dr/primary/demote',
      summary: 'Make this primary a secondary of its set; it connects to no primary before update-primary',
      sudo: true,
      whileFenced: true,
      fields: {
        secondary_id: text(
          'Demote only if this secondary has everything, so that its promotion loses nothing; otherwise this primary goes on',
          { fallback: '' },
        ),
      },
      async update({ secondary_id: secondaryId }, call) {
        await sideIn(core, 'primary').dr.demote({ secondaryId })
        tell('this cluster was demoted to a DR secondary', call)
        return told(`This cluster is being demoted to a replication secondary. ${SOON}`)
      },
    }),
    path({
      pattern: 'replication/dr/primary/disable',
      summary: 'End replication: the secondaries of this primary are on their own',
      sudo: true,
      whileFenced: true,
      fields: {},
      async update(_input, call) {
        await sideIn(core, 'primary').dr.disable()
        tell('replication was disabled on this DR primary', call)
        return told(DISABLING)
      },
    }),
    ...secondaryIdPaths(core, tell),
    ...treePaths(core),
  ]
}

function secondaryIdPaths(core: ReplicationParts, tell: Doorway['tell']): Path[] {
  const id = text('Names the secondary: to revoke it, and in the status', { fallback: '' })
  return [
    path({
      pattern: 'replication/dr/primary/secondary-token',
      summary: 'An activation token for a secondary: wrapped for one use, or sealed to its public key',
      sudo: true,
      fields: {
        id,
        ttl: duration('How long the token may be used', { fallback: TTL_SECONDS_DEFAULT }),
        secondary_public_key: text(
          'Of secondary/generate-public-key: then the secondary does not ask the API of the primary',
          {
            fallback: '',
          },
        ),
      },
      async update(input, call): Promise<Reply> {
        const side = sideIn(core, 'primary')
        const { secondary_public_key: publicKey, ttl } = input
        const name = checkedId(input.id)
        if (ttl < 1) throw new Rejection(400, 'ttl: an activation token lasts a second at least')
        ResponseWrapping.check(ttl)
        const key = publicKey === '' ? {} : { publicKey }
        const issued = await side.dr.issueSecondary({ id: name, ttlMs: ttl * 1000, ...key })
        tell('an activation token for a DR secondary was made', call, { id: name })
        const warnings = unreachable(core, side)
        if ('sealed' in issued) return { data: { token: issued.sealed }, warnings }
        return { ...wrapped(core, issued.bundle, ttl, call), warnings }
      },
    }),
    path({
      pattern: 'replication/dr/primary/revoke-secondary',
      summary: 'Cut a secondary off, at once and for good: it needs a new activation token to come back',
      sudo: true,
      whileFenced: true,
      fields: { id },
      async update(input, call) {
        const side = sideIn(core, 'primary')
        const name = checkedId(input.id)
        await side.dr.revokeSecondary(name)
        tell('a DR secondary was revoked', call, { id: name })
        return undefined
      },
    }),
  ]
}

/** The tree of the primary itself; of a secondary it is looked at with an operation token. */
function treePaths(core: ReplicationParts): Path[] {
  return [
    path({
      pattern: 'replication/reindex',
      summary: 'Make the Merkle tree of this primary anew from what is stored, while it serves',
      sudo: true,
      whileFenced: true,
      fields: REINDEX,
      async update(input) {
        await sideIn(core, 'primary').dr.reindex(reindexOf(input))
        return told(REINDEXING)
      },
    }),
    path({
      pattern: 'replication/merkle-check',
      summary: 'Compare the Merkle tree of this primary with what is stored',
      whileFenced: true,
      fields: {},
      update: async () => ({ data: await sideIn(core, 'primary').dr.merkleCheck() }),
    }),
  ]
}

export const REINDEX = {
  diff: boolean('Compare key by key, which is slower', { fallback: false }),
  force: boolean('Make all of it anew, of nothing but what is stored', { fallback: false }),
  skip_flush: boolean('Do not wait for the tree to be on the disk', { fallback: false }),
}

export const REINDEXING =
  'The Merkle tree is being made anew in the background: reads and writes go on, the status tells how far it is.'

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

export function told(warning: string, more: readonly string[] = []): Reply {
  return { data: null, warnings: [warning, ...more] }
}

/** Warnings about the cluster address, which the log gets as well. */
function unreachable({ options }: ReplicationParts, { dr }: ReplicationSide): readonly string[] {
  const { warnings } = dr
  for (const warning of warnings) options.logger.warn('secondaries may not reach this DR primary', { warning })
  return warnings
}

function wrapped(core: ReplicationParts, bundle: Bundle, ttlSeconds: number, call: EngineCall): Reply {
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

/** Throws a Rejection (400) where the cluster is in another mode. */
export function sideIn(core: ReplicationParts, wanted: DrMode): ReplicationSide {
  const side = sideOf(core)
  if (!side) throw new Rejection(400, 'this server does not replicate')
  const { mode } = side.dr
  if (mode === wanted) return side
  const state = `the DR replication mode of this cluster is "${mode}"`
  const must = wanted === 'disabled' ? 'replication must be disabled for that' : `it must be "${wanted}" for that`
  throw new Rejection(400, `${state}: ${must}`)
}

/** Throws a Rejection (400) for what is no address. */
export function clusterAddress(given: string): string {
  const rest = given.replace(/^https:\/\//, '').replace(/\/$/, '')
  if (given === '' || /^(?:\[[\da-fA-F:]+\]|[^\s:/@[\]]+):\d{1,5}$/.test(rest)) return given
  throw new Rejection(
    400,
    `primary_cluster_addr: expected https://host:port or host:port, got ${JSON.stringify(given)}`,
  )
}

function checkedId(id: string): string {
  if (id === '') throw new Rejection(400, 'id must be given: it names the secondary')
  if (id.length <= ID_LENGTH_MAX && ID.test(id)) return id
  throw new Rejection(400, `id: up to ${ID_LENGTH_MAX} characters, without a slash and without a dot in front`)
}
