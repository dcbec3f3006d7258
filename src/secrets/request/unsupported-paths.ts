/**
 * Paths of Vault and OpenBao that outpost does not have, so that a stock client shows why, and where the alternatives are
 * documented. Other unknown paths are 404 as in the compatible system, because some clients request them to detect a feature.
 */
import type { UnsupportedFeature } from '../../platform/errors.ts'

interface UnsupportedPath extends UnsupportedFeature {
  readonly path: RegExp
}

const RAFT = { feature: 'Raft and membership of servers', section: 'raft-and-membership' }
const NAMESPACES = { feature: 'namespaces other than the root', section: 'namespaces' }
const PLUGINS = { feature: 'plugins', section: 'plugins' }
const PERFORMANCE = { feature: 'performance replication', section: 'performance-replication' }
const PROFILES = { feature: 'profiles and log levels over the API', section: 'profiles-and-log-levels' }
const GOVERNANCE = { feature: 'features of the enterprise edition', section: 'enterprise-features' }
const COUNTERS = { feature: 'counters of client activity', section: 'counters-of-clients' }
const OIDC = { feature: 'the OIDC provider', section: 'oidc-provider' }

const UNSUPPORTED: readonly UnsupportedPath[] = [
  { path: /^sys\/storage\/raft(?:\/|$)/, ...RAFT },
  { path: /^sys\/namespaces(?:\/|$)/, ...NAMESPACES },
  { path: /^sys\/plugins\/(?:catalog\/.|pins|reload|runtimes)/, ...PLUGINS },
  { path: /^sys\/replication\/performance\//, ...PERFORMANCE },
  { path: /^sys\/replication\/(?:primary|secondary)(?:\/|$)/, ...PERFORMANCE },
  { path: /^sys\/(?:loggers|pprof)(?:\/|$)/, ...PROFILES },
  { path: /^sys\/monitor$/, feature: 'sys/monitor', section: 'profiles-and-log-levels' },
  { path: /^sys\/raw(?:\/|$)/, feature: 'raw access to the storage', section: 'raw-storage' },
  {
    path: /^sys\/(?:generate-recovery-token|seal-backend-status)(?:\/|$)/,
    feature: 'recovery mode',
    section: 'raw-storage',
  },
  { path: /^sys\/policies\/password(?:\/|$)/, feature: 'password policies', section: 'password-policies' },
  { path: /^sys\/quotas\/lease-count(?:\/|$)/, feature: 'lease count quotas', section: 'lease-count-quotas' },
  { path: /^sys\/internal\/counters\/(?:activity|config|requests)(?:\/|$)/, ...COUNTERS },
  { path: /^sys\/(?:reporting|utilization-report)(?:\/|$)/, ...COUNTERS },
  {
    path: /^sys\/(?:config\/(?:control-group|group-policy-application)|control-group|license|managed-keys|policies\/[er]gp|sync)(?:\/|$)/,
    ...GOVERNANCE,
  },
  { path: /^sys\/events\//, feature: 'event notifications', section: 'event-notifications' },
  { path: /^sys\/config\/ui\//, feature: 'settings of a web interface', section: 'web-interface-settings' },
  { path: /^identity\/oidc\/(?:assignment|client|introspect|provider|role|scope|token)(?:\/|$)/, ...OIDC },
  {
    path: /^identity\/mfa\/method\/(?:duo|okta|pingid)(?:\/|$)/,
    feature: 'Duo, Okta and PingID',
    section: 'mfa-methods',
  },
]

/** Undefined for a path that outpost has, and for any other unknown path. */
export function unsupportedPath(path: string): UnsupportedFeature | undefined {
  return UNSUPPORTED.find((each) => each.path.test(path))
}

/** For a namespace in the header of a request. */
export const UNSUPPORTED_NAMESPACES: UnsupportedFeature = NAMESPACES
