/**
 * All settings: their names in the file and their valid values. The names are those of Nomad's agent file where Nomad has the setting. The
 * defaults are in `defaults.ts`, rules that concern several settings in `rules.ts`.
 */
import { isIP } from 'node:net'
import { fromPublic } from '@nats-io/nkeys'
import { type Level, LEVELS } from '../platform/log.ts'
import { isUuid } from '../platform/schema.ts'
import { bucketPathOf, isBucketPath } from './snapshot-path.ts'
import {
  absolutePath,
  block,
  boolean,
  choice,
  duration,
  type SettingField,
  labelled,
  number,
  size,
  text,
  textMap,
  texts,
} from './fields.ts'

export type RawOf<F> = F extends SettingField<infer Raw> ? Raw : never

const HOST_NAME = /^(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*$/
const META_KEY = /^[^.]+(\.[^.]+)*$/
const HEADER_NAME = /^[A-Za-z0-9!#$%&'*+.^_`|~-]+$/
/** SHA-256 of no bytes: as the hash of a token it would accept the empty token. */
const SHA256_OF_NOTHING = 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'
const ANY = Number.MAX_SAFE_INTEGER
const MINUTE_MS = 60_000

const isHost = (value: string) => isIP(value) !== 0 || HOST_NAME.test(value)

function listenAddress(value: string): string | undefined {
  if (value.includes('{{')) return 'templates are not supported: use one IP address or host name'
  return isHost(value) ? undefined : 'expected one IP address or host name, without a port'
}

function advertiseAddress(value: string): string | undefined {
  if (isHost(value)) return undefined
  const match = /^(?:\[([^\]]+)\]|([^:]+))(?::(\d{1,5}))?$/.exec(value)
  const host = match?.[1] ?? match?.[2] ?? ''
  const bracketed = match?.[1] !== undefined
  const fits =
    (bracketed ? isIP(host) === 6 : isHost(host)) && Number(match?.[3] ?? 1) >= 1 && Number(match?.[3] ?? 1) <= 65535
  return fits ? undefined : 'expected host or host:port'
}

/** Regions are parts of NATS subjects, where dots, stars and spaces have a meaning. */
function subjectPart(value: string): string | undefined {
  return /^[A-Za-z0-9_-]{1,128}$/.test(value) ? undefined : 'expected letters, digits, "-" and "_"'
}

function datacenterName(value: string): string | undefined {
  return value.includes('*') ? 'must not contain "*"' : undefined
}

/** Ports would suggest that only this port is served; patterns would accept unintended names. */
function allowedHost(value: string): string | undefined {
  return isHost(value.replace(/^\[([^\]]+)\]$/, '$1').replace(/\.$/, ''))
    ? undefined
    : `expected host names or IP addresses, without port and without "*", got ${JSON.stringify(value)}`
}

function headerEntry(key: string, value: string): string | undefined {
  if (!HEADER_NAME.test(key)) return `${JSON.stringify(key)} is not the name of an HTTP header`
  // Line breaks would allow a value to add headers.
  return /^[\t\x20-\x7e\x80-\xff]*$/.test(value) ? undefined : `the value of header ${key} has an invalid character`
}

function metaEntry(key: string, value: string): string | undefined {
  if (!META_KEY.test(key)) return `Invalid Client.Meta key: ${key}`
  return value.includes('\0') ? `client.meta.${key} must not contain the character U+0000` : undefined
}

function sha256(value: string): string | undefined {
  if (!/^[\da-f]{64}$/i.test(value)) return 'expected 64 hexadecimal digits (printf %s "$TOKEN" | sha256sum)'
  return value.toLowerCase() === SHA256_OF_NOTHING ? 'this is the hash of an empty token' : undefined
}

/** Accepts the text of a public NATS user key: base32 of a prefix byte, 32 bytes and a valid checksum. */
function userKey(value: string): string | undefined {
  const fault = 'expected the public key of a server (U…, printed by "outpost cluster keys")'
  if (!/^U[A-Z2-7]{55}$/.test(value)) return fault
  try {
    fromPublic(value)
    return undefined
  } catch {
    return fault
  }
}

/** The message does not quote the URL, which may contain a password. */
function natsUrl(value: string): string | undefined {
  const match = /^(?:(?:nats|tls):\/\/)?([^/?#]+)\/?$/i.exec(value)
  if (!match) return 'expected nats://host:port or tls://host:port'
  if (value.includes('@'))
    return 'credentials do not belong in a URL: use credentials_file, nkey_file, password_file or token_file'
  return advertiseAddress(match[1] ?? '') === undefined ? undefined : 'expected a host and a port in the URL'
}

const port = () => number({ min: 0, max: 65_535 })
const count = (min: number) => number({ min, max: ANY })
const percent = () => number({ min: 0, max: 100, whole: false })
const noChecks = () => undefined

const TLS_VERSIONS = { tls12: 'TLSv1.2', tls13: 'TLSv1.3' } as const
const LOG_LEVELS: Readonly<Record<string, Level>> = Object.fromEntries(LEVELS.map((level) => [level, level]))

const acl = block({
  enabled: boolean(),
  token_ttl: duration({ zero: true }),
  policy_ttl: duration({ zero: true }),
  role_ttl: duration({ zero: true }),
  anonymous: block({ policy: text() }),
  token: labelled(block({ sha256: text(sha256), policy: text() })),
})

const limits = block({
  https_handshake_timeout: duration(),
  http_max_conns_per_client: number({ min: 0, max: ANY, below: 'http_max_conns_per_client must be >= 0' }),
  http_max_followers: number({ min: 0, max: ANY, below: 'http_max_followers must be >= 0' }),
  http_max_header_bytes: number({ min: 1024, max: 1 << 20 }),
  http_max_body_bytes: number({ min: 1024, max: 1 << 30 }),
  http_head_timeout: duration(),
  http_request_timeout: duration(),
  http_idle_timeout: duration(),
  http_stall_timeout: duration(),
})

const telemetry = block({
  collection_interval: duration(),
  prometheus_metrics: boolean(),
  publish_node_metrics: boolean(),
  publish_allocation_metrics: boolean(),
  disable_hostname: boolean(),
  prefix_filter: texts((value) => (/^[+-]./.test(value) ? undefined : 'expected a prefix that begins with "+" or "-"')),
  filter_default: boolean(),
})

const client = block({
  enabled: boolean(),
  node_id: text((value) => (isUuid(value) ? undefined : 'expected a UUID')),
  alloc_dir: absolutePath(),
  state_dir: absolutePath(),
  node_class: text(),
  node_pool: text((value) => (value === 'all' ? '"all" is not a node pool' : undefined)),
  meta: textMap(metaEntry),
  gc_interval: duration(),
  gc_disk_usage_threshold: percent(),
  gc_inode_usage_threshold: percent(),
  gc_max_allocs: count(0),
  gc_parallel_destroys: number({ min: -ANY, max: ANY }),
})

/** Undefined for a normalized absolute path. */
function absoluteDirectory(value: string): string | undefined {
  const isPlain = value.startsWith('/') && value !== '/' && !/(?:^|\/)\.{0,2}(?:\/|$)/.test(value.slice(1))
  return isPlain
    ? undefined
    : 'expected the absolute path of a directory, without "." and ".." and without a slash at its end'
}

const replication = block({
  sync: boolean(),
  sync_timeout: duration(),
  fence_after: duration({ zero: true }),
  logshipper_buffer_length: number({ min: 16, max: 1 << 24 }),
  logshipper_buffer_size: size(1 << 20),
  bandwidth_limit: size(0),
})

/** Undefined for an absolute directory, or `s3://bucket` with a prefix. */
function snapshotPath(value: string): string | undefined {
  if (isBucketPath(value)) return bucketPathOf(value) ? undefined : 'expected s3://bucket/prefix'
  return absoluteDirectory(value) === undefined ? undefined : 'expected an absolute directory or s3://bucket/prefix'
}

const snapshot = block({
  interval: duration({ minMs: MINUTE_MS }),
  keep: number({ min: 1, max: 10_000 }),
  path: text(snapshotPath),
  region: text((value) => (/^[a-z0-9-]{1,64}$/.test(value) ? undefined : 'expected a region such as eu-central-1')),
  endpoint: text(serverUrl),
})

const ha = block({ enabled: boolean(), replicas: number({ min: 1, max: 5 }) })

const server = block({
  enabled: boolean(),
  storage_path: absolutePath(),
  secrets: boolean(),
  seal: labelled(textMap(noChecks)),
  audit_dirs: texts(absoluteDirectory),
  disable_unauthed_rekey_endpoints: boolean(),
  disable_unauthed_generate_root_endpoints: boolean(),
  replication,
  ha,
  snapshot,
})

const nats = block({
  servers: texts(natsUrl),
  credentials_file: text(),
  nkey_file: text(),
  user: text(),
  password_file: text(),
  token_file: text(),
  ca_file: text(),
  cert_file: text(),
  key_file: text(),
  server_keys: texts(userKey),
  core_keys: texts(userKey),
})

/** Undefined for a valid URL of a server. */
function serverUrl(value: string): string | undefined {
  const url = URL.parse(value)
  const isPlain = url && /^https?:$/.test(url.protocol) && url.username === '' && url.password === ''
  return isPlain && url.search === '' && url.hash === '' ? undefined : 'expected https://host:port'
}

/** Undefined for a valid mount path of an auth method. */
function authMount(value: string): string | undefined {
  const isPath = /^[\w.-]+(?:\/[\w.-]+)*$/.test(value) && !value.split('/').some((part) => /^\.+$/.test(part))
  return isPath && !value.startsWith('auth/') ? undefined : 'expected the mount path of AppRole, such as "approle"'
}

/** The login of an agent. */
const secrets = block({
  role_id: text(),
  role_id_file: absolutePath(),
  secret_id_file: absolutePath(),
  secret_id_response_wrapping_path: text(),
  mount: text(authMount),
  address: text(serverUrl),
  ca_file: absolutePath(),
  cert_file: absolutePath(),
  key_file: absolutePath(),
})

const tls = block({
  http: boolean(),
  cert_file: text(),
  key_file: text(),
  ca_file: text(),
  verify_https_client: boolean(),
  tls_min_version: choice(TLS_VERSIONS),
})

const ui = block({ enabled: boolean() })

/** The whole file. */
export const SCHEMA = block({
  region: text(subjectPart),
  datacenter: text(datacenterName),
  name: text(),
  data_dir: absolutePath(),
  bind_addr: text(listenAddress),
  ports: block({ http: port(), cluster: port() }),
  addresses: block({ http: text(listenAddress), cluster: text(listenAddress) }),
  advertise: block({ http: text(advertiseAddress), cluster: text(advertiseAddress) }),
  api_addr: text(serverUrl),
  log_level: choice(LOG_LEVELS),
  log_json: boolean(),
  log_paths: choice({ hashed: 'hashed', full: 'full' } as const),
  log_file: absolutePath(),
  log_rotate_bytes: count(0),
  log_rotate_duration: duration(),
  log_rotate_max_files: number({ min: -ANY, max: ANY }),
  enable_debug: boolean(),
  http_api_response_headers: textMap(headerEntry),
  http_allowed_hosts: texts(allowedHost),
  acl,
  tls,
  ui,
  limits,
  telemetry,
  client,
  server,
  nats,
  secrets,
})

/** The given settings with their locations. */
export type RawConfig = RawOf<typeof SCHEMA>
