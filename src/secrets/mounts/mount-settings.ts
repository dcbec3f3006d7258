/** Validates the fields of requests that enable or tune a mount. Every error is a Rejection (400). */
import { type Engine, type MountOptions, Rejection } from '../../engines/framework/engine.ts'
import {
  anything,
  boolean,
  duration,
  integer,
  commaList,
  type EngineInput,
  isObject,
  readFields,
  text,
  textMap,
} from '../../engines/framework/fields.ts'
import {
  DEFAULT_LOCKOUT,
  encodeRecord,
  isAuthPath,
  type MountConfig,
  type MountRecord,
  newRecord,
} from './mount-record.ts'
import type { Mount, MountTable } from './mounts.ts'
import { checkTtlSettings, ttlSettingSeconds } from './mount-ttl.ts'

/** The path of a mount is part of the path of each secret, and of policies. */
const PATH_LENGTH_MAX = 512
/** Records of all mounts are read at each unseal. */
const RECORD_BYTES_MAX = 64 << 10
/** Mounts that cannot be moved, and at and below which no secrets engine can be enabled. */
const RESERVED = ['sys/', 'auth/', 'audit/', 'cubbyhole/', 'identity/']
const VISIBILITIES = ['', 'unauth', 'hidden'] as const
const TOKEN_TYPES = new Set(['default-service', 'default-batch', 'service', 'batch'])

const CONFIG = {
  default_lease_ttl: anything(
    'Default TTL of leases and tokens, in seconds or as a duration. Empty: unchanged; `system`: the default of the system',
  ),
  max_lease_ttl: anything('Maximum TTL of leases and tokens'),
  force_no_cache: boolean('Stored for clients that set it; has no effect'),
  listing_visibility: text('`unauth`: callers without a token see the mount in lists; `hidden` or empty: they do not'),
  audit_non_hmac_request_keys: commaList('Request fields that the audit log shows in plain text'),
  audit_non_hmac_response_keys: commaList('Response fields that the audit log shows in plain text'),
  passthrough_request_headers: commaList('Request headers that are passed to the engine'),
  allowed_response_headers: commaList('Response headers that the engine may set'),
  token_type: text('Type of the tokens that the auth method issues'),
  user_lockout_config: anything('Lockout of names after failed logins'),
}

const LOCKOUT = {
  lockout_threshold: integer('Failed logins before a name is locked'),
  lockout_duration: duration('Duration of a lockout'),
  lockout_counter_reset: duration('Time without a failed login after which the count is reset'),
  lockout_disable: boolean('Disable the lockout'),
}

export const TUNE_FIELDS = {
  ...CONFIG,
  description: text('Description'),
  options: textMap('Options of the engine'),
}

export const ENABLE_FIELDS = {
  type: text('Type of the engine'),
  description: text('Description', { fallback: '' }),
  config: anything('Settings, as in `tune`'),
  local: boolean('Exclude the mount from replication between clusters', { fallback: false }),
  seal_wrap: boolean('Stored for clients that set it; all entries are encrypted in the same way', { fallback: false }),
  external_entropy_access: boolean('Not supported', { fallback: false }),
  options: textMap('Options of the engine'),
  plugin_name: text('Type of the engine, for old clients that send the type `plugin`'),
  plugin_version: text('Not supported: engines are built in'),
}

type ConfigInput = EngineInput<typeof CONFIG>

/** The stored form of a mount's path. Throws a Rejection (400) for an invalid path. */
export function mountPath(given: string): string {
  // A regular expression would take quadratic time on many slashes in the middle.
  let [from, to] = [0, given.length]
  while (given[from] === '/') from++
  while (to > from && given[to - 1] === '/') to--
  const path = `${given.slice(from, to)}/`
  if (path === '/') throw new Rejection(400, 'missing mount path')
  if (path.length > PATH_LENGTH_MAX)
    throw new Rejection(400, `a mount path can have at most ${PATH_LENGTH_MAX} characters`)
  if (/(?:^|\/)\.{0,2}\//.test(path)) throw new Rejection(400, 'a mount path cannot have an empty, "." or ".." segment')
  if (!path.isWellFormed() || /[^\P{C}]|[^\P{Z} ]/u.test(path)) {
    throw new Rejection(400, 'a mount path can have printable characters only')
  }
  if (/(?:^|\/) | (?:\/|$)/.test(path))
    throw new Rejection(400, 'a segment of a mount path cannot begin or end with a space')
  return path
}

/** Whether a path is at or below a mount that cannot be moved. */
export function isReserved(path: string): boolean {
  return RESERVED.some((each) => path.startsWith(each))
}

/** The record of a new mount, with warnings for the caller. */
export function newEnabledRecord(
  path: string,
  input: EngineInput<typeof ENABLE_FIELDS>,
  table: MountTable,
): { readonly record: MountRecord; readonly warnings: readonly string[] } {
  const named = input.type === 'plugin' && input.plugin_name ? input.plugin_name : input.type
  if (named === undefined || named === '') throw new Rejection(400, 'backend type must be specified as a string')
  const config = configOf(parseConfig(input.config), undefined, isAuthPath(path))
  const engine = engineFor(named, path, table)
  if (input.plugin_version) throw new Rejection(400, 'plugin_version is not supported: engines are built in')
  if (input.external_entropy_access) throw new Rejection(400, 'external_entropy_access is not supported')
  const type = engine.furtherTypes?.includes(named) ? named : engine.type
  const { options, warnings = [] } = validateOptions(engine, type, {
    ...Object.fromEntries(input.options ?? []),
    ...(type === named ? {} : engine.aliases?.[named]),
  })
  const { description, local, seal_wrap: sealWrap } = input
  const record = newRecord({ path, type, description, local, sealWrap, options, config })
  return { record: checkSize(record), warnings }
}

/** The record with the tuned settings. `warn` receives warnings for the caller. */
export function applyTuning(
  record: MountRecord,
  { engine }: Mount,
  input: EngineInput<typeof TUNE_FIELDS>,
  warn: (text: string) => void,
): MountRecord {
  const config = configOf(input, record.config, isAuthPath(record.path))
  const given = input.options && input.options.size > 0 ? Object.fromEntries(input.options) : undefined
  const valid = given && validateOptions(engine, record.type, { ...record.options, ...given }, record.options)
  for (const each of valid?.warnings ?? []) warn(each)
  return checkSize({
    ...record,
    config,
    description: input.description ?? record.description,
    options: valid ? { ...valid.options } : record.options,
  })
}

function engineFor(type: string, path: string, table: MountTable): Engine {
  const engine = table.engine(type)
  if (engine?.isSingle) {
    if (isAuthPath(path)) throw new Rejection(400, `${engine.type} credential backend cannot be instantiated`)
    throw new Rejection(400, `mount type of "${engine.type}" is not mountable`)
  }
  const kind = isAuthPath(path) ? 'auth' : 'secret'
  if (!engine || (engine.kind ?? 'secret') !== kind) {
    const offered = table.engines.filter((each) => !each.isSingle && (each.kind ?? 'secret') === kind)
    const types = offered.map((each) => each.type).sort()
    const known = types.length > 0 ? `; supported: ${types.join(', ')}` : ''
    throw new Rejection(400, `plugin not found in the catalog: ${type.slice(0, 64)}${known}`)
  }
  return engine
}

function validateOptions(engine: Engine, type: string, given: MountOptions, before?: MountOptions) {
  if (engine.checkOptions && type === engine.type) {
    const { options, warnings } = engine.checkOptions(given, before)
    return { options: { ...options }, warnings }
  }
  if (Object.hasOwn(given, 'version')) {
    throw new Rejection(400, `secrets engine "${type}" does not allow setting a version`)
  }
  return { options: { ...given }, warnings: [] }
}

function checkSize(record: MountRecord): MountRecord {
  if (encodeRecord(record).length > RECORD_BYTES_MAX) {
    throw new Rejection(400, `description, options and settings of a mount exceed ${RECORD_BYTES_MAX} bytes`)
  }
  return record
}

function parseConfig(config: unknown): Partial<ConfigInput> {
  if (config === undefined || config === null) return {}
  if (!isObject(config)) throw new Rejection(400, 'unable to convert given mount config information')
  return readFields(CONFIG, { data: config, params: {} }, (name, why) => {
    return new Rejection(400, `unable to convert given mount config information: ${name}: ${why}`)
  })
}

function configOf(given: Partial<ConfigInput>, before: MountConfig | undefined, isAuth: boolean): MountConfig {
  const { listing_visibility: visibility = before?.listingVisibility ?? '', token_type: tokenType } = given
  const listingVisibility = VISIBILITIES.find((each) => each === visibility)
  if (listingVisibility === undefined)
    throw new Rejection(400, 'invalid listing_visibility, expected "unauth", "hidden" or empty')
  if (tokenType !== undefined && !isAuth) throw new Rejection(400, '"token_type" can be set for auth methods only')
  if (tokenType !== undefined && !TOKEN_TYPES.has(tokenType)) {
    throw new Rejection(400, `invalid value for "token_type", expected one of ${[...TOKEN_TYPES].join(', ')}`)
  }
  const config: MountConfig = {
    defaultLeaseSeconds: ttlSettingSeconds(given.default_lease_ttl, 'default') ?? before?.defaultLeaseSeconds ?? 0,
    maxLeaseSeconds: ttlSettingSeconds(given.max_lease_ttl, 'max') ?? before?.maxLeaseSeconds ?? 0,
    forceNoCache: given.force_no_cache ?? before?.forceNoCache ?? false,
    listingVisibility,
    ...listSettings(given, before),
    ...optionalMember('userLockout', lockoutOf(given.user_lockout_config, before?.userLockout, isAuth)),
    ...optionalMember('tokenType', tokenType ?? before?.tokenType ?? (isAuth ? 'default-service' : undefined)),
  }
  checkTtlSettings(config)
  return config
}

function lockoutOf(given: unknown, before: MountConfig['userLockout'], isAuth: boolean): MountConfig['userLockout'] {
  if (given === undefined || given === null) return before
  if (!isAuth) throw new Rejection(400, '"user_lockout_config" can be set for auth methods only')
  if (!isObject(given)) throw new Rejection(400, 'user_lockout_config must be an object')
  const fields = readFields(LOCKOUT, { data: given, params: {} }, (name, why) => {
    return new Rejection(400, `user_lockout_config: ${name}: ${why}`)
  }) as EngineInput<typeof LOCKOUT>
  const {
    lockout_counter_reset: reset,
    lockout_disable: isDisabled,
    lockout_duration: seconds,
    lockout_threshold: threshold,
  } = fields
  if (threshold !== undefined && threshold < 1)
    throw new Rejection(400, 'user_lockout_config: lockout_threshold must be at least 1')
  const kept = before ?? DEFAULT_LOCKOUT
  return {
    threshold: threshold ?? kept.threshold,
    durationSeconds: seconds ?? kept.durationSeconds,
    counterResetSeconds: reset ?? kept.counterResetSeconds,
    isDisabled: isDisabled ?? kept.isDisabled,
  }
}

function listSettings(given: Partial<ConfigInput>, before: MountConfig | undefined): Partial<MountConfig> {
  return {
    ...optionalMember('auditNonHmacRequestKeys', given.audit_non_hmac_request_keys ?? before?.auditNonHmacRequestKeys),
    ...optionalMember(
      'auditNonHmacResponseKeys',
      given.audit_non_hmac_response_keys ?? before?.auditNonHmacResponseKeys,
    ),
    ...optionalMember(
      'passthroughRequestHeaders',
      given.passthrough_request_headers ?? before?.passthroughRequestHeaders,
    ),
    ...optionalMember('allowedResponseHeaders', given.allowed_response_headers ?? before?.allowedResponseHeaders),
  }
}

function optionalMember<T>(name: string, value: T | undefined): Record<string, T> {
  return value === undefined ? {} : { [name]: value }
}
