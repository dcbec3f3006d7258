/**
 * Telemetry: what this process reports about itself. Theory of operation.
 *
 * `agent-self` serves probes (`/v1/agent/health`) and `/v1/agent/self`. `readiness` runs the checks that the daemon passes;
 * everything that reports readiness uses it. `metrics` combines families of points: `request-metrics` counts requests,
 * `process-metrics` reads the process, and the daemon adds those of the other modules under the names that dashboards use. The
 * JSON form shows the last complete interval, the Prometheus form (`prometheus`) is built for each scrape. `monitor` streams the log,
 * `runtime` describes the state of the process, `log-file` is a destination of the log, `reload-operation` reads the configuration again, `openapi`
 * describes all endpoints.
 *
 * Promises. A request costs a few additions, independent of scrapes. A scrape measures nothing: it reads values that exist
 * already. Disks are measured once an interval, in the background. The number of series is bounded by operations, file systems,
 * cores and running tasks: no value from a caller becomes a label, and removed allocations leave no series.
 *
 * Assumptions. Families are cheap to read and contain no secrets: `/v1/metrics` needs no token.
 *
 * Failure modes. A source that throws breaks the answer that reads it. Counters start at zero with each process.
 */
import type { Logger, LogSink } from '../platform/log.ts'
import type { AnyOperation, EndpointBinding } from '../platform/operation.ts'
import type { AnyFamily, CommonLabels, NameFilter } from './metric.ts'
import { Metrics } from './metrics.ts'
import { agentMonitor } from './monitor.ts'
import { agentPermissions } from './agent-permissions.ts'
import { agentMetrics } from './metrics-operation.ts'
import { openApi } from './openapi.ts'
import { type LoopDelay, ProcessMetrics } from './process-metrics.ts'
import { agentReady, Readiness, type ReadinessOptions } from './readiness.ts'
import { agentReload, type ReloadOutcome } from './reload-operation.ts'
import { RequestMeter } from './request-metrics.ts'
import { agentRuntime } from './runtime.ts'
import { type AgentFacts, agentHealth, agentSelf } from './agent-self.ts'

export interface TelemetryOptions {
  readonly facts: AgentFacts
  readonly metrics: {
    /** Current families of the other modules. */
    readonly families: () => readonly AnyFamily[]
    /** Measures expensive values, once an interval. May reject. */
    readonly refresh: () => Promise<unknown>
    readonly labels: CommonLabels
    readonly filter: NameFilter
    /** Serve the Prometheus form. */
    readonly textForm: boolean
  }
  readonly readiness: Omit<ReadinessOptions, 'logger'>
  readonly logger: Logger
  /** The log of the process. */
  readonly sink: LogSink
  /** Reads the configuration again. */
  readonly reload: () => ReloadOutcome
  /** All operations of the process, known after the start. */
  readonly operations: () => Promise<readonly AnyOperation[]>
}

export interface Telemetry {
  readonly operations: readonly AnyOperation[]
  /** Receives the counts of the HTTP listener. */
  readonly meter: RequestMeter
  /** The metrics, for other endpoints that serve them. */
  readonly metrics: {
    /** The last complete interval. */
    json(): object
    /** The Prometheus form; undefined if it is disabled. */
    text(): Promise<string> | undefined
  }
  readonly readiness: Readiness
  stop(): void
}

/** Services of the handlers. */
interface TelemetryParts extends Pick<TelemetryOptions, 'facts' | 'sink' | 'reload' | 'operations'> {
  readonly nodeId: string
  readonly readiness: Readiness
  readonly metrics: Metrics
  readonly textForm: boolean
  readonly loopDelay: () => LoopDelay
}

/** The endpoints of the process itself. */
const TABLE: readonly EndpointBinding<TelemetryParts>[] = [
  agentHealth,
  agentSelf,
  agentPermissions,
  agentReady,
  agentMetrics,
  agentMonitor,
  agentRuntime,
  agentReload,
  openApi,
]

export function startTelemetry(options: TelemetryOptions): Telemetry {
  const { facts, logger, sink } = options
  const { families, refresh, labels, filter, textForm } = options.metrics
  const meter = new RequestMeter()
  const processMetrics = new ProcessMetrics(facts.version)
  const readiness = new Readiness({ ...options.readiness, logger })
  const metrics = new Metrics({
    meter,
    families: () => [...processMetrics.families(), ...readiness.families(), ...families()],
    refresh,
    completed: () => processMetrics.tick(),
    labels,
    filter,
    logger,
  })
  metrics.start()
  readiness.start()
  const parts: TelemetryParts = {
    facts,
    nodeId: facts.nodeId,
    readiness,
    metrics,
    textForm,
    loopDelay: () => processMetrics.loopDelay(),
    sink,
    reload: options.reload,
    operations: options.operations,
  }
  return {
    meter,
    metrics: { json: () => metrics.json(), text: () => (textForm ? metrics.text() : undefined) },
    readiness,
    operations: TABLE.map((each) => each.in(parts)),
    stop() {
      readiness.stop()
      metrics.stop()
      processMetrics.stop()
    },
  }
}
