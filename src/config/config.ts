/**
 * The settings as the rest of the program sees them: checked, complete, frozen. Times are milliseconds, sizes bytes.
 */
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
  /** Where the HTTP API listens, and a DR primary for its secondaries: `bindAddr` unless given. */
  readonly addresses: { readonly http: string; readonly cluster: string }
  /** What others are told to connect to, `host` or `host:port`; absent means the address listened on. */
  readonly advertise: { readonly http?: string; readonly cluster?: string }
  readonly logLevel: Level
  /** Absent means that the program decides by where the log goes. */
  readonly logJson?: boolean
  /** Whether the access log shows the names that callers put into paths. */
  readonly logPaths: 'hashed' | 'full'
  /** Absolute; with a slash at its end a directory. Absent means standard error. */
  readonly logFile?: string
  readonly logRotate: LogRotateConfig
  readonly enableDebug: boolean
  readonly httpApiResponseHeaders: Readonly<Record<string, string>>
  /** Host names and addresses that are served on loopback without TLS, beside those of loopback. */
  readonly httpAllowedHosts: readonly string[]
  readonly acl: AclConfig
  readonly tls: TlsConfig
  readonly limits: LimitsConfig
  readonly telemetry: TelemetryConfig
  readonly client: ClientConfig
  readonly server: ServerConfig
  /** Absent means that this process stands alone. */
  readonly nats?: NatsConfig
  /** How the agent logs in to the secrets core; absent: it does not. */
  readonly secrets?: SecretsLoginConfig
}

export interface AclConfig {
  readonly enabled: boolean
  /** For an agent that stands alone. Names and hashes are unique. */
  readonly tokens: readonly ConfiguredToken[]
  /** Policy text for calls without a token; absent means that they may do nothing. */
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

/** When the log file is put aside and a new one begun. */
export interface LogRotateConfig {
  /** 0 means whatever its size. */
  readonly bytes: number
  readonly durationMs: number
  /** Files put aside that are kept: 0 means all, a negative number none. */
  readonly maxFiles: number
}

export interface TelemetryConfig {
  readonly collectionIntervalMs: number
  /** The text form of the metrics. */
  readonly prometheusMetrics: boolean
  /** Figures of the host, and of each running task. */
  readonly publishNodeMetrics: boolean
  readonly publishAllocationMetrics: boolean
  readonly disableHostname: boolean
  /** Prefixes of names, each with `+` or `-` in front; of those that fit, the longest decides. */
  readonly prefixFilter: readonly string[]
  /** What happens to a name that no prefix fits. */
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
  /** For one write of an answer that its caller does not take. */
  readonly httpStallTimeoutMs: number
  readonly httpsHandshakeTimeoutMs: number
}

/** The agent role: the block carries the name that the field writes. */
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
  /** False on a server that forwards secrets requests to another one. */
  readonly secrets: boolean
  /** Directories that audit devices may have files below. */
  readonly auditDirectories: readonly string[]
  /** False: callers without a token may use `sys/rekey/` and `sys/rekey-recovery-key/`. */
  readonly disableUnauthedRekeyEndpoints: boolean
  /** False: callers without a token may use `sys/generate-root/`. */
  readonly disableUnauthedGenerateRootEndpoints: boolean
  readonly replication: ReplicationConfig
  readonly seal: { readonly type: 'shamir' | 'static'; readonly settings: Readonly<Record<string, string>> }
}

/** Of replication for disaster recovery; the role is no setting. */
export interface ReplicationConfig {
  /** Commits of a primary wait until its secondaries have them, for `syncTimeoutMs` at most. */
  readonly sync: boolean
  readonly syncTimeoutMs: number
  /** A primary that has heard from no secondary for so long takes no writes; 0: it goes on. */
  readonly fenceAfterMs: number
  /** Rows and bytes on their way to a secondary. */
  readonly bufferLength: number
  readonly bufferBytes: number
  /** In a second, to all secondaries together; 0: no limit. */
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
  /** Public NKEYs of all servers, not empty; absent: those that are announced. */
  readonly serverKeys?: readonly string[]
  /** Of the servers with the secrets core; all of them are in `serverKeys`. */
  readonly coreKeys?: readonly string[]
}

export interface SecretsLoginConfig {
  readonly role: {
    /** Path of the auth method, as `auth/approle`. */
    readonly mount: string
    /** The ID of the role, or the file that it is in. */
    readonly roleId: string | { readonly file: string }
    readonly secretIdFile: string
    /** Set where the file holds a wrapping token: the path of the request that made it. */
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
