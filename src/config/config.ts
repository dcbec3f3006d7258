/** The configuration as other modules use it: checked, complete, frozen. Times are in milliseconds, sizes in bytes. */
import type { Level } from '../platform/log.ts'

export interface Config {
  readonly dev: boolean
  readonly region: string
  readonly datacenter: string
  /** Name of this host; the machine's host name unless given. */
  readonly name: string
  /** Absolute. */
  readonly dataDir: string
  readonly bindAddr: string
  /** 0 means any free port. */
  readonly ports: { readonly http: number; readonly cluster: number }
  /** Listen addresses of the HTTP API and of a DR primary; `bindAddr` unless given. */
  readonly addresses: { readonly http: string; readonly cluster: string }
  /** Addresses for other processes, `host` or `host:port`; absent means the listen address. */
  readonly advertise: { readonly http?: string; readonly cluster?: string }
  /** URL of the HTTP API for clients and other servers; absent means that of `advertise.http`. */
  readonly apiAddr?: string
  readonly logLevel: Level
  /** Absent means that the format depends on the destination of the log. */
  readonly logJson?: boolean
  /** Whether the access log hashes the names in paths. */
  readonly logPaths: 'hashed' | 'full'
  /** Absolute path; a directory if it ends with a slash. Absent means standard error. */
  readonly logFile?: string
  readonly logRotate: LogRotateConfig
  readonly enableDebug: boolean
  readonly httpApiResponseHeaders: Readonly<Record<string, string>>
  /** Further host names and addresses that are accepted on loopback without TLS. */
  readonly httpAllowedHosts: readonly string[]
  readonly acl: AclConfig
  readonly tls: TlsConfig
  /** The web interface. */
  readonly ui: { readonly enabled: boolean }
  readonly limits: LimitsConfig
  readonly telemetry: TelemetryConfig
  readonly client: ClientConfig
  readonly server: ServerConfig
  /** Absent means a standalone process. */
  readonly nats?: NatsConfig
  /** Login of the agent to the secrets core; absent means no login. */
  readonly secrets?: SecretsLoginConfig
}

export interface AclConfig {
  readonly enabled: boolean
  /** For a standalone agent. Names and hashes are unique. */
  readonly tokens: readonly ConfiguredToken[]
  /** Policy of calls without a token; absent means no rights. */
  readonly anonymousPolicy?: string
  readonly tokenTtlMs: number
  readonly policyTtlMs: number
  readonly roleTtlMs: number
}

export interface ConfiguredToken {
  readonly name: string
  /** 64 hexadecimal digits in lower case: SHA-256 of the token's UTF-8 bytes. */
  readonly sha256: string
  /** Policy text, HCL or JSON. */
  readonly policy: string
}

export interface TlsConfig {
  readonly http: boolean
  /** Paths of PEM files, present when `http` is on. */
  readonly certFile?: string
  readonly keyFile?: string
  /** Present when `verifyHttpsClient` is on. */
  readonly caFile?: string
  readonly verifyHttpsClient: boolean
  readonly minVersion: 'TLSv1.2' | 'TLSv1.3'
}

/** Rotation of the log file. */
export interface LogRotateConfig {
  /** 0 means no limit of the size. */
  readonly bytes: number
  readonly durationMs: number
  /** Number of rotated files that are kept: 0 means all, a negative number none. */
  readonly maxFiles: number
}

export interface TelemetryConfig {
  readonly collectionIntervalMs: number
  /** Whether metrics are available in the Prometheus format. */
  readonly prometheusMetrics: boolean
  /** Metrics of the host, and of each running task. */
  readonly publishNodeMetrics: boolean
  readonly publishAllocationMetrics: boolean
  readonly disableHostname: boolean
  /** Prefixes of metric names, each after `+` or `-`; the longest matching prefix decides. */
  readonly prefixFilter: readonly string[]
  /** Whether names without a matching prefix are included. */
  readonly filterDefault: boolean
}

export interface LimitsConfig {
  /** Connections of one address; 0 means no limit. */
  readonly httpMaxConnsPerClient: number
  /** Open follow streams of the whole agent; 0 means no limit. */
  readonly httpMaxFollowers: number
  readonly httpMaxHeaderBytes: number
  readonly httpMaxBodyBytes: number
  /** From the connection's first byte to the end of the request's headers. */
  readonly httpHeadTimeoutMs: number
  /** For a whole request that is not a stream. */
  readonly httpRequestTimeoutMs: number
  /** Between two requests of a connection. */
  readonly httpIdleTimeoutMs: number
  /** For one write of a response that the client does not read. */
  readonly httpStallTimeoutMs: number
  readonly httpsHandshakeTimeoutMs: number
}

/** The agent role, block `client`. */
export interface ClientConfig {
  readonly enabled: boolean
  /** UUID in lower case; absent means the one kept in `stateDir`, made on the first start. */
  readonly nodeId?: string
  readonly allocDir: string
  readonly stateDir: string
  readonly nodeClass: string
  readonly nodePool: string
  readonly meta: Readonly<Record<string, string>>
  readonly gcIntervalMs: number
  /** Per cent of the file system, 0 to 100. */
  readonly gcDiskUsageThreshold: number
  readonly gcInodeUsageThreshold: number
  readonly gcMaxAllocs: number
  /** At least 1. */
  readonly gcParallelDestroys: number
}

export interface ServerConfig {
  readonly enabled: boolean
  /** Absolute path of the secrets database. */
  readonly storagePath: string
  /** False on a server that forwards secrets requests to another server. */
  readonly secrets: boolean
  /** Directories below which audit devices may write files. */
  readonly auditDirectories: readonly string[]
  /** False: callers without a token may use `sys/rekey/` and `sys/rekey-recovery-key/`. */
  readonly disableUnauthedRekeyEndpoints: boolean
  /** False: callers without a token may use `sys/generate-root/`. */
  readonly disableUnauthedGenerateRootEndpoints: boolean
  readonly replication: ReplicationConfig
  readonly ha: HaConfig
  /** Absent: no scheduled snapshots. */
  readonly snapshot?: SnapshotConfig
  readonly seal: { readonly type: 'shamir' | 'static'; readonly settings: Readonly<Record<string, string>> }
}

/** High availability: several servers with one secrets core. */
export interface HaConfig {
  readonly enabled: boolean
  /** Replicas of the commit stream. */
  readonly replicas: number
}

/** Scheduled snapshots. */
export interface SnapshotConfig {
  readonly intervalMs: number
  /** Number of snapshots that are kept. */
  readonly keep: number
  /** Absolute directory, or `s3://bucket/prefix`. */
  readonly path: string
  /** Of S3; absent: that of the SDK's environment. */
  readonly region?: string
  /** URL of an S3-compatible store; absent: AWS. */
  readonly endpoint?: string
}

/** Disaster recovery replication. The role is not a setting. */
export interface ReplicationConfig {
  /** Commits of a primary wait for its secondaries, for at most `syncTimeoutMs`. */
  readonly sync: boolean
  readonly syncTimeoutMs: number
  /** A primary without a message from a secondary for this time refuses writes; 0: it never does. */
  readonly fenceAfterMs: number
  /** Rows and bytes in flight to a secondary. */
  readonly bufferLength: number
  readonly bufferBytes: number
  /** Bytes per second to all secondaries together; 0: no limit. */
  readonly bandwidthBytes: number
}

export interface NatsConfig {
  /** At least one, each with or without a scheme (`tls` insists on TLS); no credentials inside. */
  readonly servers: readonly string[]
  /** At most one of `credentialsFile`, `nkeyFile`, `user` with `passwordFile`, `tokenFile`. */
  readonly credentialsFile?: string
  readonly nkeyFile?: string
  readonly user?: string
  readonly passwordFile?: string
  readonly tokenFile?: string
  readonly caFile?: string
  /** Both or neither. */
  readonly certFile?: string
  readonly keyFile?: string
  /** Public NKEYs of all servers, not empty; absent: the announced keys. */
  readonly serverKeys?: readonly string[]
  /** Keys of the servers with the secrets core; a subset of `serverKeys`. */
  readonly coreKeys?: readonly string[]
}

export interface SecretsLoginConfig {
  readonly role: {
    /** Path of the auth method, as `auth/approle`. */
    readonly mount: string
    /** The role ID, or the file that contains it. */
    readonly roleId: string | { readonly file: string }
    readonly secretIdFile: string
    /** For a file with a wrapping token: the path of the request that created it. */
    readonly wrappingPath?: string
  }
  /** Absent: over NATS. */
  readonly address?: {
    readonly url: string
    readonly caFile?: string
    readonly certFile?: string
    readonly keyFile?: string
  }
}

const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|\[?::1\]?)$/i

/** `host`: a name or an address, IPv6 with or without brackets. */
export function isLoopback(host: string): boolean {
  return LOOPBACK.test(host)
}

/** The configured NATS servers, except loopback, to which this process may connect without TLS. */
export function unencryptedServers({ servers, caFile, certFile }: NatsConfig): string[] {
  if (caFile !== undefined || certFile !== undefined || servers.some((server) => /^tls:/i.test(server))) return []
  return servers.filter((server) => {
    const url = URL.parse(`http://${server.replace(/^[a-z]+:\/\//i, '')}`)
    return !url || !isLoopback(url.hostname)
  })
}
