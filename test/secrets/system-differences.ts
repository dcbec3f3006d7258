/** Where our answers differ from those that were recorded of the compatible server, and why. */
import type { Difference } from '../helpers/openbao-replay.ts'

const VERSIONS: Difference = {
  exchange: /./,
  what: /(^|\.)running_plugin_version$/,
  why: 'engines are part of this program and have its version',
}

export const MOUNT_DIFFERENCES: readonly Difference[] = [
  VERSIONS,
  {
    exchange: /^mount (unknown type|aws)$/,
    what: 'errors[0]',
    why: 'names the types there are',
    ours: /; supported: kv/,
  },
  { exchange: 'mount bad ttl', what: 'errors[0]', why: 'says what would be right' },
  { exchange: 'mount version 3', what: 'errors[0]', why: 'says what would be right' },
  { exchange: 'tune upgrade', what: 'warnings[0]', why: 'the engine of this test says it in its own words' },
  {
    exchange: 'remount',
    what: 'warnings',
    why: 'the mount has moved when the answer comes: there is nothing to wait for',
  },
]

export const SYSTEM_DIFFERENCES: readonly Difference[] = [
  VERSIONS,
  { exchange: /health/, what: 'server_time_utc', why: 'another time' },
  { exchange: /./, what: /(^|\.)version$/, why: 'another version' },
  { exchange: /./, what: 'outpost_version', why: 'version is that of the API' },
  { exchange: /./, what: 'cluster_name', why: 'another name' },
  { exchange: /health/, what: /^(performance_standby|last_wal)$/, why: 'clients of the older family need them' },
  { exchange: /leader/, what: /./, why: 'clients of the older family need every field' },
  {
    exchange: /seal/,
    what: /^(storage_type|build_date)$/,
    why: 'another storage; clients of the older family need the date',
  },
  {
    exchange: 'GET host-info',
    what: /^data\.(cpu|cpu_times|disk|host|memory)\b/,
    why: 'another machine, and less of it',
  },
  { exchange: 'GET ha-status', what: /nodes\[0\]\.(api|cluster)_address$/, why: 'the core of a test has no address' },
  { exchange: 'GET key-status', what: /encryptions$/, why: 'fewer so far' },
  { exchange: /replication/, what: 'status', why: 'clients of the older family ask whoever they talk to' },
  { exchange: 'GET config/state/sanitized', what: /^data\./, why: 'the core of a test has no configuration' },
  { exchange: 'GET in-flight-req', what: /./, why: 'another request' },
  { exchange: /^GET metrics/, what: 'status', why: 'the core of a test has no metrics; they need a token here' },
  { exchange: 'audit enable', what: /./, why: 'devices are enabled by requests here, within directories of their own' },
  { exchange: /^GET mfa\/method/, what: /^(status|errors)$/, why: 'methods of TOTP are below sys/mfa/ here' },
  { exchange: 'GET plugins/catalog', what: /^data\./, why: 'fewer engines' },
  { exchange: 'GET rotate/config', what: 'data.max_operations', why: 'a key is changed earlier' },
  { exchange: 'GET loggers', what: 'status', why: 'not offered' },
  {
    exchange: /^GET (internal\/counters\/(activity|config)|license\/status|raw\/core|storage\/raft\/configuration)$/,
    what: /^(status|errors|link)/,
    why: 'says that the feature is not supported, and where that is documented; clients do not show the text of a 404',
  },
  {
    exchange: /^GET (generate-root|rekey)/,
    what: 'status',
    why: 'these are for holders of key shares, who have no token',
  },
  { exchange: 'health activecode=abc', what: 'errors', why: 'says what is wrong' },
  { exchange: 'LIST mounts', what: 'status', why: 'the path is there, the verb is not' },
  { exchange: 'bare health', what: 'status', why: 'every path is served without /v1 as well' },
  { exchange: 'tools random', what: 'data.random_bytes', why: 'they are random' },
  { exchange: 'openapi head', what: 'body', why: 'our own paths' },
]

export const ROUTING_DIFFERENCES: readonly Difference[] = [
  { exchange: /^(mount exact|catch)/, what: 'warnings[0]', why: 'names the command of another program' },
  { exchange: 'catch data slash', what: /./, why: 'says what is wrong, as without the slash' },
  { exchange: /^(root path|ui)$/, what: 'status', why: 'there is no web page yet' },
  { exchange: /^(v1|v2|other path)$/, what: /^errors/, why: 'says what is wrong' },
  { exchange: 'method HELP', what: 'status', why: 'a verb that HTTP does not know; ?help=1 does the same' },
  { exchange: 'no token wrong method', what: 'status', why: 'a verb that HTTP does not know' },
  { exchange: 'ro bad JSON', what: 'errors[0]', why: 'says where' },
  { exchange: 'ro help', what: /^(help|openapi)$/, why: 'in our own words' },
]
