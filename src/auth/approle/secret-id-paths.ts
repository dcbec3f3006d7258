/** `role/:name/secret-id…`: the secret IDs of a role. */
import { randomUUID } from 'node:crypto'
import type { Batch } from '../../storage/barrier/storage.ts'
import { CidrRanges, isRangeWithin } from '../../engines/framework/cidr.ts'
import { type EngineCall, path, type Path, Rejection, type Reply } from '../../engines/framework/engine.ts'
import { commaList, duration, type EngineInput, integer, isObject, text } from '../../engines/framework/fields.ts'
import type { ReadEntry } from '../../engines/framework/records.ts'
import { runSliced, RECORD_COST, type SlicedWork } from '../../platform/sliced-work.ts'
import { ROLE_NAME } from './role-paths.ts'
import {
  hashOf,
  type AppRole,
  roleNamed,
  rolePaths as at,
  type SecretIdRecord,
  secretIdAt,
  secretIdPut,
  tidySecretIds,
} from './role-record.ts'

const METADATA_MAX = 64
const METADATA_TEXT_MAX = 512
const SECRET_ID_LENGTH_MAX = 512
const CIDRS_MAX = 256
const TIDY_INTERVAL_MS = 600_000

const SECRET_ID_FIELDS = { ...ROLE_NAME, secret_id: text('Secret ID', { fallback: '' }) }
const ACCESSOR_FIELDS = { ...ROLE_NAME, secret_id_accessor: text('Accessor of the secret ID', { fallback: '' }) }
const CREATE_FIELDS = {
  ...ROLE_NAME,
  metadata: text('JSON object with string values, shown with the tokens'),
  cidr_list: commaList('Addresses and ranges for logins; within those of the role'),
  token_bound_cidrs: commaList('Addresses and ranges for uses of its tokens; within those of the role'),
  num_uses: integer('Number of uses; limited by that of the role'),
  ttl: duration('TTL; limited by that of the role'),
}
const CUSTOM_FIELDS = { ...CREATE_FIELDS, secret_id: text('Secret ID', { fallback: '' }) }

/** Time of the last tidy, by role. */
const tidiedAtMs = new Map<string, number>()

export function secretIdPaths(): Path[] {
  return [
    path({
      pattern: 'role/:role_name/secret-id',
      summary: 'Generate a secret ID; list accessors',
      fields: CREATE_FIELDS,
      update: (input, call) => create(input, randomUUID(), call),
      list: async ({ role_name: name }, call) => {
        const role = required(name, call)
        return { data: { keys: await runSliced(accessors(role, call), call) } }
      },
    }),
    path({
      pattern: 'role/:role_name/custom-secret-id',
      summary: 'Create a custom secret ID',
      fields: CUSTOM_FIELDS,
      update(input, call) {
        const { secret_id: secretId } = input
        if (secretId === '') throw new Rejection(400, 'missing secret_id')
        if (secretId.length > SECRET_ID_LENGTH_MAX) {
          throw new Rejection(400, `a secret ID can have at most ${SECRET_ID_LENGTH_MAX} characters`)
        }
        return create(input, secretId, call)
      },
    }),
    path({
      pattern: 'role/:role_name/secret-id/lookup',
      summary: 'Look up a secret ID',
      fields: SECRET_ID_FIELDS,
      update({ role_name: name, secret_id: secretId }, call) {
        if (secretId === '') throw new Rejection(400, 'missing secret_id')
        return lookUp(required(name, call), hashOf(call.mount, 'secret-id', secretId), call)
      },
    }),
    path({
      pattern: 'role/:role_name/secret-id/destroy',
      summary: 'Destroy a secret ID',
      fields: SECRET_ID_FIELDS,
      update: destroy,
      delete: destroy,
    }),
    path({
      pattern: 'role/:role_name/secret-id-accessor/lookup',
      summary: 'Look up a secret ID by accessor',
      fields: ACCESSOR_FIELDS,
      update({ role_name: name, secret_id_accessor: accessor }, call) {
        const role = required(name, call)
        const hash = hashOfAccessor(role, accessor, call, (each) => call.storage.get(each))
        if (hash === undefined) throw new Rejection(404, 'failed to find accessor entry for secret_id_accessor')
        return lookUp(role, hash, call)
      },
    }),
    path({
      pattern: 'role/:role_name/secret-id-accessor/destroy',
      summary: 'Destroy a secret ID by accessor',
      fields: ACCESSOR_FIELDS,
      update: destroyByAccessor,
      delete: destroyByAccessor,
    }),
  ]
}

/** Throws a Rejection (404) if the role does not exist. */
function required(name: string, { mount, storage }: EngineCall): AppRole {
  const role = roleNamed((each) => storage.pending(each), mount, name)
  if (!role) throw new Rejection(404, `role ${JSON.stringify(name.slice(0, 64))} does not exist`)
  return role
}

function create(input: EngineInput<typeof CREATE_FIELDS>, secretId: string, call: EngineCall): Reply {
  const { mount, nowMs, storage } = call
  const role = required(input.role_name, call)
  if (!role.bindSecretId) throw new Rejection(400, 'bind_secret_id is not set on the role')
  const hash = hashOf(mount, 'secret-id', secretId)
  if (secretIdAt((each) => storage.pending(each), role.uid, hash, nowMs)) {
    throw new Rejection(400, 'the secret ID already exists')
  }
  const [uses, ttl] = [within(input.num_uses, role.secretIdNumUses), within(input.ttl, role.secretIdTtlSeconds)]
  if (uses === undefined) throw new Rejection(400, 'num_uses cannot be higher than the role’s secret_id_num_uses')
  if (ttl === undefined) throw new Rejection(400, 'ttl cannot be longer than the role’s secret_id_ttl')
  const secret: SecretIdRecord = {
    format: 1,
    accessor: randomUUID(),
    metadata: metadataOf(input.metadata),
    cidrs: subset(input.cidr_list, role.secretIdBoundCidrs),
    tokenCidrs: subset(input.token_bound_cidrs, role.terms.boundCidrs),
    usesLeft: uses,
    ttlSeconds: ttl,
    createdAtMs: nowMs,
    updatedAtMs: nowMs,
    ...(ttl > 0 && { expiresAtMs: nowMs + ttl * 1000 }),
  }
  tidyIfDue(role, call)
  const accessorHash = hashOf(mount, 'accessor', secret.accessor)
  const puts = [
    secretIdPut(at.secret(role.uid, hash), secret),
    { path: at.accessor(role.uid, accessorHash), value: Buffer.from(hash, 'latin1') },
  ]
  const { accessor } = secret
  return {
    data: { secret_id: secretId, secret_id_accessor: accessor, secret_id_num_uses: uses, secret_id_ttl: ttl },
    batch: { puts, deletes: [] },
  }
}

/** The requested value; undefined if it exceeds the limit of the role. 0 is unlimited. */
function within(requested: number | undefined, limit: number): number | undefined {
  if (requested === undefined) return limit
  if (requested < 0) throw new Rejection(400, 'num_uses cannot be negative')
  return limit > 0 && (requested === 0 || requested > limit) ? undefined : requested
}

function subset(requested: readonly string[] | undefined, ofRole: readonly string[]): string[] {
  const cidrs = [...(requested ?? [])]
  if (cidrs.length > CIDRS_MAX) throw new Rejection(400, `at most ${CIDRS_MAX} addresses and ranges are allowed`)
  // Throws for an invalid range.
  void new CidrRanges(cidrs)
  if (ofRole.length === 0) return cidrs
  const outside = cidrs.find((each) => !isRangeWithin(each, ofRole))
  if (outside === undefined) return cidrs
  throw new Rejection(400, `${JSON.stringify(outside.slice(0, 64))} is not within the addresses of the role`)
}

function metadataOf(given: string | undefined): Record<string, string> | null {
  if (given === undefined || given === '') return null
  let parsed: unknown
  try {
    parsed = JSON.parse(given)
  } catch {
    parsed = undefined
  }
  if (!isObject(parsed)) throw new Rejection(400, 'failed to parse metadata: expected a JSON object with string values')
  const pairs = Object.entries(parsed)
  if (pairs.length > METADATA_MAX) throw new Rejection(400, `metadata can have at most ${METADATA_MAX} keys`)
  return Object.fromEntries(
    pairs.map(([key, value]) => {
      if (typeof value === 'string' && value.length <= METADATA_TEXT_MAX && key.length <= METADATA_TEXT_MAX)
        return [key, value]
      throw new Rejection(400, `metadata keys and values must be strings of at most ${METADATA_TEXT_MAX} characters`)
    }),
  )
}

/** Removes expired secret IDs of a role while new ones are created. */
function tidyIfDue({ uid }: AppRole, call: EngineCall): void {
  const { nowMs } = call
  if (nowMs - (tidiedAtMs.get(uid) ?? 0) < TIDY_INTERVAL_MS) return
  if (tidiedAtMs.size > 10_000) tidiedAtMs.clear()
  tidiedAtMs.set(uid, nowMs)
  // Logins refuse expired secret IDs. If this fails, the next interval or `tidy/secret-id` removes them.
  setImmediate(() => void tidySecretIds(call, uid, false).catch(() => undefined))
}

function lookUp(role: AppRole, hash: string, { nowMs, storage }: EngineCall): Reply | undefined {
  const secret = secretIdAt((each) => storage.get(each), role.uid, hash, nowMs)
  if (!secret) return { status: 204 }
  const { cidrs, createdAtMs, expiresAtMs, metadata, tokenCidrs, ttlSeconds, updatedAtMs, usesLeft } = secret
  return {
    data: {
      secret_id_accessor: secret.accessor,
      secret_id_num_uses: usesLeft,
      secret_id_ttl: ttlSeconds,
      cidr_list: cidrs,
      token_bound_cidrs: tokenCidrs,
      creation_time: new Date(createdAtMs).toISOString(),
      expiration_time: expiresAtMs === undefined ? '0001-01-01T00:00:00Z' : new Date(expiresAtMs).toISOString(),
      last_updated_time: new Date(updatedAtMs).toISOString(),
      metadata: metadata ?? {},
    },
  }
}

function hashOfAccessor(role: AppRole, accessor: string, { mount }: EngineCall, read: ReadEntry): string | undefined {
  if (accessor === '') throw new Rejection(400, 'missing secret_id_accessor')
  return read(at.accessor(role.uid, hashOf(mount, 'accessor', accessor)))?.toString('latin1')
}

function removal(role: AppRole, hash: string, { mount, storage }: EngineCall): { readonly batch: Batch } | undefined {
  // Also an expired one.
  const secret = secretIdAt((each) => storage.pending(each), role.uid, hash, 0)
  if (!secret) return undefined
  const deletes = [at.secret(role.uid, hash), at.accessor(role.uid, hashOf(mount, 'accessor', secret.accessor))]
  return { batch: { puts: [], deletes } }
}

function destroy(
  { role_name: name, secret_id: secretId }: EngineInput<typeof SECRET_ID_FIELDS>,
  call: EngineCall,
): Reply | undefined {
  if (secretId === '') throw new Rejection(400, 'missing secret_id')
  return removal(required(name, call), hashOf(call.mount, 'secret-id', secretId), call)
}

function destroyByAccessor(
  { role_name: name, secret_id_accessor: accessor }: EngineInput<typeof ACCESSOR_FIELDS>,
  call: EngineCall,
): Reply | undefined {
  const role = required(name, call)
  const hash = hashOfAccessor(role, accessor, call, (each) => call.storage.pending(each))
  if (hash === undefined) throw new Rejection(404, 'failed to find accessor entry for secret_id_accessor')
  return removal(role, hash, call)
}

function* accessors(role: AppRole, { nowMs, storage }: EngineCall): SlicedWork<string[]> {
  const found: string[] = []
  for (const hash of storage.list(at.secrets(role.uid))) {
    const secret = secretIdAt((each) => storage.get(each), role.uid, hash, nowMs)
    if (secret) found.push(secret.accessor)
    yield RECORD_COST
  }
  return found.sort()
}
