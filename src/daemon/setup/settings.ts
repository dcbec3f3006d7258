/**
 * Options of the modules from the configuration.
 */
import { createHash } from 'node:crypto'
import { isIP } from 'node:net'
import { createAuthorizer, type LocalAuthorizer, type TokenIdentity } from '../../cluster/trust/authorizer.ts'
import type { Config } from '../../config/load.ts'
import type { HostOptions } from '../../host/host.ts'
import type { TlsFiles } from '../../http/listener.ts'
import { PathLog, type PathParts } from '../../http/access-log-paths.ts'
import { ServedHosts } from '../../http/served-hosts.ts'
import { formatDuration } from '../../platform/duration.ts'
import type { Logger } from '../../platform/log.ts'
import type { Grants, Identity } from '../../platform/operation.ts'
import { relayedParts } from '../../secrets/request/path-parts.ts'
import { anonymousIdentity, identityFrom, parsePolicy, rootIdentity } from '../../secrets/policies/policy.ts'

export function authorizerOf(config: Config, rootToken: string | undefined): LocalAuthorizer {
  const tokens: TokenIdentity[] = config.acl.tokens.map(({ name, sha256, policy }) => ({
    name,
    sha256,
    identity: identityFrom([parsePolicy(policy)], name),
    grants: { accessor: name, management: false, policies: [policy] },
  }))
  if (rootToken !== undefined) {
    const sha256 = createHash('sha256').update(rootToken).digest('hex')
    const grants = { accessor: 'root', management: true, policies: [] }
    tokens.push({ name: 'root', sha256, identity: rootIdentity, grants })
  }
  const { anonymousPolicy } = config.acl
  const anonymous =
    anonymousPolicy === undefined ? anonymousIdentity : identityFrom([parsePolicy(anonymousPolicy)], 'anonymous')
  return createAuthorizer({ enabled: config.acl.enabled, tokens, anonymous })
}

/** The identity of the grants of a token that a server resolved. */
export function identityOf({ accessor, management, policies }: Grants): Identity {
  return management ? { ...rootIdentity, accessor } : identityFrom(policies.map(parsePolicy), accessor)
}

export function hostOptionsOf({ client, limits, telemetry }: Config, version: string, logger: Logger): HostOptions {
  return {
    allocDir: client.allocDir,
    stateDir: client.stateDir,
    staticMeta: client.meta,
    version,
    gc: {
      intervalMs: client.gcIntervalMs,
      diskUsageThreshold: client.gcDiskUsageThreshold,
      inodeUsageThreshold: client.gcInodeUsageThreshold,
      maxAllocs: client.gcMaxAllocs,
      parallelDestroys: client.gcParallelDestroys,
    },
    followersMax: limits.httpMaxFollowers,
    sampleIntervalMs: telemetry.collectionIntervalMs,
    logger,
    ...(client.nodeId === undefined ? {} : { nodeId: client.nodeId }),
  }
}

/** The advertised API address; `url` is the address of the listener. Empty before it listens. */
export function apiUrlOf({ advertise, apiAddr }: Config, url: string): string {
  if (apiAddr !== undefined) return apiAddr.replace(/\/+$/, '')
  const { http = '' } = advertise
  if (http === '' || url === '') return url
  const { port, protocol } = new URL(url)
  const host = isIP(http) === 6 ? `[${http}]` : http
  return `${protocol}//${/:\d{1,5}$/.test(host) && !host.endsWith(']') ? host : `${host}:${port}`}`
}

/** Configured names of this host, besides those of loopback. */
export function hostNamesOf({ addresses, advertise, apiAddr, httpAllowedHosts, name }: Config): readonly string[] {
  const { http = '' } = advertise
  const api = apiAddr === undefined ? '' : new URL(apiAddr).hostname
  return [...httpAllowedHosts, http, api, addresses.http, name].filter((host) => host !== '')
}

/** Health checks and scrapes. */
const PROBES = /^(?:\/v1)?\/(?:agent\/(?:health|ready)|metrics|sys\/(?:health|metrics))\/?$/

/**
 * Options of the listener. Without TLS, requests on loopback must name this host. `current` returns the configuration in effect; `parts`
 * come from the secrets core, if this process has one.
 */
export function listenerOptionsOf(current: () => Config, tls: TlsFiles | undefined, parts: PathParts = relayedParts) {
  const config = current()
  return {
    host: config.addresses.http,
    port: config.ports.http,
    headers: Object.entries(config.httpApiResponseHeaders).flat(),
    limits: limitsOf(config),
    isOpen: () => !current().acl.enabled,
    pathLog: new PathLog({ isFull: () => current().logPaths === 'full', parts }),
    isProbe: (path: string) => PROBES.test(path),
    ...(tls ? { tls } : { servedHosts: new ServedHosts(hostNamesOf(config)) }),
  }
}

export function limitsOf({ limits }: Config) {
  return {
    connectionsPerClient: limits.httpMaxConnsPerClient,
    headerBytesMax: limits.httpMaxHeaderBytes,
    bodyBytesMax: limits.httpMaxBodyBytes,
    headTimeoutMs: limits.httpHeadTimeoutMs,
    requestTimeoutMs: limits.httpRequestTimeoutMs,
    idleTimeoutMs: limits.httpIdleTimeoutMs,
    tlsHandshakeTimeoutMs: limits.httpsHandshakeTimeoutMs,
    stallTimeoutMs: limits.httpStallTimeoutMs,
  }
}

/** Labels and filters of the metrics. */
export function metricsOptionsOf({ client, datacenter, name, telemetry }: Config, nodeId: string) {
  const { disableHostname, filterDefault, prefixFilter, prometheusMetrics } = telemetry
  return {
    labels: {
      all: disableHostname ? {} : { host: name },
      node: { datacenter, node_class: client.nodeClass || 'none', node_id: nodeId, node_pool: client.nodePool },
    },
    filter: { prefixes: prefixFilter, otherwise: filterDefault },
    textForm: prometheusMetrics,
  }
}

/** The configuration of `/v1/agent/self` with Nomad's names, without token hashes. */
export function shownConfig(config: Config, version: string): Record<string, unknown> {
  return {
    Region: config.region,
    Datacenter: config.datacenter,
    NodeName: config.name,
    DataDir: config.dataDir,
    LogLevel: config.logLevel.toUpperCase(),
    BindAddr: config.bindAddr,
    Ports: { HTTP: config.ports.http, RPC: config.ports.cluster },
    Addresses: { HTTP: config.addresses.http },
    AdvertiseAddrs: { HTTP: config.advertise.http ?? '' },
    EnableDebug: config.enableDebug,
    Limits: {
      HTTPMaxConnsPerClient: config.limits.httpMaxConnsPerClient,
      HTTPMaxFollowers: config.limits.httpMaxFollowers,
      HTTPSHandshakeTimeout: formatDuration(config.limits.httpsHandshakeTimeoutMs),
    },
    LogFile: config.logFile ?? '',
    LogRotateBytes: config.logRotate.bytes,
    LogRotateDuration: formatDuration(config.logRotate.durationMs),
    LogRotateMaxFiles: config.logRotate.maxFiles,
    TLSConfig: {
      CAFile: config.tls.caFile ?? '',
      CertFile: config.tls.certFile ?? '',
      EnableHTTP: config.tls.http,
      KeyFile: config.tls.keyFile ?? '',
      VerifyHTTPSClient: config.tls.verifyHttpsClient,
    },
    ACL: { Enabled: config.acl.enabled },
    Client: { Enabled: config.client.enabled, AllocDir: config.client.allocDir, Meta: config.client.meta },
    Server: { Enabled: config.server.enabled },
    Telemetry: {
      CollectionInterval: formatDuration(config.telemetry.collectionIntervalMs),
      DisableHostname: config.telemetry.disableHostname,
      FilterDefault: config.telemetry.filterDefault,
      PrefixFilter: config.telemetry.prefixFilter,
      PrometheusMetrics: config.telemetry.prometheusMetrics,
      PublishAllocationMetrics: config.telemetry.publishAllocationMetrics,
      PublishNodeMetrics: config.telemetry.publishNodeMetrics,
    },
    UI: { Enabled: false, ShowCLIHints: false },
    Version: { Version: version, VersionPrerelease: '', VersionMetadata: '', Revision: '' },
  }
}

/** The configuration of `sys/config/state/sanitized` with Vault's names, without secrets. */
export function sanitizedSettings(config: Config): Record<string, unknown> {
  const address = `${config.addresses.http}:${config.ports.http}`
  return {
    api_addr: config.advertise.http ?? '',
    cluster_addr: '',
    cluster_name: config.name,
    default_lease_ttl: 0,
    max_lease_ttl: 0,
    disable_clustering: true,
    enable_ui: false,
    listeners: [{ type: 'tcp', config: { address, tls_disable: !config.tls.http } }],
    log_format: config.logJson ? 'json' : '',
    log_level: config.logLevel,
    raw_storage_endpoint: false,
    seals: [{ type: config.dev ? 'shamir' : config.server.seal.type, disabled: false }],
    storage: { type: 'sqlite', path: config.server.storagePath },
    telemetry: {
      disable_hostname: config.telemetry.disableHostname,
      prometheus_retention_time: config.telemetry.prometheusMetrics ? config.telemetry.collectionIntervalMs * 1e6 : 0,
      usage_gauge_period: config.telemetry.collectionIntervalMs * 1e6,
    },
  }
}
