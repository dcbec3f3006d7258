/**
 * The daemon: the only file that builds the rooms and joins them, in the order in which they start and stop.
 *
 * Start: configuration, log, host (state, allocations, statistics), then the listener, so that nothing is answered
 * before it can be answered right. Stop: the listener drains first, then the host. Everything a room needs from another
 * one is handed over here as a value or a function; no room imports this file.
 */
import { mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { AgentRoom } from './agent/agent.ts'
import type { ReloadOutcome } from './agent/reload.ts'
import { type Authorizer, createCoreAuthorizer, type OwnAuthorizer } from './cluster/authorizer.ts'
import { DEMO_TASK, printBanner, startDemo } from './cli/dev.ts'
import type { AgentOptions } from './cli/parts.ts'
import type { Cluster, ClusterOptions } from './daemon-cluster.ts'
import { type Config, ConfigError, type LoadedConfig } from './config/load.ts'
import { readTlsFiles } from './config/tls-files.ts'
import { type Host, startHost } from './host/host.ts'
import type { Connections } from './http/connections.ts'
import { Listener } from './http/listener.ts'
import { Router } from './http/router.ts'
import { messageOf } from './kit/errors.ts'
import { createLogger, type Logger } from './kit/log.ts'
import type { AnyOperation } from './kit/operation.ts'
import { configOf, type Dev, openDev } from './daemon-dev.ts'
import { ProcessLog } from './daemon-log.ts'
import type { Phase } from './daemon-readiness.ts'
import { applyConfig } from './daemon-reload.ts'
import { startRoom } from './daemon-room.ts'
import type { SecretsOptions, SecretsRoom } from './daemon-secrets.ts'
import { authorizerOf, hostOptionsOf, listenerOptionsOf } from './daemon-settings.ts'
import { type ServiceManager, serviceManagerOf } from './daemon-systemd.ts'

export interface Running {
  readonly url: string
  /** Absent where the `client` role is off. */
  readonly host: Host | undefined
  readonly config: Config
  reload(): ReloadOutcome
  stop(): Promise<void>
}

/** Runs an agent until a signal ends it; resolves with the exit code. */
export async function runAgent(options: AgentOptions, version: string): Promise<number> {
  let agent: Running | undefined
  let signalled = false
  // In force before anybody is told that we are ready: a signal that comes at once is heard too.
  const asked = new Promise<void>((resolve) => {
    const stop = () => {
      if (signalled) process.exit(1)
      signalled = true
      resolve()
    }
    process.on('SIGTERM', stop)
    process.on('SIGINT', stop)
  })
  process.on('SIGHUP', () => agent?.reload())
  // Node's own answer to SIGUSR1 is to open a debugger port.
  process.on('SIGUSR1', () => undefined)
  agent = await startAgent(options, version)
  await asked
  await agent.stop()
  return 0
}

/** Starts an agent; resolves when it answers. Rejects with a text for the operator. */
export async function startAgent(options: AgentOptions, version: string): Promise<Running> {
  const dev = options.dev ? openDev(options) : undefined
  const load = () => configOf(options, dev)
  let running: Agent | undefined
  try {
    const { config, warnings } = load()
    const log = new ProcessLog(config)
    const logger = createLogger(log.sink)
    for (const warning of warnings) logger.warn(warning)
    running = new Agent({ config, load, dev, log, logger, version })
    await running.start()
    const { url } = running
    if (dev) {
      const demo =
        options.devNoDemo || !dev.temporaryDir ? undefined : await startDemo(config.dataDir, running.demoReady)
      running.demo = demo
      printBanner({ url, token: dev.rootToken, demo })
    } else process.stdout.write(`    HTTP: ${url}\n`)
    process.stdout.write('==> outpost agent started\n')
    running.service.ready(running)
    return running
  } catch (error) {
    await running?.stop()
    if (dev?.temporaryDir) rmSync(dev.temporaryDir, { recursive: true, force: true })
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
  demo: { stop(): Promise<void> } | undefined
  host: Host | undefined
  readonly service: ServiceManager
  #listener: Listener | undefined
  #cluster: Cluster | undefined
  #secrets: SecretsRoom | undefined
  #room: AgentRoom | undefined
  operations: readonly AnyOperation[] = []
  readonly reloads = { done: 0, refused: 0 }
  phase: Phase = 'starting'
  /** The tokens of the configuration, and with servers to ask, all others. */
  #own: OwnAuthorizer
  #authorizer: Authorizer

  constructor(parts: AgentParts) {
    this.#parts = parts
    this.config = parts.config
    this.#own = authorizerOf(parts.config, parts.dev?.rootToken)
    this.#authorizer = this.#own
    this.service = serviceManagerOf(process.env, parts.logger.named('systemd'))
  }

  /** For `systemctl status`. */
  status(): string {
    const allocations = [...(this.host?.allocations.all() ?? [])].length
    const work = `${counted(allocations, 'allocation')}, ${counted(this.host?.followers.count ?? 0, 'follower')}`
    return `${this.url}: ${this.#room?.readiness.summary ?? this.phase}; ${work}`
  }

  readinessChanged(): void {
    this.service.changed()
  }

  get connections(): Connections | undefined {
    return this.#listener?.connections
  }

  get figures(): AgentRoom['figures'] | undefined {
    return this.#room?.figures
  }

  async answers(withinMs: number): Promise<boolean> {
    return (await this.#listener?.answers(withinMs)) ?? false
  }

  /** True once its manifest says that it runs, so that its endpoints answer; without one any directory is taken to run. */
  readonly demoReady = (allocId: string): boolean =>
    this.host?.allocations.get(allocId)?.tasks.get(DEMO_TASK)?.startedAtMs !== undefined

  async start(): Promise<void> {
    const { config, dev, logger, version } = this.#parts
    mkdirSync(config.dataDir, { recursive: true, mode: 0o711 })
    const devRootToken = dev?.rootToken
    this.#secrets = await openSecrets({ config, version, logger: logger.named('secrets'), devRootToken, process: this })
    const cluster = await openCluster({ config, version, logger: logger.named('cluster') })
    this.#cluster = cluster
    this.#trust(this.#own, config)
    if (config.client.enabled) {
      const options = hostOptionsOf(config, version, logger.named('host'))
      this.host = await startHost({ ...options, ...(cluster?.elsewhere ? { elsewhere: cluster.elsewhere } : {}) })
    }
    await this.#listen()
    const addressFile = join(config.dataDir, 'http.addr')
    writeFileSync(`${addressFile}.new`, `${this.url}\n`)
    renameSync(`${addressFile}.new`, addressFile) // whoever waits for the file never finds half of it
    // What is said about the process from here on is known.
    await this.#room?.readiness.refresh()
    this.phase = 'started'
    logger.info('started', { url: this.url, node_id: this.host?.nodeId, version })
  }

  async #listen(): Promise<void> {
    const { config, logger } = this.#parts
    const rooms = { host: this.host, cluster: this.#cluster, secrets: this.#secrets }
    const room = startRoom({ ...this.#parts, ...rooms, now: this })
    this.#room = room
    const own = [...(this.host?.operations ?? []), ...room.operations]
    const core = this.#secrets?.operations
    const served = [
      ...(this.#cluster?.operations(this.host, room.operations) ?? own),
      ...(this.#secrets?.snapshots ?? []),
    ]
    this.operations = served
    const tls = readTlsFiles(config.tls)
    this.#listener = new Listener({
      ...listenerOptionsOf(config, tls),
      router: new Router(served, core ?? (await this.#relayedCore())),
      logger: logger.named('http'),
      meter: room.meter,
      resolve: (token, remote) => this.#authorizer.resolve(token, remote),
      crossOrigin: () => this.#secrets?.core.crossOrigin,
      isOpen: () => !this.config.acl.enabled,
    })
    const { host, port } = await this.#listener.listen()
    this.url = `${tls ? 'https' : 'http'}://${host.includes(':') ? `[${host}]` : host}:${port}`
    const resolve = (token: string | undefined, remote?: string) => this.#authorizer.resolve(token, remote)
    const grantsOf = (token: string | undefined, remote?: string) =>
      this.#authorizer.grantsOf?.(token, remote) ?? this.#own.grantsOf(token)
    this.#cluster?.start({ host: this.host, operations: own, routed: served, url: this.url, core, resolve, grantsOf })
  }

  /** What a server without a core answers for the one that has it. */
  async #relayedCore(): Promise<readonly AnyOperation[] | undefined> {
    const { config } = this.#parts
    if (!config.server.enabled || !config.nats) return undefined
    const { coreForms } = await import('./secrets/operations.ts')
    return this.#cluster?.relayedCore(coreForms())
  }

  #trust(own: OwnAuthorizer, { acl }: Config): void {
    this.#own = own
    const asking = this.#cluster?.authorizer(own, acl.enabled, acl.tokenTtlMs) ?? own
    this.#authorizer = this.#secrets && acl.enabled ? createCoreAuthorizer(own, this.#secrets.core) : asking
  }

  /** Takes over what can change while running; a faulty configuration changes nothing. */
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
    try {
      const running = { config: this.config, rootToken: dev?.rootToken, log, listener: this.#listener, host: this.host }
      const { authorizer, config, taken, waiting } = applyConfig(running, load().config)
      this.#trust(authorizer, config)
      this.#cluster?.reload(config)
      this.config = config
      this.reloads.done++
      logger.info('configuration reloaded', { settings: taken.join(', ') })
      if (waiting.length > 0) logger.warn('some changes need a restart', { settings: waiting.join(', ') })
      return { taken, waiting }
    } catch (error) {
      this.reloads.refused++
      logger.error('configuration not reloaded, the old one stays in force', { error: messageOf(error) })
      return { fault: messageOf(error), theirs: error instanceof ConfigError }
    }
  }

  async stop(): Promise<void> {
    const { dev, log, logger } = this.#parts
    logger.info('stopping')
    this.phase = 'stopping'
    this.service.stopping()
    await this.demo?.stop()
    await this.#listener?.close()
    await this.#cluster?.stop()
    this.#room?.stop()
    await this.host?.stop()
    await this.#secrets?.stop()
    if (dev?.temporaryDir) rmSync(dev.temporaryDir, { recursive: true, force: true })
    this.service.close()
    log.sink.close()
  }
}

function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? '' : 's'}`
}

/** A process that stands alone does not load what a cluster needs. */
async function openCluster(options: ClusterOptions): Promise<Cluster | undefined> {
  if (!options.config.nats && !options.config.server.enabled) return undefined
  const { Cluster: Part } = await import('./daemon-cluster.ts')
  return Part.open(options)
}

/** Where a core is somebody else's business, nothing of it is loaded. */
async function openSecrets(options: SecretsOptions): Promise<SecretsRoom | undefined> {
  if (!options.config.server.enabled || !options.config.server.secrets) return undefined
  const { SecretsRoom: Room } = await import('./daemon-secrets.ts')
  return Room.open(options)
}
