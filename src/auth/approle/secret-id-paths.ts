/** `role/:name/secret-id…` of an AppRole mount: what a program logs in with. */
import { randomUUID } from 'node:crypto'
import type { Batch } from '../../storage/barrier/storage.ts'
import { AddressRanges, isRangeWithin } from '../../engines/framework/addresses.ts'
import { type EngineCall, path, type Path, Rejection, type Reply } from '../../engines/framework/engine.ts'
import { commaList, duration, type EngineInput, integer, isObject, text } from '../../engines/framework/fields.ts'
import { runSliced, RECORD_COST, type SlicedWork } from '../../platform/sliced-work.ts'
import { ROLE_NAME } from './role-paths.ts'
import {
  encoded,
  hashOf,
  type Reading,
  type Role,
  roleNamed,
  rolePaths as at,
  type SecretId,
  secretIdAt,
  tidied,
} from './role-record.ts'

const METADATA_MAX = 64
const METADATA_TEXT_MAX = 512
const SECRET_ID_LENGTH_MAX = 512
const CIDRS_MAX = 256
const TIDIED_EVERY_MS = 600_000

const SECRET = { ...ROLE_NAME, secret_id: text('The secret ID', { fallback: '' }) }
const ACCESSOR = { ...ROLE_NAME, secret_id_accessor: text('Accessor of the secret ID', { fallback: '' }) }
const MADE = {
  ...ROLE_NAME,
  metadata: text('JSON text of an object with texts: shown with the tokens'),
  cidr_list: commaList('Addresses and ranges that logins with it may come from; within those of the role'),
  token_bound_cidrs: commaList('Addresses and ranges that its tokens may be used from; within those of the role'),
  num_uses: integer('How many logins it is good for; no more than the role says'),
  ttl: duration('How long it is good; no longer than the role says'),
}
const CUSTOM = { ...MADE, secret_id: text('The secret ID', { fallback: '' }) }

/** When the secret IDs of a role were looked at last. */
const tidiedAtMs = new Map<string, number>()

export function secretIdPaths(): Path[] {
  return [
    path({
      pattern: 'role/:role_name/secret-id',
      summary: 'Make a secret ID; accessors of those there are',
      fields: MADE,
      update: (input, call) => made(input, randomUUID(), call),
      list: async ({ role_name: name }, call) => {
        const role = required(name, call)
        return { data: { keys: await runSliced(accessors(role, call), call) } }
      },
    }),
    path({
      pattern: 'role/:role_name/custom-secret-id',
      summary: 'Make a secret ID that its maker chooses',
      fields: CUSTOM,
      update(input, call) {
        const { secret_id: secretId } = input
        if (secretId === '') throw new Rejection(400, 'missing secret_id')
        if (secretId.length > SECRET_ID_LENGTH_MAX) {
          throw new Rejection(400, `a secret ID has at most ${SECRET_ID_LENGTH_MAX} characters`)
        }
        return made(input, secretId, call)
      },
    }),
    path({
      pattern: 'role/:role_name/secret-id/lookup',
      summary: 'What is known of a secret ID',
      fields: SECRET,
      update({ role_name: name, secret_id: secretId }, call) {
        if (secretId === '') throw new Rejection(400, 'missing secret_id')
        return told(required(name, call), hashOf(call.mount, 'secret-id', secretId), call)
      },
    }),
    path({
      pattern: 'role/:role_name/secret-id/destroy',
      summary: 'End a secret ID',
      fields: SECRET,
      update: destroy,
      delete: destroy,
    }),
    path({
      pattern: 'role/:role_name/secret-id-accessor/lookup',
      summary: 'What is known of the secret ID of an accessor',
      fields: ACCESSOR,
      update({ role_name: name, secret_id_accessor: accessor }, call) {
        const role = required(name, call)
        const hash = ofAccessor(role, accessor, call, (each) => call.storage.get(each))
        if (hash === undefined) throw new Rejection(404, 'failed to find accessor entry for secret_id_accessor')
        return told(role, hash, call)
      },
    }),
    path({
      pattern: 'role/:role_name/secret-id-accessor/destroy',
      summary: 'End the secret ID of an accessor',
      fields: ACCESSOR,
      update: destroyByAccessor,
      delete: destroyByAccessor,
    }),
  ]
}

/** Throws a Rejection (404) for a role that is not there. */
function required(name: string, { mount, storage }: EngineCall): Role {
  const role = roleNamed((each) => storage.pending(each), mount, name)
  if (!role) throw new Rejection(404, `role ${JSON.stringify(name.slice(0, 64))} does not exist`)
  return role
}

function made(input: EngineInput<typeof MADE>, secretId: string, call: EngineCall): Reply {
  const { mount, nowMs, storage } = call
  const role = required(input.role_name, call)
  if (!role.bindSecretId) throw new Rejection(400, 'bind_secret_id is not set on the role')
  const hash = hashOf(mount, 'secret-id', secretId)
  if (secretIdAt((each) => storage.pending(each), role.uid, hash, nowMs)) {
    throw new Rejection(400, 'the secret ID is there already')
  }
  const [uses, ttl] = [within(input.num_uses, role.secretIdNumUses), within(input.ttl, role.secretIdTtlSeconds)]
  if (uses === undefined) throw new Rejection(400, 'num_uses cannot be higher than the role’s secret_id_num_uses')
  if (ttl === undefined) throw new Rejection(400, 'ttl cannot be longer than the role’s secret_id_ttl')
  const secret: SecretId = {
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
  tidySometimes(role, call)
  const accessorHash = hashOf(mount, 'accessor', secret.accessor)
  const puts = [
    { path: at.secret(role.uid, hash), value: encoded(secret) },
    { path: at.accessor(role.uid, accessorHash), value: Buffer.from(hash, 'latin1') },
  ]
  const { accessor } = secret
  return {
    data: { secret_id: secretId, secret_id_accessor: accessor, secret_id_num_uses: uses, secret_id_ttl: ttl },
    batch: { puts, deletes: [] },
  }
}

/** What was asked for, where it is within what the role says; 0 is no limit. */
function within(asked: number | undefined, limit: number): number | undefined {
  if (asked === undefined) return limit
  if (asked < 0) throw new Rejection(400, 'num_uses cannot be negative')
  return limit > 0 && (asked === 0 || asked > limit) ? undefined : asked
}

function subset(asked: readonly string[] | undefined, ofRole: readonly string[]): string[] {
  const cidrs = [...(asked ?? [])]
  if (cidrs.length > CIDRS_MAX) throw new Rejection(400, `at most ${CIDRS_MAX} addresses and ranges can be bound`)
  // Throws for a range that is none.
  void new AddressRanges(cidrs)
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
  if (!isObject(parsed))
    throw new Rejection(400, 'failed to parse metadata: it is the JSON text of an object with texts')
  const pairs = Object.entries(parsed)
  if (pairs.length > METADATA_MAX) throw new Rejection(400, `metadata has at most ${METADATA_MAX} keys`)
  return Object.fromEntries(
    pairs.map(([key, value]) => {
      if (typeof value === 'string' && value.length <= METADATA_TEXT_MAX && key.length <= METADATA_TEXT_MAX)
        return [key, value]
      throw new Rejection(400, `metadata has texts of at most ${METADATA_TEXT_MAX} characters`)
    }),
  )
}

/** What has expired goes while more is made. */
function tidySometimes({ uid }: Role, call: EngineCall): void {
  const { nowMs } = call
  if (nowMs - (tidiedAtMs.get(uid) ?? 0) < TIDIED_EVERY_MS) return
  if (tidiedAtMs.size > 10_000) tidiedAtMs.clear()
  tidiedAtMs.set(uid, nowMs)
  setImmediate(() => void tidied(call, uid, false).catch(() => undefined))
}

function told(role: Role, hash: string, { nowMs, storage }: EngineCall): Reply | undefined {
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

function ofAccessor(role: Role, accessor: string, { mount }: EngineCall, read: Reading): string | undefined {
  if (accessor === '') throw new Rejection(400, 'missing secret_id_accessor')
  return read(at.accessor(role.uid, hashOf(mount, 'accessor', accessor)))?.toString('latin1')
}

function removal(role: Role, hash: string, { mount, storage }: EngineCall): { readonly batch: Batch } | undefined {
  // Also one that has expired.
  const secret = secretIdAt((each) => storage.pending(each), role.uid, hash, 0)
  if (!secret) return undefined
  const deletes = [at.secret(role.uid, hash), at.accessor(role.uid, hashOf(mount, 'accessor', secret.accessor))]
  return { batch: { puts: [], deletes } }
}

function destroy(
  { role_name: name, secret_id: secretId }: EngineInput<typeof SECRET>,
  call: EngineCall,
): Reply | undefined {
  if (secretId === '') throw new Rejection(400, 'missing secret_id')
  return removal(required(name, call), hashOf(call.mount, 'secret-id', secretId), call)
}

function destroyByAccessor(
  { role_name: name, secret_id_accessor: accessor }: EngineInput<typeof ACCESSOR>,
  call: EngineCall,
): Reply | undefined {
  const role = required(name, call)
  const hash = ofAccessor(role, accessor, call, (each) => call.storage.pending(each))
  if (hash === undefined) throw new Rejection(404, 'failed to find accessor entry for secret_id_accessor')
  return removal(role, hash, call)
}

function* accessors(role: Role, { nowMs, storage }: EngineCall): SlicedWork<string[]> {
  const found: string[] = []
  for (const hash of storage.list(at.secrets(role.uid))) {
    const secret = secretIdAt((each) => storage.get(each), role.uid, hash, nowMs)
    if (secret) found.push(secret.accessor)
    yield RECORD_COST
  }
  return found.sort()
}
