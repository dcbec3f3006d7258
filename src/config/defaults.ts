/**
 * From settings as they were given to the complete `Config`: defaults, and the rules that concern several settings.
 * The rules only judge what could be read: a setting that is wrong by itself causes one fault, not a second one for
 * seeming to be missing.
 */
import { isIP } from 'node:net'
import { join } from 'node:path'
import type {
  AclConfig,
  ClientConfig,
  Config,
  ConfiguredToken,
  LimitsConfig,
  NatsConfig,
  ServerConfig,
  TelemetryConfig,
} from './config.ts'
import type { FaultList, Setting, Where } from './fields.ts'
import { unencryptedServers } from './nats-exposure.ts'
import { checkSeal, type RawSeal } from './seal.ts'
import type { RawConfig } from './schema.ts'
import { checkSecrets, settleSecrets } from './secrets-login.ts'

/** What a policy's checker says: places in the policy's own text, both counted from 1. */
export interface PolicyFault {
  readonly line: number
  readonly column: number
  readonly message: string
}

export interface SettleOptions {
  readonly dev: boolean
  readonly hostname: string
  readonly faults: FaultList
  readonly warnings: string[]
  readonly checkPolicy: (text: string) => readonly PolicyFault[]
}

/** Given to others that a program which knows NATS expects: its own default. */
const NATS_DEFAULT = 'nats://127.0.0.1:4222'
const SEAL_TYPES = ['shamir', 'static'] as const
const TTL_DEFAULT_MS = 30_000
const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|::1)$/i

/** The settings complete, or as complete as they get when `options.faults` has any: then the result must not be used. */
export function settle(raw: RawConfig, options: SettleOptions): Config {
  const { dev } = options
  checkRoles(raw, options)
  const bindAddr = raw.bind_addr?.value ?? '127.0.0.1'
  const config: Config = {
    dev,
    region: raw.region?.value ?? 'global',
    datacenter: raw.datacenter?.value ?? 'dc1',
    name: raw.name?.value ?? options.hostname,
    dataDir: raw.data_dir?.value ?? '',
    bindAddr,
    ports: settlePorts(raw, options),
    addresses: {
      http: raw.addresses?.http?.value ?? bindAddr,
      cluster: raw.addresses?.cluster?.value ?? bindAddr,
    },
    advertise: present({ http: raw.advertise?.http?.value, cluster: raw.advertise?.cluster?.value }),
    logLevel: raw.log_level?.value ?? 'info',
    logPaths: raw.log_paths?.value ?? 'hashed',
    ...present({ logJson: raw.log_json?.value, logFile: raw.log_file?.value }),
    logRotate: {
      bytes: raw.log_rotate_bytes?.value ?? 0,
      durationMs: raw.log_rotate_duration?.value ?? 86_400_000,
      maxFiles: raw.log_rotate_max_files?.value ?? 0,
    },
    enableDebug: raw.enable_debug?.value ?? false,
    httpApiResponseHeaders: plainMap(raw.http_api_response_headers),
    httpAllowedHosts: raw.http_allowed_hosts?.value ?? [],
    acl: settleAcl(raw, options),
    tls: settleTls(raw, options),
    limits: settleLimits(raw.limits),
    telemetry: settleTelemetry(raw.telemetry),
    client: settleClient(raw, options),
    server: settleServer(raw, options),
    ...present({ nats: settleNats(raw.nats, options) }),
    ...present({ secrets: settleSecrets(raw.secrets, options.faults, (...paths) => unread(options.faults, ...paths)) }),
  }
  checkExposure(raw, config, options)
  const warning = checkSecrets(raw.secrets, config, options.faults)
  if (warning !== undefined) options.warnings.push(warning)
  return config
}

type Present<T> = { [K in keyof T]?: Exclude<T[K], undefined> }

/** The record without what is undefined: absent and undefined are different things to these types. */
function present<T extends object>(record: T): Present<T> {
  return Object.fromEntries(Object.entries(record).filter(([, value]) => value !== undefined)) as Present<T>
}

function plainMap(map: ReadonlyMap<string, Setting<string>> | undefined): Record<string, string> {
  return Object.fromEntries([...(map ?? [])].map(([key, setting]) => [key, setting.value]))
}

/** True when one of these settings, or a block around it, was given but could not be read. */
function unread(faults: FaultList, ...paths: readonly string[]): boolean {
  return paths.some((path) => faults.unread.has(path) || faults.unread.has(path.split('.')[0] ?? ''))
}

function checkRoles(raw: RawConfig, { dev, faults }: SettleOptions): void {
  const role = [raw.client?.enabled, raw.server?.enabled].find((enabled) => enabled?.value === true)
  if (!dev && !role && !unread(faults, 'client.enabled', 'server.enabled')) {
    faults.add(undefined, 'Must specify either server, client or dev mode for the agent.')
  }
  const missing = !raw.data_dir && !unread(faults, 'data_dir')
  if (missing && (dev || role)) faults.add(role?.where, 'data_dir is required: state and allocations are kept there')
}

function settlePorts(raw: RawConfig, { faults }: SettleOptions): Config['ports'] {
  const http = raw.ports?.http?.value ?? 4646
  const cluster = raw.ports?.cluster?.value ?? 4647
  if (http === cluster && http !== 0) {
    faults.add((raw.ports?.cluster ?? raw.ports?.http)?.where, `ports.http and ports.cluster are both ${http}`)
  }
  return { http, cluster }
}

function settleAcl(raw: RawConfig, options: SettleOptions): AclConfig {
  const { acl } = raw
  const anonymous = acl?.anonymous?.policy
  if (anonymous) checkPolicyText('acl.anonymous', anonymous, options)
  return {
    enabled: acl?.enabled?.value ?? !options.dev,
    tokens: settleTokens(acl?.token ?? [], options),
    ...present({ anonymousPolicy: anonymous?.value }),
    tokenTtlMs: acl?.token_ttl?.value ?? TTL_DEFAULT_MS,
    policyTtlMs: acl?.policy_ttl?.value ?? TTL_DEFAULT_MS,
    roleTtlMs: acl?.role_ttl?.value ?? TTL_DEFAULT_MS,
  }
}

type RawToken = NonNullable<NonNullable<RawConfig['acl']>['token']>[number]

function settleTokens(blocks: readonly RawToken[], options: SettleOptions): ConfiguredToken[] {
  const { faults } = options
  const names = new Set<string>()
  const hashes = new Set<string>()
  const tokens: ConfiguredToken[] = []
  for (const { label, where, body } of blocks) {
    const title = `acl.token ${JSON.stringify(label)}`
    if (names.has(label)) faults.add(where, `${title} is given twice`)
    names.add(label)
    const hash = body.sha256?.value.toLowerCase()
    if (hash === undefined && !unread(faults, 'acl.token.sha256')) faults.add(where, `${title} needs sha256`)
    if (hash !== undefined && hashes.has(hash))
      faults.add(body.sha256?.where, `${title}: another token has this sha256`)
    if (hash !== undefined) hashes.add(hash)
    if (!body.policy && !unread(faults, 'acl.token.policy')) faults.add(where, `${title} needs a policy`)
    if (body.policy) checkPolicyText(title, body.policy, options)
    tokens.push({ name: label, sha256: hash ?? '', policy: body.policy?.value ?? '' })
  }
  return tokens
}

/** A heredoc's lines are the file's lines; in a quoted text, the place inside it is told in words. */
function checkPolicyText(title: string, policy: Setting<string>, { checkPolicy, faults }: SettleOptions): void {
  const { where, value } = policy
  for (const { line, column, message } of checkPolicy(value)) {
    const { bodyAt } = where
    const at = bodyAt && { line: bodyAt.line + line - 1, column: bodyAt.column + column - 1 }
    const place = at || line === 1 ? '' : `line ${line} of `
    faults.add(at ? { ...where, at } : where, `${title}: ${place}policy: ${message}`)
  }
}

function settleTls(raw: RawConfig, { faults }: SettleOptions): Config['tls'] {
  const { tls } = raw
  const http = tls?.http?.value ?? false
  const verifyHttpsClient = tls?.verify_https_client?.value ?? false
  for (const key of ['cert_file', 'key_file'] as const) {
    if (http && !tls?.[key] && !unread(faults, `tls.${key}`)) {
      faults.add(tls?.http?.where, `tls.http needs tls.${key}`)
    }
  }
  if (verifyHttpsClient && !tls?.ca_file && !unread(faults, 'tls.ca_file')) {
    faults.add(tls?.verify_https_client?.where, 'tls.verify_https_client needs tls.ca_file')
  }
  if (verifyHttpsClient && !http && !unread(faults, 'tls.http')) {
    faults.add(tls?.verify_https_client?.where, 'tls.verify_https_client needs tls.http = true')
  }
  return {
    http,
    ...present({ certFile: tls?.cert_file?.value, keyFile: tls?.key_file?.value, caFile: tls?.ca_file?.value }),
    verifyHttpsClient,
    minVersion: tls?.tls_min_version?.value ?? 'TLSv1.2',
  }
}

function settleLimits(limits: RawConfig['limits']): LimitsConfig {
  return {
    httpMaxConnsPerClient: limits?.http_max_conns_per_client?.value ?? 1024,
    httpMaxFollowers: limits?.http_max_followers?.value ?? 2000,
    httpMaxHeaderBytes: limits?.http_max_header_bytes?.value ?? 16_384,
    httpMaxBodyBytes: limits?.http_max_body_bytes?.value ?? 32 << 20,
    httpHeadTimeoutMs: limits?.http_head_timeout?.value ?? 10_000,
    httpRequestTimeoutMs: limits?.http_request_timeout?.value ?? 90_000,
    httpIdleTimeoutMs: limits?.http_idle_timeout?.value ?? 120_000,
    // Longer than a person who paused a pager minds.
    httpStallTimeoutMs: limits?.http_stall_timeout?.value ?? 300_000,
    httpsHandshakeTimeoutMs: limits?.https_handshake_timeout?.value ?? 5000,
  }
}

function settleTelemetry(telemetry: RawConfig['telemetry']): TelemetryConfig {
  return {
    collectionIntervalMs: telemetry?.collection_interval?.value ?? 1000,
    prometheusMetrics: telemetry?.prometheus_metrics?.value ?? true,
    publishNodeMetrics: telemetry?.publish_node_metrics?.value ?? true,
    publishAllocationMetrics: telemetry?.publish_allocation_metrics?.value ?? true,
    disableHostname: telemetry?.disable_hostname?.value ?? false,
    prefixFilter: telemetry?.prefix_filter?.value ?? [],
    filterDefault: telemetry?.filter_default?.value ?? true,
  }
}

function settleClient(raw: RawConfig, { dev, warnings }: SettleOptions): ClientConfig {
  const { client } = raw
  const dataDir = raw.data_dir?.value ?? '/'
  const parallel = client?.gc_parallel_destroys
  if (parallel && parallel.value <= 0) {
    warnings.push(`${placeOf(parallel.where)}client.gc_parallel_destroys must be at least 1: using 1`)
  }
  return {
    enabled: client?.enabled?.value ?? dev,
    ...present({ nodeId: client?.node_id?.value.toLowerCase() }),
    allocDir: client?.alloc_dir?.value ?? join(dataDir, 'alloc'),
    stateDir: client?.state_dir?.value ?? join(dataDir, 'client'),
    nodeClass: client?.node_class?.value ?? '',
    nodePool: client?.node_pool?.value ?? 'default',
    meta: plainMap(client?.meta),
    // A developer's disk is often nearly full, and its allocations are few: collect late.
    gcIntervalMs: client?.gc_interval?.value ?? (dev ? 600_000 : 60_000),
    gcDiskUsageThreshold: client?.gc_disk_usage_threshold?.value ?? (dev ? 99 : 80),
    gcInodeUsageThreshold: client?.gc_inode_usage_threshold?.value ?? (dev ? 99 : 70),
    gcMaxAllocs: client?.gc_max_allocs?.value ?? 50,
    gcParallelDestroys: Math.max(1, parallel?.value ?? 2),
  }
}

function settleServer(raw: RawConfig, options: SettleOptions): ServerConfig {
  const { server } = raw
  return {
    enabled: server?.enabled?.value ?? options.dev,
    storagePath: server?.storage_path?.value ?? join(raw.data_dir?.value ?? '/', 'server', 'secrets.db'),
    secrets: server?.secrets?.value ?? true,
    auditDirectories: server?.audit_dirs?.value ?? [join(raw.data_dir?.value ?? '/', 'audit'), '/var/log/outpost'],
    disableUnauthedRekeyEndpoints: server?.disable_unauthed_rekey_endpoints?.value ?? !options.dev,
    disableUnauthedGenerateRootEndpoints: server?.disable_unauthed_generate_root_endpoints?.value ?? !options.dev,
    replication: settleReplication(server?.replication),
    seal: settleSeal(server?.seal ?? [], options),
  }
}

function settleReplication(given: NonNullable<RawConfig['server']>['replication']): ServerConfig['replication'] {
  return {
    sync: given?.sync?.value ?? false,
    syncTimeoutMs: given?.sync_timeout?.value ?? 5000,
    fenceAfterMs: given?.fence_after?.value ?? 0,
    bufferLength: given?.logshipper_buffer_length?.value ?? 65_536,
    bufferBytes: given?.logshipper_buffer_size?.value ?? 256 << 20,
    bandwidthBytes: given?.bandwidth_limit?.value ?? 0,
  }
}

/** Of several files the last seal counts; two in one file contradict each other. */
function settleSeal(seals: readonly RawSeal[], { faults }: SettleOptions): ServerConfig['seal'] {
  const seal = seals.at(-1)
  if (!seal) return { type: 'shamir', settings: {} }
  const rival = seals.find((other) => other !== seal && other.where.origin === seal.where.origin)
  if (rival)
    faults.add(seal.where, `server.seal is given twice, first at ${rival.where.at.line}:${rival.where.at.column}`)
  const type = SEAL_TYPES.find((known) => known === seal.label)
  if (!type) faults.add(seal.where, `server.seal: expected one of ${SEAL_TYPES.join(', ')}`)
  else if (!rival) checkSeal(type, seal, faults)
  return { type: type ?? 'shamir', settings: plainMap(seal.body) }
}

function settleNats(raw: RawConfig['nats'], { faults }: SettleOptions): NatsConfig | undefined {
  if (!raw) return undefined
  if (raw.servers?.value.length === 0) {
    faults.add(raw.servers.where, 'nats.servers is empty: name a server, or remove the nats block to stand alone')
  }
  const together = (one: 'user' | 'cert_file', other: 'password_file' | 'key_file') => {
    const given = raw[one] ?? raw[other]
    if (given && !(raw[one] && raw[other]) && !unread(faults, `nats.${one}`, `nats.${other}`)) {
      faults.add(given.where, `nats.${one} and nats.${other} go together`)
    }
  }
  together('user', 'password_file')
  together('cert_file', 'key_file')
  const given = [raw.credentials_file, raw.nkey_file, raw.user ?? raw.password_file, raw.token_file]
  const [, second] = given.filter((way) => way !== undefined)
  if (second) {
    faults.add(second.where, 'nats: give one of credentials_file, nkey_file, user with password_file, or token_file')
  }
  const { server_keys: serverKeys, core_keys: coreKeys } = raw
  if (serverKeys?.value.length === 0) {
    faults.add(
      serverKeys.where,
      'nats.server_keys is empty: name the servers, or remove it to take those that NATS lets in',
    )
  }
  const stray = coreKeys?.value.find((key) => !serverKeys?.value.includes(key))
  if (coreKeys && stray !== undefined && !unread(faults, 'nats.server_keys', 'nats.core_keys')) {
    faults.add(coreKeys.where, `nats.core_keys: ${stray} is not in nats.server_keys, which names all servers`)
  }
  return {
    servers: raw.servers?.value ?? [NATS_DEFAULT],
    ...present({
      credentialsFile: raw.credentials_file?.value,
      nkeyFile: raw.nkey_file?.value,
      user: raw.user?.value,
      passwordFile: raw.password_file?.value,
      tokenFile: raw.token_file?.value,
      caFile: raw.ca_file?.value,
      certFile: raw.cert_file?.value,
      keyFile: raw.key_file?.value,
      serverKeys: raw.server_keys?.value,
      coreKeys: raw.core_keys?.value,
    }),
  }
}

/** What others on the network can do with this configuration. */
function checkExposure(raw: RawConfig, config: Config, { faults, warnings }: SettleOptions): void {
  const address = config.addresses.http
  if (!LOOPBACK.test(address)) {
    const given = raw.addresses?.http ?? raw.bind_addr
    if (config.dev) return faults.add(given?.where, `-dev listens on loopback only, not on ${address}`)
    const url = isIP(address) === 6 ? `[${address}]` : address
    const listens = `${placeOf(given?.where)}the HTTP API listens on ${url}:${config.ports.http}`
    if (!config.tls.http) {
      warnings.push(`${listens} without TLS: whoever is on the network path can read tokens, logs and files`)
    }
    if (!config.acl.enabled) {
      warnings.push(
        `${listens} with acl.enabled = false: whoever reaches it can read every allocation's logs and files`,
      )
    }
  }
  const unencrypted = config.nats ? unencryptedServers(config.nats) : []
  if (unencrypted.length > 0) {
    warnings.push(
      `${placeOf(raw.nats?.servers?.where)}nats.servers: ${unencrypted.join(', ')} without TLS: whoever is on the network path can read the logs and files that hosts send, and who logs in (use tls://, or give ca_file)`,
    )
  }
  const alone = config.client.enabled && !config.server.enabled && !config.nats
  if (alone && config.acl.enabled && config.acl.tokens.length === 0 && config.acl.anonymousPolicy === undefined) {
    warnings.push('this agent stands alone and knows no token: every call that needs one will be refused (acl.token)')
  }
}

function placeOf(where: Where | undefined): string {
  if (!where) return ''
  return where.origin.isFlag ? `${where.origin.name}: ` : `${where.origin.name}:${where.at.line}:${where.at.column}: `
}
