/**
 * The daemon: builds the modules, connects them, starts and stops them.
 *
 * Start order: configuration, log, secrets core, cluster, host, then the listener, so no request is served before its module is ready.
 * Each step registers how it is undone. A stop, and a start that fails, undo the steps in reverse order: the listener drains
 * first. A module receives the services of other modules from here, as values or functions; no module imports this file.
 */
import { mkdirSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Telemetry } from '../telemetry/telemetry.ts'
import type { ReloadOutcome } from '../telemetry/reload-operation.ts'
import {
  type Authorizer,
  createCoreAuthorizer,
  createMemberAuthorizer,
  type LocalAuthorizer,
} from '../cluster/trust/authorizer.ts'
import { printReadyLine } from './ready-line.ts'
import { CertificateExpiry } from './monitoring/certificates.ts'
import { type Demo, DEMO_TASK, startDemo } from '../cli/demo.ts'
import type { AgentOptions } from '../cli/framework/services.ts'
import type { Cluster } from './modules/cluster.ts'
import { type Config, ConfigError, type LoadedConfig } from '../config/load.ts'
import { readTlsFiles } from '../config/tls-files.ts'
import { type Host, startHost } from '../host/host.ts'
import { HOST_PATHS } from '../host/host-operations.ts'
import type { Connections } from '../http/connections.ts'
import { Listener } from '../http/listener.ts'
import { PermissionChecker } from '../http/permission-checker.ts'
import { Router } from '../http/router.ts'
import { openAssets } from '../ui/assets.ts'
import { uiOperations } from '../ui/ui.ts'
import { buildCommit } from '../platform/build-commit.ts'
import { messageOf } from '../platform/errors.ts'
import { UNSUPPORTED_ENDPOINTS } from '../cluster/api/unsupported-endpoints.ts'
import { createLogger, type Logger } from '../platform/log.ts'
import type { AnyOperation } from '../platform/operation.ts'
import type { AgentLogin } from '../login/agent-login.ts'
import { configOf, type Dev, openDev, removeTemporary } from './setup/dev.ts'
import { writeAddress } from './setup/files.ts'
import { ProcessLog } from './setup/log.ts'
import type { Phase } from './monitoring/readiness.ts'
import { SecretsCoreProbe } from './monitoring/secrets-core-probe.ts'
import { agentLogin } from './modules/login.ts'
import { applyConfig } from './reload.ts'
import { openTelemetry } from './monitoring/telemetry.ts'
import { lateRosterOperations, openCluster, openSecrets } from './modules/lazy.ts'
import type { SecretsModule } from './modules/secrets.ts'
import { authorizerOf, hostOptionsOf, listenerOptionsOf } from './setup/settings.ts'
import { type ServiceManager, serviceManagerOf } from './systemd.ts'

/** Time limit for undoing a failed start. */
const UNDO_MS = 10_000
/** After the start, when all followers reconnect at once: late operations are loaded without a request for them. */
const COMPLETE_AFTER_MS = 5000

export interface Running {
  readonly url: string
  /** Undefined without the `client` role. */
  readonly host: Host | undefined
  readonly config: Config
  reload(): ReloadOutcome
  stop(): Promise<void>
}

/**
 * Starts an agent; resolves when it serves requests. Rejects with a text for the operator, or with the reason of `signal` if it
 * aborts during the start; all steps are undone then.
 */
export async function startAgent(options: AgentOptions, version: string, signal?: AbortSignal): Promise<Running> {
  const dev = options.dev ? openDev(options) : undefined
  const load = () => configOf(options, dev)
  let running: Agent | undefined
  try {
    const { config, warnings } = load()
    const log = new ProcessLog(config)
    const logger = createLogger(log.sink)
    for (const warning of warnings) logger.warn(warning)
    running = new Agent({ config, load, dev, log, logger, version })
    await running.start(signal)
    const { url } = running
    const demo = options.devNoDemo || !dev?.temporaryDir ? undefined : await running.startDemo()
    signal?.throwIfAborted()
    printReadyLine({ config, url, rootToken: dev?.rootToken, demo })
    running.service.ready(running)
    return running
  } catch (error) {
    // A failure to undo must not hide the first error or keep the process running.
    await Promise.race([running?.stop().catch(() => undefined), sleep(UNDO_MS, undefined, { ref: false })])
    removeTemporary(dev)
    throw error
  }
}

interface AgentParts {
  readonly config: Config
  readonly load: () => LoadedConfig
  readonly dev: Dev | undefined
  readonly logger: Logger
  readonly log: ProcessLog
  readonly version: string
}

class Agent implements Running {
  readonly #parts: AgentParts
  config: Config
  url = ''
  host: Host | undefined
  readonly service: ServiceManager
  #listener: Listener | undefined
  #router: Router | undefined
  /** Operations of the web interface. */
  #pages: readonly AnyOperation[] = []
  #cluster: Cluster | undefined
  #secrets: SecretsModule | undefined
  #telemetry: Telemetry | undefined
  #login: AgentLogin | undefined
  certificates: CertificateExpiry | undefined
  coreProbe: SecretsCoreProbe | undefined
  readonly reloads = { done: 0, refused: 0 }
  phase: Phase = 'starting'
  /** Undoes the completed steps. */
  readonly #undo = new AsyncDisposableStack()
  /** Tokens in the configuration; with servers, all other tokens too. */
  #own: LocalAuthorizer
  #authorizer: Authorizer

  constructor(parts: AgentParts) {
    this.#parts = parts
    this.config = parts.config
    this.#own = authorizerOf(parts.config, parts.dev?.rootToken)
    this.#authorizer = this.#own
    this.service = serviceManagerOf(process.env, parts.logger.named('systemd'))
    this.#undo.defer(() => parts.log.close())
    this.#undo.defer(() => this.service.close())
    this.#undo.defer(() => removeTemporary(parts.dev))
  }

  /** For `systemctl status`. */
  status(): string {
    const allocations = [...(this.host?.allocations.all() ?? [])].length
    const work = `${counted(allocations, 'allocation')}, ${counted(this.host?.followers.count ?? 0, 'follower')}`
    return `${this.url}: ${this.#telemetry?.readiness.summary ?? this.phase}; ${work}`
  }

  readinessChanged(): void {
    this.service.changed()
  }

  get connections(): Connections | undefined {
    return this.#listener?.connections
  }

  /** Those of the API. */
  async operations(): Promise<readonly AnyOperation[]> {
    await this.#router?.complete()
    return this.#router?.operations.filter((each) => !this.#pages.includes(each)) ?? []
  }

  get metrics(): Telemetry['metrics'] | undefined {
    return this.#telemetry?.metrics
  }

  async answers(withinMs: number): Promise<boolean> {
    return (await this.#listener?.acceptsConnections(withinMs)) ?? false
  }

  /** The demo is ready once its manifest says that the task runs. */
  async startDemo(): Promise<Demo> {
    const isReady = (id: string) => this.host?.allocations.get(id)?.tasks.get(DEMO_TASK)?.startedAtMs !== undefined
    const demo = await startDemo(this.config.dataDir, isReady)
    this.#undo.defer(() => demo.stop())
    return demo
  }

  async start(signal?: AbortSignal): Promise<void> {
    const { config, dev, logger, version } = this.#parts
    mkdirSync(config.dataDir, { recursive: true, mode: 0o711 })
    const devRootToken = dev?.rootToken
    this.#secrets = await openSecrets({ config, version, logger: logger.named('secrets'), devRootToken, process: this })
    this.#undo.defer(() => this.#secrets?.stop())
    signal?.throwIfAborted()
    const cluster = await openCluster({ config, version, logger: logger.named('cluster') })
    this.#cluster = cluster
    if (cluster) this.#secrets?.join(cluster)
    this.#undo.defer(() => cluster?.stop())
    this.#trust(this.#own, config)
    if (config.client.enabled) {
      const options = hostOptionsOf(config, version, logger.named('host'))
      this.host = await startHost(options)
      this.#undo.defer(() => this.host?.stop())
    }
    signal?.throwIfAborted()
    await this.#listen()
    signal?.throwIfAborted()
    writeAddress(config.dataDir, this.url, logger)
    // Readiness is measured before it is reported.
    await this.#telemetry?.readiness.refresh()
    this.phase = 'started'
    logger.info('started', { url: this.url, node_id: this.host?.nodeId, version, commit: buildCommit() })
  }

  async #listen(): Promise<void> {
    const { config, logger } = this.#parts
    if (this.host) this.#login = agentLogin({ config, cluster: this.#cluster, logger: logger.named('login') })
    const modules = { host: this.host, cluster: this.#cluster, secrets: this.#secrets, login: this.#login }
    const telemetry = openTelemetry({ ...this.#parts, ...modules, now: this })
    this.#telemetry = telemetry
    this.#undo.defer(() => telemetry.stop())
    // Stops after the listener, whose calls it forwards, and before the host, whose calls it serves.
    this.#undo.defer(() => this.#cluster?.stop())
    const later = lateRosterOperations({ ...this.#parts, ...modules, url: () => this.url }, this.#undo)
    const own = [...(this.host?.operations ?? []), ...telemetry.operations]
    const core = this.#secrets?.operations
    const served = [
      ...(this.#cluster?.operations(this.host, telemetry.operations) ?? own),
      ...(this.#secrets?.snapshots ?? []),
    ]
    const resolve = (token: string | undefined, remote?: string) => this.#authorizer.resolve(token, remote)
    const rights = new PermissionChecker({
      resolve: (token, remote) => this.#authorizer.recheck(token, remote),
      intervalMs: () => this.#authorizer.recheckMs,
    })
    const tls = readTlsFiles(config.tls)
    this.#pages = config.ui.enabled ? uiOperations(openAssets()) : []
    const router = new Router([...served, ...this.#pages], core ?? (await this.#relayedCore()), {
      families: [HOST_PATHS],
      unsupported: UNSUPPORTED_ENDPOINTS,
      isServedByFallback: (path) => this.#secrets?.mayServe(path) ?? true,
      later,
    })
    this.#router = router
    const listener = new Listener({
      ...listenerOptionsOf(() => this.config, tls, this.#secrets?.pathParts),
      router,
      logger: logger.named('http'),
      meter: telemetry.meter,
      resolve,
      rights,
      crossOrigin: () => this.#secrets?.core.crossOrigin,
    })
    this.#listener = listener
    const { host, port } = await listener.listen()
    this.#undo.defer(() => listener.close())
    this.#watchCertificates(listener)
    this.url = `${tls ? 'https' : 'http'}://${host.includes(':') ? `[${host}]` : host}:${port}`
    const grantsOf: NonNullable<Authorizer['grantsOf']> = (token, ...rest) =>
      this.#authorizer.grantsOf?.(token, ...rest) ?? this.#own.grantsOf(token)
    const secrets = {
      core: this.#secrets?.forCluster,
      clusterId: () => this.#secrets?.clusterId,
      coreState: () => this.#secrets?.coreState,
      coreMembers: () => this.#secrets?.ha?.members(),
    }
    const calls = { operations: own, callers: { resolve, rights }, grantsOf }
    this.#completeLater(router)
    this.#cluster?.start({ host: this.host, url: this.url, ...calls, ...secrets })
    if (this.#cluster) this.#secrets?.ha?.start(this.#cluster)
    this.coreProbe?.start()
    this.#login?.set(config.secrets)
    this.#undo.defer(() => this.#login?.stop())
  }

  #completeLater(router: Router): void {
    const complete = () =>
      router.complete().catch((error: unknown) => {
        const text = 'loading of operations failed, the next request for one of them retries it'
        this.#parts.logger.warn(text, { error: messageOf(error) })
      })
    const timer = setTimeout(() => void complete(), COMPLETE_AFTER_MS).unref()
    this.#undo.defer(() => clearTimeout(timer))
  }

  #watchCertificates(listener: Listener): void {
    this.certificates = new CertificateExpiry({
      logger: this.#parts.logger,
      config: () => this.config,
      http: () => listener.certificate,
      cluster: () => this.#secrets?.replication.certificates ?? [],
      natsServerExpiryMs: () => (this.#cluster?.connection.isConnected ? this.#cluster.natsServer.expiryMs : undefined),
    })
    this.#undo.defer(() => this.certificates?.stop())
  }

  /** The operations that a server without a core forwards to the server with the core. */
  async #relayedCore(): Promise<readonly AnyOperation[] | undefined> {
    const { config } = this.#parts
    const cluster = this.#cluster
    if (!config.server.enabled || !config.nats || !cluster) return undefined
    this.coreProbe = new SecretsCoreProbe({
      requestHealth: (signal) => cluster.calls.health(signal),
      coreNames: () => cluster.coreNames,
      isConnected: () => cluster.connection.isConnected,
    })
    this.#undo.defer(() => this.coreProbe?.stop())
    return cluster.relayedCore((await import('../secrets/request/core-endpoints.ts')).CORE_ENDPOINTS)
  }

  #trust(own: LocalAuthorizer, { acl }: Config): void {
    this.#own = own
    const asking = this.#cluster?.authorizer(own, acl.enabled, acl.tokenTtlMs) ?? own
    const { core, ha } = this.#secrets ?? {}
    const ofCore = core && acl.enabled ? createCoreAuthorizer(own, core) : asking
    this.#authorizer = ha && core ? createMemberAuthorizer(ofCore, asking, () => core.isActive && ha.isServing) : ofCore
  }

  /** Applies what can change at run time; an invalid configuration changes nothing. */
  reload(): ReloadOutcome {
    let outcome: ReloadOutcome = { fault: 'the agent is stopping', theirs: false }
    this.service.reloading(() => {
      outcome = this.#reload()
      return 'fault' in outcome ? outcome.fault : undefined
    })
    return outcome
  }

  #reload(): ReloadOutcome {
    const { dev, load, log, logger } = this.#parts
    // Also with an invalid configuration: log rotation depends on it.
    this.#secrets?.core.audit?.reopen()
    try {
      const running = { config: this.config, rootToken: dev?.rootToken, log, listener: this.#listener, host: this.host }
      const { authorizer, config, applied: taken, needsRestart: waiting } = applyConfig(running, load().config)
      this.#trust(authorizer, config)
      this.#cluster?.reload(config)
      this.#login?.set(config.secrets)
      this.config = config
      this.certificates?.check()
      this.reloads.done++
      logger.info('configuration reloaded', { settings: taken.join(', ') })
      if (waiting.length > 0) logger.warn('some changes require a restart', { settings: waiting.join(', ') })
      return { taken, waiting }
    } catch (error) {
      this.reloads.refused++
      logger.error('configuration reload failed, the old configuration stays in effect', { error: messageOf(error) })
      return { fault: messageOf(error), theirs: error instanceof ConfigError }
    }
  }

  /** Stops the modules in reverse order. */
  async stop(): Promise<void> {
    this.#parts.logger.info('stopping')
    this.phase = 'stopping'
    this.service.stopping()
    // While the listener still forwards requests.
    await this.#secrets?.ha?.leave()
    this.#cluster?.drain()
    await this.#undo.disposeAsync()
  }
}

function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? '' : 's'}`
}
