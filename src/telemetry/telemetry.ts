/**
 * The agent room: what this process says about itself, and what it lets be done to itself.
 *
 * `self` answers probes and people (`/v1/agent/health`, `/v1/agent/self`). `readiness` says whether the process can do its
 * work, from checks that the daemon gives it: everything that tells about readiness asks it. `metrics` holds figures: `request-meter` counts
 * what the HTTP room answers, `process-figures` what the process costs, and everything else is brought by the daemon as
 * families of points under the names that dashboards know (`metric`). They are shown as JSON, which `metrics` makes once
 * an interval, and as text for Prometheus (`prometheus`), made for each scrape. `monitor` lets callers read the log
 * along, and `log-file` is a file that it may go to. `reload` has the configuration read again. `openapi` describes all
 * endpoints of the process, made from the operations themselves.
 *
 * Promises. A request costs a few additions, whoever scrapes. Nothing is measured for a question: a scrape reads what
 * others have looked at anyway, and the one thing that needs a look of its own, the disks, is looked at once an interval
 * and never waited for. The number of figures is bounded by operations, file systems, cores and running tasks: nothing
 * that a caller sends becomes a label. What has gone leaves nothing behind.
 *
 * Assumes that the families it is given are cheap to read and have no secrets in them: `/v1/metrics` is open.
 *
 * What can go wrong. A source that fails breaks the one answer it was asked for. Counters begin at zero with each start,
 * as whoever computes rates from them expects. The room imports none but kit: it is told by the daemon what the other
 * rooms know.
 */
import type { Logger, LogSink } from '../platform/log.ts'
import type { AnyOperation, RoomEndpoint } from '../platform/operation.ts'
import type { AnyFamily, CommonLabels, NameFilter } from './metric.ts'
import { Metrics } from './metrics.ts'
import { agentMonitor } from './monitor.ts'
import { agentMetrics } from './metrics-operation.ts'
import { openApi } from './openapi.ts'
import { ProcessFigures } from './process-metrics.ts'
import { agentReady, Readiness, type ReadinessOptions } from './readiness.ts'
import { agentReload, type ReloadOutcome } from './reload.ts'
import { RequestMeter } from './request-metrics.ts'
import { type AgentFacts, agentHealth, agentSelf } from './agent-self.ts'

export interface AgentRoomOptions {
  readonly facts: AgentFacts
  readonly metrics: {
    /** What the other rooms know, as of now. */
    readonly families: () => readonly AnyFamily[]
    /** Called once an interval, for what costs too much to be known at any time. May reject. */
    readonly refresh: () => Promise<unknown>
    readonly labels: CommonLabels
    readonly filter: NameFilter
    /** Whether the text form is served. */
    readonly textForm: boolean
  }
  /** Whether the process can do its work. */
  readonly readiness: Omit<ReadinessOptions, 'logger'>
  readonly logger: Logger
  /** Where the lines of the whole process go. */
  readonly sink: LogSink
  /** Reads the configuration again. */
  readonly reload: () => ReloadOutcome
  /** All that the process serves, as soon as that is known. */
  readonly operations: () => readonly AnyOperation[]
}

export interface AgentRoom {
  readonly operations: readonly AnyOperation[]
  /** For the HTTP room to count into. */
  readonly meter: RequestMeter
  /** The figures, for other endpoints that tell them. */
  readonly figures: {
    /** Of the last complete interval. */
    json(): object
    /** For Prometheus; undefined where that form is not served. */
    text(): Promise<string> | undefined
  }
  readonly readiness: Readiness
  stop(): void
}

/** What the handlers of this room are made of. */
interface AgentParts extends Pick<AgentRoomOptions, 'facts' | 'sink' | 'reload' | 'operations'> {
  readonly nodeId: string
  readonly readiness: Readiness
  readonly metrics: Metrics
  readonly textForm: boolean
}

/** Every endpoint of the process itself: a line each. */
const TABLE: readonly RoomEndpoint<AgentParts>[] = [
  agentHealth,
  agentSelf,
  agentReady,
  agentMetrics,
  agentMonitor,
  agentReload,
  openApi,
]

export function startAgentRoom(options: AgentRoomOptions): AgentRoom {
  const { facts, logger, sink } = options
  const { families, refresh, labels, filter, textForm } = options.metrics
  const meter = new RequestMeter()
  const figures = new ProcessFigures(facts.version)
  const readiness = new Readiness({ ...options.readiness, logger })
  const metrics = new Metrics({
    meter,
    families: () => [...figures.families(), ...readiness.families(), ...families()],
    refresh,
    completed: () => figures.tick(),
    labels,
    filter,
    logger,
  })
  metrics.start()
  readiness.start()
  const parts: AgentParts = {
    facts,
    nodeId: facts.nodeId,
    readiness,
    metrics,
    textForm,
    sink,
    reload: options.reload,
    operations: options.operations,
  }
  return {
    meter,
    figures: { json: () => metrics.json(), text: () => (textForm ? metrics.text() : undefined) },
    readiness,
    operations: TABLE.map((each) => each.in(parts)),
    stop() {
      readiness.stop()
      metrics.stop()
      figures.stop()
    },
  }
}
