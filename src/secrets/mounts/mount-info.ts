/** What callers are told of a mount. The names are those that stock clients read. */
import type { Engine } from '../../engines/framework/engine.ts'
import type { Mount } from './mounts.ts'
import type { MountConfig, MountRecord } from './mount-record.ts'
import { SYSTEM_MAX_TTL_SECONDS } from './mount-ttl.ts'

type Told = Record<string, unknown>

/** Everything about a mount; `version` is the program's. */
export function mountInfo({ engine, record }: Mount, version: string): Told {
  const { config } = record
  return {
    accessor: record.accessor,
    config: {
      default_lease_ttl: config.defaultLeaseSeconds,
      force_no_cache: config.forceNoCache,
      max_lease_ttl: config.maxLeaseSeconds,
      ...rareSettings(config),
    },
    // Users are warned about engines that go: it says that these stay.
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

/** What somebody without a token may know of a mount that shows itself. */
export function publicMountInfo({ engine, record }: Mount): Told {
  return { type: record.type, description: record.description, options: shownOptions(engine, record) }
}

/** The settings that can be tuned; terms as they are in force. */
export function tuneInfo({ record }: Mount): Told {
  const { config, description } = record
  const hasOptions = Object.keys(record.options).length > 0
  return {
    description,
    default_lease_ttl: config.defaultLeaseSeconds || SYSTEM_MAX_TTL_SECONDS,
    max_lease_ttl: config.maxLeaseSeconds || SYSTEM_MAX_TTL_SECONDS,
    force_no_cache: config.forceNoCache,
    ...(hasOptions && { options: record.options }),
    ...rareSettings(config),
  }
}

/** How an engine of this program is called where versions of plug-ins are shown. */
export function builtinVersion(version: string): string {
  return `v${version}+builtin.outpost`
}

/** A type that has options of its own shows an empty object where none is set, any other null. */
function shownOptions(engine: Engine, record: MountRecord): MountRecord['options'] | null {
  const hasOwnOptions = engine.checkOptions !== undefined && record.type === engine.type
  return hasOwnOptions || Object.keys(record.options).length > 0 ? record.options : null
}

/** Those that are shown only where somebody has set them. */
function rareSettings(config: MountConfig): Told {
  const lists: Told = {
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
