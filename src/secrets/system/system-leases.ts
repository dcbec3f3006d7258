/** `sys/leases`: leases of engines, and tokens as the leases of their auth paths (`leases/token-leases.ts`). */
import {
  type EngineVerb,
  type ImpliedRead,
  path,
  type Path,
  Rejection,
  type Reply,
} from '../../engines/framework/engine.ts'
import { shapeBelow } from '../../engines/framework/name-fold.ts'
import { boolean, duration, inPath, text } from '../../engines/framework/fields.ts'
import { runSliced, type SlicedWork } from '../../platform/sliced-work.ts'
import { isIrrevocable, type Lease } from '../leases/lease-entry.ts'
import type { Leases } from '../leases/leases.ts'
import { type TokenLeases, tokenLeaseId } from '../leases/token-leases.ts'
import type { MountTable } from '../mounts/mounts.ts'
import type { TokenEntry } from '../tokens/token-entry.ts'

interface LeaseParts {
  readonly open: { readonly leases: Leases; readonly tokenLeases: TokenLeases; readonly mounts: MountTable }
  now(): number
}

/** Irrevocable leases in one answer */
const LISTED_MAX = 10_000
const TIDY_STARTED =
  "Tidy operation successfully started. Any information from the operation will be printed to the server's logs."
const LEASE = { lease_id: text('ID of the lease', { fallback: '' }) }
const SYNC = {
  sync: boolean('Respond with 400 if a revocation fails; the response always waits for the revocations', {
    fallback: false,
  }),
}
const PREFIX = { prefix: inPath('Prefix of lease IDs in whole path segments', { isSecret: true }) }

export function leasePaths(core: LeaseParts): Path[] {
  return [...singlePaths(core), ...prefixPaths(core), ...countPaths(core), tidyPath(core)]
}

/**
 * A lease and its index entries are one commit, so unlike in Vault no lease can lose its index entry. The only task left is to
 * attempt due revocations now instead of at the next interval.
 */
function tidyPath(core: LeaseParts): Path {
  return path({
    pattern: 'leases/tidy',
    summary: 'Attempt the revocation of all expired leases',
    fields: {},
    update(): Reply {
      void core.open.leases.expiry.tick()
      return { status: 202, warnings: [TIDY_STARTED] }
    },
  })
}

function singlePaths(core: LeaseParts): Path[] {
  const renewal = { ...LEASE, increment: duration('Requested TTL from now', { fallback: 0 }) }
  const urlId = { url_lease_id: inPath('ID of the lease', { isSecret: true, sameAs: 'lease_id' }) }
  return [
    path({
      pattern: 'leases/lookup',
      summary: 'Read the properties of a lease',
      fields: LEASE,
      update: ({ lease_id: id }) => ({ data: lookup(core, requireId(id)) }),
      list: (_input, call) => listNames(core, '', call),
    }),
    path({
      pattern: 'leases/lookup/:prefix*',
      summary: 'List the IDs of leases below a prefix',
      fields: PREFIX,
      sudo: true,
      reads: ({ prefix = '' }, verb) => canonicalForms(core, verb, 'leases/lookup', prefix),
      list: ({ prefix }, call) => listNames(core, prefix, call),
    }),
    path({
      pattern: 'leases/renew',
      summary: 'Renew a lease',
      fields: renewal,
      update: ({ increment, lease_id: id }) => renew(core, requireId(id), increment),
    }),
    path({
      pattern: 'leases/renew/:url_lease_id+',
      summary: 'Renew a lease',
      fields: { ...renewal, ...urlId },
      update: ({ increment, lease_id: id }) => renew(core, id, increment),
    }),
    path({
      pattern: 'leases/revoke',
      summary: 'Revoke a lease',
      fields: { ...LEASE, ...SYNC },
      update: ({ lease_id: id }) => revoke(core, requireId(id)),
    }),
    path({
      pattern: 'leases/revoke/:url_lease_id+',
      summary: 'Revoke a lease',
      fields: { ...LEASE, ...SYNC, ...urlId },
      update: ({ lease_id: id }) => revoke(core, id),
    }),
  ]
}

function prefixPaths(core: LeaseParts): Path[] {
  return [
    path({
      pattern: 'leases/revoke-prefix/:prefix+',
      summary: 'Revoke all leases below a prefix',
      fields: { ...PREFIX, ...SYNC },
      sudo: true,
      reads: ({ prefix = '' }, verb) => canonicalForms(core, verb, 'leases/revoke-prefix', prefix),
      async update({ prefix, sync: isSync }) {
        const failed = await revokePrefix(core, prefix, { isForced: false, isSync })
        if (failed === 0) return undefined
        const warning = `${failed} leases could not be revoked; the server retries them (see sys/leases/lookup for the reasons)`
        if (isSync) throw new Rejection(400, warning)
        return { data: null, warnings: [warning] }
      },
    }),
    path({
      pattern: 'leases/revoke-force/:prefix+',
      summary: 'Remove all leases below a prefix even if their revocation fails',
      fields: PREFIX,
      sudo: true,
      reads: ({ prefix = '' }, verb) => canonicalForms(core, verb, 'leases/revoke-force', prefix),
      async update({ prefix }) {
        await revokePrefix(core, prefix, { isForced: true, isSync: false })
        return undefined
      },
    }),
  ]
}

function countPaths(core: LeaseParts): Path[] {
  const type = text('Must be `irrevocable`', { fallback: '' })
  const irrevocable = () => core.open.leases.store.irrevocable(LISTED_MAX)
  return [
    path({
      pattern: 'leases/count',
      summary: 'Count the irrevocable leases by mount',
      fields: { type },
      read({ type: requested }) {
        if (requested !== 'irrevocable') return undefined
        const counts: Record<string, number> = {}
        const all = irrevocable()
        for (const lease of all) counts[mountPathOf(lease)] = (counts[mountPathOf(lease)] ?? 0) + 1
        return { data: { lease_count: all.length, counts } }
      },
    }),
    path({
      pattern: 'leases',
      summary: 'List the irrevocable leases and their errors',
      fields: { type },
      sudo: true,
      read({ type: requested }) {
        if (requested !== 'irrevocable') return undefined
        const leases = irrevocable().map((lease) => ({
          lease_id: lease.id,
          mount_id: lease.mount,
          error: lease.revocation?.error,
          attempts: lease.revocation?.attempts,
        }))
        return { data: { lease_count: leases.length, leases } }
      },
    }),
  ]
}

function requireId(id: string): string {
  if (id === '') throw new Rejection(400, 'lease_id must be specified')
  return id
}

function mountPathOf({ path: at, rest }: Lease): string {
  return at.slice(0, at.length - rest.length)
}

function leaseInfo(lease: Lease, nowMs: number): Record<string, unknown> {
  const { expiresAtMs, id, issuedAtMs, path: at, renewable, renewedAtMs, revocation } = lease
  return {
    id,
    path: at,
    issue_time: new Date(issuedAtMs).toISOString(),
    expire_time: new Date(expiresAtMs).toISOString(),
    last_renewal: renewedAtMs === undefined ? null : new Date(renewedAtMs).toISOString(),
    renewable: renewable && !revocation && expiresAtMs > nowMs,
    ttl: revocation ? 0 : Math.max(0, Math.floor((expiresAtMs - nowMs) / 1000)),
    ...(revocation?.error && { revoke_error: revocation.error, irrevocable: isIrrevocable(lease) }),
  }
}

/** The lease of an engine or of a token. Throws a Rejection (400) for an unknown ID. */
function lookup(core: LeaseParts, id: string): Record<string, unknown> {
  const token = core.open.tokenLeases.find(id)
  return token ? tokenLeaseInfo(token, core.now()) : leaseInfo(core.open.leases.find(id), core.now())
}

function tokenLeaseInfo(entry: TokenEntry, nowMs: number): Record<string, unknown> {
  const { createdAtMs, expiresAtMs, path: at, renewable, renewedAtMs } = entry
  return {
    id: tokenLeaseId(entry),
    path: at,
    issue_time: new Date(createdAtMs).toISOString(),
    expire_time: expiresAtMs === undefined ? null : new Date(expiresAtMs).toISOString(),
    last_renewal: renewedAtMs === undefined ? null : new Date(renewedAtMs).toISOString(),
    renewable,
    ttl: expiresAtMs === undefined ? 0 : Math.max(0, Math.floor((expiresAtMs - nowMs) / 1000)),
  }
}

async function listNames(core: LeaseParts, prefix: string, call: Parameters<typeof runSliced>[1]): Promise<Reply> {
  const folder = prefix === '' || prefix.endsWith('/') ? prefix : `${prefix}/`
  await core.open.tokenLeases.ready()
  return { data: { keys: await runSliced(allNames(core.open, folder), call) } }
}

function* allNames({ leases, mounts, tokenLeases }: LeaseParts['open'], folder: string): SlicedWork<string[]> {
  const ofTokens = new Set<string>()
  for (const each of spellingsOf(mounts, folder)) for (const name of yield* tokenLeases.names(each)) ofTokens.add(name)
  const ofEngines = yield* leases.store.names(folder)
  return ofTokens.size === 0 ? ofEngines : [...ofEngines, ...ofTokens].sort()
}

async function renew(core: LeaseParts, id: string, increment: number): Promise<Reply> {
  const token = core.open.tokenLeases.find(id)
  if (token) {
    throw new Rejection(
      400,
      token.renewable ? 'tokens cannot be renewed through this endpoint' : 'lease is not renewable',
    )
  }
  const { lease, seconds } = await core.open.leases.renew(id, increment)
  return { data: null, leased: { id: lease.id, renewable: lease.renewable, seconds } }
}

async function revoke({ open: { leases, tokenLeases } }: LeaseParts, id: string): Promise<Reply | undefined> {
  if (tokenLeases.isTokenLease(id)) {
    await tokenLeases.revoke(id)
    return undefined
  }
  const fault = await leases.revoke(id)
  if (fault === undefined) return undefined
  throw new Rejection(400, `failed to revoke the lease, will retry: ${fault}`)
}

/**
 * A prefix of lease IDs, and its canonical form if it is a login path of an auth method that folds the case of names: a login as
 * `Alice` issues tokens at the path of `alice`.
 */
function spellingsOf(mounts: MountTable, prefix: string): string[] {
  const resolved = mounts.find(prefix)
  const match = resolved?.mount.paths.find(resolved.rest)
  if (!resolved || !match) return [prefix]
  return [...new Set([prefix, resolved.mount.record.path + match.rest])]
}

/**
 * The request's path with the canonical form of its prefix, if that is a login path. A rule that denies the path in any case of
 * letters then denies it for every spelling.
 */
function canonicalForms({ open }: LeaseParts, operation: EngineVerb, at: string, prefix: string): ImpliedRead[] {
  const resolved = open.mounts.find(prefix)
  const match = resolved?.mount.paths.find(resolved.rest)
  if (!resolved || !match?.folds) return []
  const front = `${at}/${resolved.mount.record.path}`
  const folds = shapeBelow(match.folds, front.split('/').length - 1)
  return folds ? [{ operation, path: front + match.rest, folds }] : []
}

/** Revokes a lease or all leases below a prefix. Resolves with the number of failed revocations, which excludes tokens. */
async function revokePrefix(
  { open: { leases, mounts, tokenLeases } }: LeaseParts,
  prefix: string,
  { isForced, isSync }: { readonly isForced: boolean; readonly isSync: boolean },
): Promise<number> {
  if (tokenLeases.isTokenLease(prefix)) {
    await tokenLeases.revoke(prefix)
    return 0
  }
  const folder = prefix.endsWith('/') ? prefix : `${prefix}/`
  for (const each of spellingsOf(mounts, folder)) await tokenLeases.revokePrefix(each, isSync)
  return leases.revokePrefix(prefix, isForced)
}
