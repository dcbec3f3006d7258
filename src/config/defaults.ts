/**
 * The defaults of all settings, and the complete `Config` from raw settings. Rules that concern several settings are in `rules.ts`.
 */
import { join } from 'node:path'
import {
  type Config,
  type ConfiguredToken,
  isLoopback,
  type NatsConfig,
  type SecretsLoginConfig,
  type ServerConfig,
  type SnapshotConfig,
} from './config.ts'
import type { Setting } from './fields.ts'
import { type RawSeal, sealTypeOf } from './rules.ts'
import type { RawConfig } from './schema.ts'

export interface DefaultsOptions {
  readonly dev: boolean
  readonly hostname: string
}

type RawBlock<K extends keyof RawConfig> = NonNullable<RawConfig[K]>
/** The plain values of the settings of a block. */
type ValuesOf<B, K extends keyof B = keyof B> = {
  readonly [P in K]-?: NonNullable<B[P]> extends Setting<infer T> ? T : never
}

const TOP: ValuesOf<
  RawConfig,
  | 'region'
  | 'datacenter'
  | 'data_dir'
  | 'bind_addr'
  | 'log_level'
  | 'log_paths'
  | 'log_rotate_bytes'
  | 'log_rotate_duration'
  | 'log_rotate_max_files'
  | 'enable_debug'
  | 'http_allowed_hosts'
> = {
  region: 'global',
  datacenter: 'dc1',
  data_dir: '',
  bind_addr: '127.0.0.1',
  log_level: 'info',
  log_paths: 'hashed',
  log_rotate_bytes: 0,
  log_rotate_duration: 86_400_000,
  log_rotate_max_files: 0,
  enable_debug: false,
  http_allowed_hosts: [],
}

const PORTS: ValuesOf<RawBlock<'ports'>> = { http: 4646, cluster: 4647 }

const ACL_TTLS: ValuesOf<RawBlock<'acl'>, 'token_ttl' | 'policy_ttl' | 'role_ttl'> = {
  token_ttl: 30_000,
  policy_ttl: 30_000,
  role_ttl: 30_000,
}

const TLS: ValuesOf<RawBlock<'tls'>, 'http' | 'verify_https_client' | 'tls_min_version'> = {
  http: false,
  verify_https_client: false,
  tls_min_version: 'TLSv1.2',
}

const LIMITS: ValuesOf<RawBlock<'limits'>> = {
  http_max_conns_per_client: 1024,
  http_max_followers: 2000,
  http_max_header_bytes: 16_384,
  http_max_body_bytes: 32 << 20,
  http_head_timeout: 10_000,
  http_request_timeout: 90_000,
  http_idle_timeout: 120_000,
  // Long enough for a user who pauses a pager.
  http_stall_timeout: 300_000,
  https_handshake_timeout: 5000,
}

const TELEMETRY: ValuesOf<RawBlock<'telemetry'>> = {
  collection_interval: 1000,
  prometheus_metrics: true,
  publish_node_metrics: true,
  publish_allocation_metrics: true,
  disable_hostname: false,
  prefix_filter: [],
  filter_default: true,
}

type ClientKey =
  | 'node_class'
  | 'node_pool'
  | 'gc_interval'
  | 'gc_disk_usage_threshold'
  | 'gc_inode_usage_threshold'
  | 'gc_max_allocs'
  | 'gc_parallel_destroys'

const CLIENT: ValuesOf<RawBlock<'client'>, ClientKey> = {
  node_class: '',
  node_pool: 'default',
  gc_interval: 60_000,
  gc_disk_usage_threshold: 80,
  gc_inode_usage_threshold: 70,
  gc_max_allocs: 50,
  gc_parallel_destroys: 2,
}

/** A developer's disk is often nearly full, and its allocations are few: collect late. */
const DEV_CLIENT: typeof CLIENT = {
  ...CLIENT,
  gc_interval: 600_000,
  gc_disk_usage_threshold: 99,
  gc_inode_usage_threshold: 99,
}

const REPLICATION: ValuesOf<NonNullable<RawBlock<'server'>['replication']>> = {
  sync: false,
  sync_timeout: 5000,
  fence_after: 0,
  logshipper_buffer_length: 65_536,
  logshipper_buffer_size: 256 << 20,
  bandwidth_limit: 0,
}

const HA: ValuesOf<NonNullable<RawBlock<'server'>['ha']>> = { enabled: false, replicas: 3 }

const SNAPSHOT: ValuesOf<NonNullable<RawBlock<'server'>['snapshot']>, 'interval' | 'keep' | 'path'> = {
  interval: 86_400_000,
  keep: 7,
  path: '',
}

/** The default of NATS clients. */
const NATS_SERVERS = ['nats://127.0.0.1:4222']
const APPROLE_MOUNT = 'approle'

/** The complete configuration. After a fault it must not be used. */
export function applyDefaults(raw: RawConfig, options: DefaultsOptions): Config {
  const { dev } = options
  const top = valuesOf(raw, TOP)
  const tls = valuesOf(raw.tls, TLS)
  const limits = valuesOf(raw.limits, LIMITS)
  const telemetry = valuesOf(raw.telemetry, TELEMETRY)
  const listen = { http: top.bind_addr, cluster: top.bind_addr }
  return {
    dev,
    region: top.region,
    datacenter: top.datacenter,
    name: raw.name?.value ?? options.hostname,
    dataDir: top.data_dir,
    bindAddr: top.bind_addr,
    ports: valuesOf(raw.ports, PORTS),
    addresses: valuesOf(raw.addresses, listen),
    advertise: given({ http: raw.advertise?.http, cluster: raw.advertise?.cluster }),
    logLevel: top.log_level,
    logPaths: top.log_paths,
    ...given({ apiAddr: raw.api_addr, logJson: raw.log_json, logFile: raw.log_file }),
    logRotate: {
      bytes: top.log_rotate_bytes,
      durationMs: top.log_rotate_duration,
      maxFiles: top.log_rotate_max_files,
    },
    enableDebug: top.enable_debug,
    httpApiResponseHeaders: plainMap(raw.http_api_response_headers),
    httpAllowedHosts: top.http_allowed_hosts,
    acl: aclConfig(raw, dev),
    tls: {
      http: tls.http,
      ...given({ certFile: raw.tls?.cert_file, keyFile: raw.tls?.key_file, caFile: raw.tls?.ca_file }),
      verifyHttpsClient: tls.verify_https_client,
      minVersion: tls.tls_min_version,
    },
    ui: { enabled: raw.ui?.enabled?.value ?? (tls.http || isLoopback(raw.addresses?.http?.value ?? top.bind_addr)) },
    limits: {
      httpMaxConnsPerClient: limits.http_max_conns_per_client,
      httpMaxFollowers: limits.http_max_followers,
      httpMaxHeaderBytes: limits.http_max_header_bytes,
      httpMaxBodyBytes: limits.http_max_body_bytes,
      httpHeadTimeoutMs: limits.http_head_timeout,
      httpRequestTimeoutMs: limits.http_request_timeout,
      httpIdleTimeoutMs: limits.http_idle_timeout,
      httpStallTimeoutMs: limits.http_stall_timeout,
      httpsHandshakeTimeoutMs: limits.https_handshake_timeout,
    },
    telemetry: {
      collectionIntervalMs: telemetry.collection_interval,
      prometheusMetrics: telemetry.prometheus_metrics,
      publishNodeMetrics: telemetry.publish_node_metrics,
      publishAllocationMetrics: telemetry.publish_allocation_metrics,
      disableHostname: telemetry.disable_hostname,
      prefixFilter: telemetry.prefix_filter,
      filterDefault: telemetry.filter_default,
    },
    client: clientConfig(raw, dev),
    server: serverConfig(raw, dev),
    ...(raw.nats && { nats: natsConfig(raw.nats) }),
    ...(raw.secrets && { secrets: loginConfig(raw.secrets) }),
  }
}

/** The values of a block: the given ones, and the defaults of all others. */
function valuesOf<D extends object>(
  block: { readonly [K in keyof NoInfer<D>]?: Setting<NoInfer<D>[K]> | undefined } | undefined,
  defaults: D,
): D {
  const values = { ...defaults }
  for (const key in defaults) values[key] = block?.[key]?.value ?? defaults[key]
  return values
}

type GivenValues<S> = { [K in keyof S]?: NonNullable<S[K]> extends Setting<infer T> ? T : never }

/** The values of the given settings only: the types of `Config` distinguish absent and undefined. */
function given<S extends Readonly<Record<string, Setting<unknown> | undefined>>>(settings: S): GivenValues<S> {
  const values = Object.entries(settings).flatMap(([key, setting]) => (setting ? [[key, setting.value] as const] : []))
  // Each value is that of the setting with the same name.
  return Object.fromEntries(values) as GivenValues<S>
}

function plainMap(map: ReadonlyMap<string, Setting<string>> | undefined): Record<string, string> {
  return Object.fromEntries([...(map ?? [])].map(([key, setting]) => [key, setting.value]))
}

function aclConfig({ acl }: RawConfig, dev: boolean): Config['acl'] {
  const ttls = valuesOf(acl, ACL_TTLS)
  return {
    enabled: acl?.enabled?.value ?? !dev,
    tokens: (acl?.token ?? []).map(tokenConfig),
    ...given({ anonymousPolicy: acl?.anonymous?.policy }),
    tokenTtlMs: ttls.token_ttl,
    policyTtlMs: ttls.policy_ttl,
    roleTtlMs: ttls.role_ttl,
  }
}

function tokenConfig({ label, body }: NonNullable<RawBlock<'acl'>['token']>[number]): ConfiguredToken {
  return { name: label, sha256: body.sha256?.value.toLowerCase() ?? '', policy: body.policy?.value ?? '' }
}

function clientConfig({ client, data_dir: dataDir }: RawConfig, dev: boolean): Config['client'] {
  const values = valuesOf(client, dev ? DEV_CLIENT : CLIENT)
  const { alloc_dir, state_dir } = valuesOf(client, {
    alloc_dir: join(dataDir?.value ?? '/', 'alloc'),
    state_dir: join(dataDir?.value ?? '/', 'client'),
  })
  const nodeId = client?.node_id?.value.toLowerCase()
  return {
    enabled: client?.enabled?.value ?? dev,
    ...(nodeId !== undefined && { nodeId }),
    allocDir: alloc_dir,
    stateDir: state_dir,
    nodeClass: values.node_class,
    nodePool: values.node_pool,
    meta: plainMap(client?.meta),
    gcIntervalMs: values.gc_interval,
    gcDiskUsageThreshold: values.gc_disk_usage_threshold,
    gcInodeUsageThreshold: values.gc_inode_usage_threshold,
    gcMaxAllocs: values.gc_max_allocs,
    gcParallelDestroys: Math.max(1, values.gc_parallel_destroys),
  }
}

function serverConfig({ server, data_dir: dataDir }: RawConfig, dev: boolean): ServerConfig {
  const values = valuesOf(server, {
    enabled: dev,
    storage_path: join(dataDir?.value ?? '/', 'server', 'secrets.db'),
    secrets: true,
    audit_dirs: [join(dataDir?.value ?? '/', 'audit'), '/var/log/outpost'] as readonly string[],
    disable_unauthed_rekey_endpoints: !dev,
    disable_unauthed_generate_root_endpoints: !dev,
  })
  const replication = valuesOf(server?.replication, REPLICATION)
  return {
    enabled: values.enabled,
    storagePath: values.storage_path,
    secrets: values.secrets,
    auditDirectories: values.audit_dirs,
    disableUnauthedRekeyEndpoints: values.disable_unauthed_rekey_endpoints,
    disableUnauthedGenerateRootEndpoints: values.disable_unauthed_generate_root_endpoints,
    replication: {
      sync: replication.sync,
      syncTimeoutMs: replication.sync_timeout,
      fenceAfterMs: replication.fence_after,
      bufferLength: replication.logshipper_buffer_length,
      bufferBytes: replication.logshipper_buffer_size,
      bandwidthBytes: replication.bandwidth_limit,
    },
    ha: valuesOf(server?.ha, HA),
    ...(server?.snapshot && { snapshot: snapshotConfig(server.snapshot) }),
    seal: sealConfig(server?.seal?.at(-1)),
  }
}

function snapshotConfig(snapshot: NonNullable<RawBlock<'server'>['snapshot']>): SnapshotConfig {
  const { interval, keep, path } = valuesOf(snapshot, SNAPSHOT)
  return {
    intervalMs: interval,
    keep,
    path,
    ...given({ region: snapshot.region, endpoint: snapshot.endpoint }),
  }
}

function sealConfig(seal: RawSeal | undefined): ServerConfig['seal'] {
  return { type: (seal && sealTypeOf(seal.label)) ?? 'shamir', settings: plainMap(seal?.body) }
}

function natsConfig(nats: RawBlock<'nats'>): NatsConfig {
  return {
    servers: nats.servers?.value ?? NATS_SERVERS,
    ...given({
      credentialsFile: nats.credentials_file,
      nkeyFile: nats.nkey_file,
      user: nats.user,
      passwordFile: nats.password_file,
      tokenFile: nats.token_file,
      caFile: nats.ca_file,
      certFile: nats.cert_file,
      keyFile: nats.key_file,
      serverKeys: nats.server_keys,
      coreKeys: nats.core_keys,
    }),
  }
}

function loginConfig(secrets: RawBlock<'secrets'>): SecretsLoginConfig {
  const { address, role_id: roleId, role_id_file: roleIdFile } = secrets
  return {
    role: {
      mount: `auth/${secrets.mount?.value ?? APPROLE_MOUNT}`,
      roleId: roleIdFile ? { file: roleIdFile.value } : (roleId?.value ?? ''),
      secretIdFile: secrets.secret_id_file?.value ?? '',
      ...given({ wrappingPath: secrets.secret_id_response_wrapping_path }),
    },
    ...(address && {
      address: {
        url: address.value,
        ...given({ caFile: secrets.ca_file, certFile: secrets.cert_file, keyFile: secrets.key_file }),
      },
    }),
  }
}
