/** `/v1/metrics`. It needs no token, as scrapers expect: it contains numbers and names only. */
import { Refusal } from '../platform/errors.ts'
import { type Chunk, handle } from '../platform/operation.ts'
import { header, type InputOf, queryText, schema } from '../platform/schema.ts'
import type { Metrics } from './metrics.ts'

const fields = {
  format: queryText({
    description: 'prometheus for the text format; default: JSON, unless the Accept header requests the text format',
    fallback: undefined,
    choices: ['prometheus', 'json'],
    otherwise: 'format must be prometheus, or absent for JSON',
  }),
  accept: header('The text format is returned to scrapers that accept openmetrics or plain text'),
}

type MetricsInput = InputOf<typeof fields>

function wantsText({ format, accept = '' }: MetricsInput): boolean {
  if (format !== undefined) return format === 'prometheus'
  return /(^|[,\s])(application\/openmetrics-text|text\/plain)\b/i.test(accept)
}

async function* textOf(metrics: Metrics): AsyncGenerator<Chunk> {
  const bytes = Buffer.from(await metrics.text())
  const contentType = 'text/plain; version=0.0.4; charset=utf-8'
  yield { status: 200, contentType, contentLength: bytes.length }
  yield bytes
}

interface MetricsParts {
  readonly metrics: Metrics
  /** Whether the text form is on. */
  readonly textForm: boolean
}

export const agentMetrics = handle(
  {
    name: 'agent.metrics',
    summary: 'Read the metrics of this process, its host and its allocations',
    http: ['GET /v1/metrics'],
    target: 'server',
    input: schema(fields),
    output: 'json',
    errorFormat: 'plain',
    open: true,
    authorize: () => undefined,
  },
  (agent: MetricsParts) => ({
    run(input) {
      if (!wantsText(input)) return Promise.resolve(agent.metrics.json())
      if (!agent.textForm) throw new Refusal('not_offered', 'Prometheus is not enabled')
      return textOf(agent.metrics)
    },
  }),
)
