/**
 * Endpoints of Nomad that outpost does not have, so that a stock client shows why, and where the alternatives are documented. Some
 * share their first word with possible mounts of the secrets core (`vars`, `services`); the router gives precedence to a mount.
 *
 * Not listed are requests that stock commands send besides their own and expect to fail, such as `checks` of an allocation.
 */
import type { UnsupportedFeature } from '../../platform/errors.ts'

interface UnsupportedEndpoint extends UnsupportedFeature {
  /** Of the path after its first word. */
  readonly rest: RegExp
  /** Verbs that are unsupported; undefined for all. */
  readonly verbs?: readonly string[]
}

const WRITE_VERBS = ['POST', 'PUT', 'DELETE', 'PATCH']
const ROOT_ONLY = /^$/
const ANY_REST = /^/
const BELOW_ROOT = /^\/./

const DRAIN = { feature: 'drain and eligibility of nodes', section: 'drain-and-eligibility' }
const SCHEDULING = { feature: 'job scheduling', section: 'job-scheduling' }
const CONTROL = { feature: 'exec, signals and restarts of allocations', section: 'exec-signals-and-restarts' }
const RAFT = { feature: 'Raft and membership of servers', section: 'raft-and-membership' }
const PROFILES = { feature: 'profiles of the Go runtime', section: 'profiles-and-log-levels' }
const VARIABLES = { feature: "Nomad's variables and keyring", section: 'volumes-services-and-variables' }
const VOLUMES = { feature: 'volumes and their plugins', section: 'volumes-services-and-variables' }
const SERVICES = { feature: 'service discovery', section: 'volumes-services-and-variables' }
const ACL = { feature: "Nomad's ACL API", section: 'acl-api' }
const NAMESPACES = { feature: 'namespaces with settings, quotas and Sentinel policies', section: 'namespaces' }

/** By the first word of the path. */
const UNSUPPORTED: ReadonlyMap<string, readonly UnsupportedEndpoint[]> = new Map([
  [
    'node',
    [
      { rest: /^\/[^/]+\/(?:drain|eligibility)$/, ...DRAIN },
      { rest: /^\/(?:[^/]+\/evaluate|pools|pool(?:\/.*)?)$/, ...SCHEDULING },
    ],
  ],
  [
    'jobs',
    [
      { rest: ROOT_ONLY, verbs: WRITE_VERBS, ...SCHEDULING },
      { rest: /^\/(?:parse|statuses)$/, ...SCHEDULING },
    ],
  ],
  [
    'job',
    [
      // A job ID may contain slashes: Nomad, too, takes the last word for the endpoint.
      {
        rest: /^\/.+\/(?:actions?|deployments|dispatch|evaluate|force|plan|revert|scale|stable|submission|versions)$/,
        ...SCHEDULING,
      },
      // POST of the logs has cursors in its body.
      { rest: /^\/(?!.*\/logs$)./, verbs: WRITE_VERBS, ...SCHEDULING },
    ],
  ],
  ['validate', [{ rest: /^\/job$/, ...SCHEDULING }]],
  ['evaluations', [{ rest: /^(?:\/count)?$/, ...SCHEDULING }]],
  ['evaluation', [{ rest: BELOW_ROOT, ...SCHEDULING }]],
  ['deployments', [{ rest: ROOT_ONLY, ...SCHEDULING }]],
  ['deployment', [{ rest: BELOW_ROOT, ...SCHEDULING }]],
  ['scaling', [{ rest: /^\/polic(?:ies|y\/.+)$/, ...SCHEDULING }]],
  ['recommendations', [{ rest: /^(?:\/apply)?$/, ...SCHEDULING }]],
  ['recommendation', [{ rest: BELOW_ROOT, ...SCHEDULING }]],
  ['system', [{ rest: /^\/reconcile\/summaries$/, ...SCHEDULING }]],
  ['search', [{ rest: /^\/fuzzy$/, feature: 'fuzzy search', section: 'job-scheduling' }]],
  ['allocation', [{ rest: /^\/[^/]+\/(?:stop|services)$/, ...SCHEDULING }]],
  ['client', [{ rest: /^\/allocation\/[^/]+\/(?:exec|pause|restart|signal)$/, ...CONTROL }]],
  [
    'operator',
    [
      { rest: /^\/(?:raft|autopilot|upgrade-check)\/.+$/, ...RAFT },
      { rest: /^\/(?:snapshot(?:\/state)?|utilization)$/, ...RAFT },
      { rest: /^\/scheduler\/configuration$/, ...SCHEDULING },
      { rest: /^\/keyring(?:\/.*)?$/, ...VARIABLES },
    ],
  ],
  [
    'agent',
    [
      { rest: /^\/(?:join|force-leave|servers)$/, ...RAFT },
      { rest: /^\/(?:pprof(?:\/.*)?|host)$/, ...PROFILES },
      { rest: /^\/schedulers(?:\/.*)?$/, ...SCHEDULING },
      { rest: /^\/keyring(?:\/.*)?$/, ...VARIABLES },
    ],
  ],
  ['vars', [{ rest: ROOT_ONLY, ...VARIABLES }]],
  ['var', [{ rest: BELOW_ROOT, ...VARIABLES }]],
  ['volumes', [{ rest: /^(?:\/(?:external|snapshot))?$/, ...VOLUMES }]],
  ['volume', [{ rest: BELOW_ROOT, ...VOLUMES }]],
  ['plugins', [{ rest: ROOT_ONLY, ...VOLUMES }]],
  ['plugin', [{ rest: BELOW_ROOT, ...VOLUMES }]],
  ['services', [{ rest: ROOT_ONLY, ...SERVICES }]],
  ['service', [{ rest: BELOW_ROOT, ...SERVICES }]],
  ['acl', [{ rest: BELOW_ROOT, ...ACL }]],
  ['namespace', [{ rest: ANY_REST, ...NAMESPACES }]],
  ['quotas', [{ rest: ROOT_ONLY, ...NAMESPACES }]],
  ['quota', [{ rest: ANY_REST, ...NAMESPACES }]],
  ['quota-usages', [{ rest: ROOT_ONLY, ...NAMESPACES }]],
  ['sentinel', [{ rest: /^\/polic(?:ies|y\/.+)$/, ...NAMESPACES }]],
])

/** For the router. Nomad's errors are plain text. */
export const UNSUPPORTED_ENDPOINTS = {
  errorFormat: 'plain',
  /** `root` is the first word of the path after `/v1`. */
  find(verb: string, root: string, path: string): UnsupportedFeature | undefined {
    const endpoints = UNSUPPORTED.get(root)
    if (!endpoints) return undefined
    const rest = path.slice(path.indexOf(root) + root.length).replace(/\/$/, '')
    return endpoints.find((each) => each.rest.test(rest) && (each.verbs?.includes(verb) ?? true))
  },
} as const
