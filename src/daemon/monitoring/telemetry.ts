/** Connects the telemetry module with its sources: metrics and readiness checks of all modules. */
import { dirname } from 'node:path'
import { type Telemetry, startTelemetry } from '../../telemetry/telemetry.ts'
import { DiskSpace } from '../../telemetry/disk-space.ts'
import type { AnyFamily } from '../../telemetry/metric.ts'
import type { ReloadOutcome } from '../../telemetry/reload-operation.ts'
import type { Config } from '../../config/load.ts'
import { replicationFamilies } from './dr-metrics.ts'
import { haModeOf } from '../modules/ha-metrics.ts'
import type { CertificateExpiry } from './certificates.ts'
import { clusterFamilies } from './cluster-metrics.ts'
import type { Cluster } from '../modules/cluster.ts'
import type { ProcessLog } from '../setup/log.ts'
import { loginFamilies } from '../modules/login.ts'
import { agentFamilies } from './host-metrics.ts'
import type { SecretsCoreProbe } from './secrets-core-probe.ts'
import { checksOf, dataDirectories, type Phase, roleOf, warningsOf } from './readiness.ts'
import type { SecretsModule } from '../modules/secrets.ts'
import { metricsOptionsOf, shownConfig } from '../setup/settings.ts'
import type { Host } from '../../host/host.ts'
import type { Connections } from '../../http/connections.ts'
import type { Logger } from '../../platform/log.ts'
import type { AnyOperation } from '../../platform/operation.ts'
import type { AgentLogin } from '../../login/agent-login.ts'

/** Sources of metrics and readiness. */
export interface TelemetrySources {
  /** At the start. */
  readonly config: Config
  readonly version: string
  readonly logger: Logger
  readonly log: ProcessLog
  readonly host: Host | undefined
  readonly cluster: Cluster | undefined
  readonly secrets: SecretsModule | undefined
  readonly login: AgentLogin | undefined
  /** State that changes at run time. */
  readonly now: {
    readonly config: Config
    readonly phase: Phase
    readonly connections: Connections | undefined
    readonly reloads: { readonly done: number; readonly refused: number }
    operations(): Promise<readonly AnyOperation[]>
    readonly certificates: CertificateExpiry | undefined
    readonly coreProbe: SecretsCoreProbe | undefined
    reload(): ReloadOutcome
    /** Called when readiness changes. */
    readinessChanged(): void
  }
}

export function openTelemetry(parts: TelemetrySources): Telemetry {
  const { config, host, log, logger, now, secrets, version } = parts
  const nodeId = host?.nodeId ?? ''
  const disk = new DiskSpace(dataDirectories(config))
  const readinessParts = () => ({
    config,
    phase: () => now.phase,
    disk,
    cluster: parts.cluster,
    core: secrets?.core,
    fileFault: () => secrets?.fileFault,
    login: parts.login,
    replication: secrets?.replication,
    coreProbe: now.coreProbe,
    certificateWarnings: () => now.certificates?.warnings ?? [],
    schedule: secrets?.schedule,
  })
  return startTelemetry({
    facts: {
      client: config.client.enabled,
      server: config.server.enabled,
      nodeId,
      name: config.name,
      version,
      config: () => shownConfig(now.config, version),
      allocations: () => [...(host?.allocations.all() ?? [])].length,
    },
    metrics: {
      ...metricsOptionsOf(config, nodeId),
      families: () => familiesOf(parts, disk),
      refresh: () =>
        Promise.all([
          config.telemetry.publishNodeMetrics && host?.sampler.hostStats(),
          secrets?.metrics.refresh(),
          secrets?.replication.refresh(),
        ]),
    },
    readiness: {
      checks: () => checksOf(readinessParts()),
      warnings: () => warningsOf(readinessParts()),
      role: () => roleOf(secrets?.core),
      haMode: () => haModeOf(secrets?.core),
      refresh: async () =>
        void (await Promise.all([disk.refresh(), secrets?.replication.refresh(), secrets?.metrics.refreshHa()])),
      onChange: () => now.readinessChanged(),
    },
    logger: logger.named('agent'),
    sink: log.sink,
    reload: () => now.reload(),
    operations: () => now.operations(),
  })
}

function familiesOf({ cluster, config, host, login, now, secrets }: TelemetrySources, disk: DiskSpace): AnyFamily[] {
  const { connections, reloads } = now
  const storeDirectory = dirname(config.server.storagePath)
  return [
    ...agentFamilies({ host, publish: config.telemetry, connections, reloads }),
    ...(cluster ? clusterFamilies(cluster, config.nats !== undefined) : []),
    ...(secrets?.metrics.families(disk.freeBytes(storeDirectory)) ?? []),
    ...(secrets ? replicationFamilies(secrets.replication) : []),
    ...loginFamilies(login),
    ...(now.certificates?.families() ?? []),
  ]
}
