/** The fields of a mount in answers. Stock clients read these names. */
import type { Engine } from '../../engines/framework/engine.ts'
import type { Mount } from './mounts.ts'
import type { MountConfig, MountRecord } from './mount-record.ts'
import { SYSTEM_MAX_TTL_SECONDS } from './mount-ttl.ts'

type MountFields = Record<string, unknown>

/** `version` is the program's. */
export function mountInfo({ engine, record }: Mount, version: string): MountFields {
  const { config } = record
  return {
    accessor: record.accessor,
    config: {
      default_lease_ttl: config.defaultLeaseSeconds,
      force_no_cache: config.forceNoCache,
      max_lease_ttl: config.maxLeaseSeconds,
      ...optionalSettings(config),
    },
    // Clients warn about deprecated engines.
    ...(engine.isSingle ? {} : { deprecation_status: 'supported' }),
    description: record.description,
    external_entropy_access: false,
    local: record.local,
    options: shownOptions(engine, record),
    plugin_version: '',
    running_plugin_version: builtinVersion(version),
    running_sha256: '',
    seal_wrap: record.sealWrap,
    type: record.type,
    uuid: record.uuid,
  }
}

/** The fields for callers without a token, of a mount with `listing_visibility=unauth`. */
export function publicMountInfo({ engine, record }: Mount): MountFields {
  return { type: record.type, description: record.description, options: shownOptions(engine, record) }
}

/** The settings that can be tuned. TTLs are the effective ones. */
export function tuneInfo({ record }: Mount): MountFields {
  const { config, description } = record
  const hasOptions = Object.keys(record.options).length > 0
  return {
    description,
    default_lease_ttl: config.defaultLeaseSeconds || SYSTEM_MAX_TTL_SECONDS,
    max_lease_ttl: config.maxLeaseSeconds || SYSTEM_MAX_TTL_SECONDS,
    force_no_cache: config.forceNoCache,
    ...(hasOptions && { options: record.options }),
    ...optionalSettings(config),
  }
}

/** The version of built-in engines, in the form of plugin versions. */
export function builtinVersion(version: string): string {
  return `v${version}+builtin.outpost`
}

/** Without options set, a type that has options shows an empty object, any other type null. */
function shownOptions(engine: Engine, record: MountRecord): MountRecord['options'] | null {
  const typeHasOptions = engine.checkOptions !== undefined && record.type === engine.type
  return typeHasOptions || Object.keys(record.options).length > 0 ? record.options : null
}

/** Settings that are shown only if they are set. */
function optionalSettings(config: MountConfig): MountFields {
  const lists: MountFields = {
    audit_non_hmac_request_keys: config.auditNonHmacRequestKeys,
    audit_non_hmac_response_keys: config.auditNonHmacResponseKeys,
    passthrough_request_headers: config.passthroughRequestHeaders,
    allowed_response_headers: config.allowedResponseHeaders,
    token_type: config.tokenType,
  }
  const { userLockout: lockout } = config
  if (lockout) {
    lists['user_lockout_config'] = {
      lockout_threshold: lockout.threshold,
      lockout_duration: lockout.durationSeconds,
      lockout_counter_reset: lockout.counterResetSeconds,
      lockout_disable: lockout.isDisabled,
    }
  }
  const set = Object.entries(lists).filter(([, value]) => value !== undefined)
  return {
    ...Object.fromEntries(set),
    ...(config.listingVisibility === '' ? {} : { listing_visibility: config.listingVisibility }),
  }
}
