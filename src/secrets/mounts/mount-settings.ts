/** What callers say about a mount that they enable or tune, read and checked. Every fault is a Rejection (400). */
import { type Engine, type MountOptions, Rejection } from '../../engines/framework/engine.ts'
import {
  anything,
  boolean,
  duration,
  integer,
  commaList,
  type InputOf,
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

/** A mount's path is in the name of each of its secrets, and in policies. */
const PATH_LENGTH_MAX = 512
/** All that is kept of a mount is read at each start. */
const RECORD_BYTES_MAX = 64 << 10
/** Places at and below which no secret engine can be enabled, and which stay where they are. */
const RESERVED = ['sys/', 'auth/', 'audit/', 'cubbyhole/', 'identity/']
const VISIBILITIES = ['', 'unauth', 'hidden'] as const
const TOKEN_TYPES = new Set(['default-service', 'default-batch', 'service', 'batch'])

const CONFIG = {
  default_lease_ttl: anything('How long what it gives out is good for: seconds or a duration; empty leaves it'),
  max_lease_ttl: anything('How long anything that it gives out can be good for at most'),
  force_no_cache: boolean('Kept for clients that set it; nothing of it is cached'),
  listing_visibility: text('`unauth` shows the mount to callers without a token, `hidden` and empty do not'),
  audit_non_hmac_request_keys: commaList('Fields of requests that the audit log shows as they are'),
  audit_non_hmac_response_keys: commaList('Fields of answers that the audit log shows as they are'),
  passthrough_request_headers: commaList('Headers of requests that the engine is shown'),
  allowed_response_headers: commaList('Headers that the engine may add to answers'),
  token_type: text('Type of the tokens that an auth method gives out'),
  user_lockout_config: anything('After how many wrong passwords a name is locked out, and how long'),
}

const LOCKOUT = {
  lockout_threshold: integer('Wrong passwords'),
  lockout_duration: duration('How long the name is locked out'),
  lockout_counter_reset: duration('After how long without a wrong password the count begins anew'),
  lockout_disable: boolean('No name is ever locked out'),
}

/** Fields of a request that tunes. */
export const TUNE_FIELDS = {
  ...CONFIG,
  description: text('What it is for, for people'),
  options: textMap('Options of its engine'),
}

/** Fields of a request that enables. */
export const ENABLE_FIELDS = {
  type: text('Type of the engine'),
  description: text('What it is for, for people', { fallback: '' }),
  config: anything('Settings as they are tuned'),
  local: boolean('Whether it is left out of replication between clusters', { fallback: false }),
  seal_wrap: boolean('Kept for clients that set it; everything is encrypted alike', { fallback: false }),
  external_entropy_access: boolean('Not offered', { fallback: false }),
  options: textMap('Options of its engine'),
  plugin_name: text('The type, for old clients that say `plugin` there'),
  plugin_version: text('Only the version that is built in'),
}

type Config = InputOf<typeof CONFIG>

/** A mount's path as it is kept; `given` is without a slash in front. Throws a Rejection for one that cannot be. */
export function mountPath(given: string): string {
  // Not by an expression: on a long row of slashes that is not at the end that would begin anew with each of them.
  let [from, to] = [0, given.length]
  while (given[from] === '/') from++
  while (to > from && given[to - 1] === '/') to--
  const path = `${given.slice(from, to)}/`
  if (path === '/') throw new Rejection(400, 'the path of a mount must be given')
  if (path.length > PATH_LENGTH_MAX)
    throw new Rejection(400, `the path of a mount has at most ${PATH_LENGTH_MAX} characters`)
  if (/(?:^|\/)\.{0,2}\//.test(path)) throw new Rejection(400, 'the path of a mount has no empty, "." or ".." segment')
  if (!path.isWellFormed() || /[^\P{C}]|[^\P{Z} ]/u.test(path)) {
    throw new Rejection(400, 'the path of a mount has printable characters only')
  }
  if (/(?:^|\/) | (?:\/|$)/.test(path))
    throw new Rejection(400, 'no segment of the path of a mount begins or ends with a space')
  return path
}

/** True for what is where it is and stays there. */
export function isReserved(path: string): boolean {
  return RESERVED.some((each) => path.startsWith(each))
}

/** The record of a mount that is to be enabled at a path that may be had, and what its caller should know. */
export function enabledRecord(
  path: string,
  input: InputOf<typeof ENABLE_FIELDS>,
  table: MountTable,
): { readonly record: MountRecord; readonly warnings: readonly string[] } {
  const named = input.type === 'plugin' && input.plugin_name ? input.plugin_name : input.type
  if (named === undefined || named === '') throw new Rejection(400, 'backend type must be specified as a string')
  const config = configOf(givenConfig(input.config), undefined, isAuthPath(path))
  const engine = engineFor(named, path, table)
  if (input.plugin_version) throw new Rejection(400, 'plugin_version cannot be chosen: engines are built in')
  if (input.external_entropy_access) throw new Rejection(400, 'external_entropy_access is not supported')
  const type = engine.furtherTypes?.includes(named) ? named : engine.type
  const { options, warnings = [] } = checkedOptions(engine, type, {
    ...Object.fromEntries(input.options ?? []),
    ...(type === named ? {} : engine.aliases?.[named]),
  })
  const { description, local, seal_wrap: sealWrap } = input
  const record = newRecord({ path, type, description, local, sealWrap, options, config })
  return { record: checked(record), warnings }
}

/** The record as it is once it is tuned; `warn` is told what the caller should know. */
export function tunedRecord(
  record: MountRecord,
  { engine }: Mount,
  input: InputOf<typeof TUNE_FIELDS>,
  warn: (text: string) => void,
): MountRecord {
  const config = configOf(input, record.config, isAuthPath(record.path))
  const given = input.options && input.options.size > 0 ? Object.fromEntries(input.options) : undefined
  const valid = given && checkedOptions(engine, record.type, { ...record.options, ...given }, record.options)
  for (const each of valid?.warnings ?? []) warn(each)
  return checked({
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
    const known = types.length > 0 ? `; there are ${types.join(', ')}` : ''
    throw new Rejection(400, `plugin not found in the catalog: ${type.slice(0, 64)}${known}`)
  }
  return engine
}

function checkedOptions(engine: Engine, type: string, given: MountOptions, before?: MountOptions) {
  if (engine.checkOptions && type === engine.type) {
    const { options, warnings } = engine.checkOptions(given, before)
    return { options: { ...options }, warnings }
  }
  if (Object.hasOwn(given, 'version')) {
    throw new Rejection(400, `secrets engine "${type}" does not allow setting a version`)
  }
  return { options: { ...given }, warnings: [] }
}

function checked(record: MountRecord): MountRecord {
  if (encodeRecord(record).length > RECORD_BYTES_MAX) {
    throw new Rejection(400, `description, options and settings of a mount have at most ${RECORD_BYTES_MAX} bytes`)
  }
  return record
}

function givenConfig(config: unknown): Partial<Config> {
  if (config === undefined || config === null) return {}
  if (!isObject(config)) throw new Rejection(400, 'unable to convert given mount config information')
  return readFields(CONFIG, { data: config, params: {} }, (name, why) => {
    return new Rejection(400, `unable to convert given mount config information: ${name}: ${why}`)
  })
}

function configOf(given: Partial<Config>, before: MountConfig | undefined, isAuth: boolean): MountConfig {
  const { listing_visibility: visibility = before?.listingVisibility ?? '', token_type: tokenType } = given
  const listingVisibility = VISIBILITIES.find((each) => each === visibility)
  if (listingVisibility === undefined)
    throw new Rejection(400, 'invalid listing_visibility: it is "unauth", "hidden" or empty')
  if (tokenType !== undefined && !isAuth) throw new Rejection(400, '"token_type" is a setting of auth methods')
  if (tokenType !== undefined && !TOKEN_TYPES.has(tokenType)) {
    throw new Rejection(400, `invalid value for "token_type": it is one of ${[...TOKEN_TYPES].join(', ')}`)
  }
  const config: MountConfig = {
    defaultLeaseSeconds: ttlSettingSeconds(given.default_lease_ttl, 'default') ?? before?.defaultLeaseSeconds ?? 0,
    maxLeaseSeconds: ttlSettingSeconds(given.max_lease_ttl, 'max') ?? before?.maxLeaseSeconds ?? 0,
    forceNoCache: given.force_no_cache ?? before?.forceNoCache ?? false,
    listingVisibility,
    ...lists(given, before),
    ...defined('userLockout', lockoutOf(given.user_lockout_config, before?.userLockout, isAuth)),
    ...defined('tokenType', tokenType ?? before?.tokenType ?? (isAuth ? 'default-service' : undefined)),
  }
  checkTtlSettings(config)
  return config
}

function lockoutOf(given: unknown, before: MountConfig['userLockout'], isAuth: boolean): MountConfig['userLockout'] {
  if (given === undefined || given === null) return before
  if (!isAuth) throw new Rejection(400, '"user_lockout_config" is a setting of auth methods')
  if (!isObject(given)) throw new Rejection(400, 'user_lockout_config is an object')
  const fields = readFields(LOCKOUT, { data: given, params: {} }, (name, why) => {
    return new Rejection(400, `user_lockout_config: ${name}: ${why}`)
  }) as InputOf<typeof LOCKOUT>
  const {
    lockout_counter_reset: reset,
    lockout_disable: isDisabled,
    lockout_duration: seconds,
    lockout_threshold: threshold,
  } = fields
  if (threshold !== undefined && threshold < 1)
    throw new Rejection(400, 'user_lockout_config: lockout_threshold is at least 1')
  const kept = before ?? DEFAULT_LOCKOUT
  return {
    threshold: threshold ?? kept.threshold,
    durationSeconds: seconds ?? kept.durationSeconds,
    counterResetSeconds: reset ?? kept.counterResetSeconds,
    isDisabled: isDisabled ?? kept.isDisabled,
  }
}

function lists(given: Partial<Config>, before: MountConfig | undefined): Partial<MountConfig> {
  return {
    ...defined('auditNonHmacRequestKeys', given.audit_non_hmac_request_keys ?? before?.auditNonHmacRequestKeys),
    ...defined('auditNonHmacResponseKeys', given.audit_non_hmac_response_keys ?? before?.auditNonHmacResponseKeys),
    ...defined('passthroughRequestHeaders', given.passthrough_request_headers ?? before?.passthroughRequestHeaders),
    ...defined('allowedResponseHeaders', given.allowed_response_headers ?? before?.allowedResponseHeaders),
  }
}

function defined<T>(name: string, value: T | undefined): Record<string, T> {
  return value === undefined ? {} : { [name]: value }
}
