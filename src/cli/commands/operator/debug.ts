/** `outpost operator debug`. */
import { setTimeout as sleep } from 'node:timers/promises'
import { messageOf } from '../../../platform/errors.ts'
import { agentOf, agentOptions, type AgentTarget, jsonOption, printJson } from '../../client/agent-target.ts'
import { listRecords, openResponse, parseJson, refusalOf, requestJson, responseText } from '../../client/http-client.ts'
import { findNode } from '../../client/id-prefix.ts'
import { CommandError, type CommandIo, defineCommand } from '../../framework/define-command.ts'
import { logLevelOption } from '../../framework/log-level-option.ts'
import { duration, text, texts, UsageError } from '../../framework/options.ts'
import { escapeLine } from '../../framework/terminal-escapes.ts'
import { fieldsOf } from '../../output/json.ts'
import { humanBytes, humanSeconds } from '../../output/table.ts'
import { programVersion } from '../version.ts'
import { framesOf } from '../../streams/resuming-stream.ts'
import { type BundleFile, DebugBundle } from './debug/bundle.ts'
import { Redactor, secretVariables } from './debug/redaction.ts'
import {
  type JsonSource,
  LOG_DESCRIPTION,
  NODE_SAMPLED_SOURCES,
  ROSTER,
  SAMPLED_SOURCES,
  SERVER_SOURCES,
} from './debug/sources.ts'

const NODES_MAX = 16
/** A process that does not respond must not stop the collection. */
const REQUEST_TIMEOUT_MS = 15_000
/** Limit for the log of one process; the beginning of the period is kept. */
const LOG_BYTES_MAX = 16 << 20
/** Limit of each file of samples: a node chooses the size of its responses. */
const SAMPLES_BYTES_MAX = 32 << 20
/** Limit for the nodes in the list of those that are not ready. */
const NODES_LISTED_MAX = 1000

export const command = defineCommand({
  name: 'operator debug',
  summary: 'Write a debug bundle',
  details: [
    'Collects metrics, runtime state, readiness and the log for -duration. Collects once: the configuration',
    'without secrets, the seal and replication status, versions, servers, and a summary of the nodes.',
    '-node adds the log, runtime state and resource usage of a node through the addressed server. Ctrl-C ends the period early.',
    '',
    'Tokens, passwords, keys, metadata values and similar data are removed. index.json in the bundle lists',
    'each file with its source, and files that could not be collected. docs/diagnosis.md describes the files. Names of nodes,',
    'allocations and mounts, and request paths, remain: review the bundle before you share it.',
    '',
    'Requires agent:read; also node:read for the nodes, and a token of the secrets core for its files. Files that',
    'the token may not read are omitted and reported on stderr. Exit code 0: the bundle was written.',
    '',
    'Examples:',
    '  outpost operator debug',
    '  outpost operator debug -duration 5m -interval 10s -node web-7 -output web-7.tar.gz',
  ].join('\n'),
  options: {
    duration: duration({ help: 'Length of the collection period; 0s for one sample', fallback: '2m', minMs: 0 }),
    interval: duration({ help: 'Time between samples', fallback: '10s', minMs: 500 }),
    output: text({
      placeholder: 'FILE',
      help: 'Output file',
      fallback: undefined,
      shownDefault: 'outpost-debug-TIME.tar.gz in the current directory',
    }),
    'log-level': logLevelOption('debug'),
    node: texts('NODE', 'Add a node by name or ID prefix'),
    json: jsonOption,
    ...agentOptions,
  },
  async run(values, _operands, io) {
    if (values.node.length > NODES_MAX) throw new UsageError(`option -node: at most ${NODES_MAX} nodes`)
    const target = agentOf(values, io)
    // Fails here, before the period, if the address or a node is wrong.
    await requestJson(target, { path: '/v1/agent/health' })
    const nodes = distinct(await Promise.all(values.node.map((given) => nodeOf(target, given, io))))
    const startedAt = new Date()
    const file = values.output ?? `outpost-debug-${startedAt.toISOString().replaceAll(/[-:]|\.\d+/g, '')}.tar.gz`
    const bundle = new DebugBundle(new Redactor([target.token, ...secretVariables(io.env)]))
    const capture = new DebugCapture(target, bundle, values['log-level'] ?? 'debug')
    if (values.duration > 0) io.err(`collecting for ${humanSeconds(values.duration / 1000)}, Ctrl-C ends it early\n`)
    const isInterrupted = await capture.run(nodes, values)
    const bytes = bundle.write(file, {
      created_at: startedAt.toISOString(),
      ended_at: new Date().toISOString(),
      is_interrupted: isInterrupted,
      interval_seconds: values.interval / 1000,
      address: target.url.origin,
      nodes: nodes.map(({ id, name }) => ({ id, name })),
      command_version: programVersion(),
    })
    for (const { error, path } of bundle.missing) io.err(`not collected: ${path}: ${escapeLine(error)}\n`)
    if (values.json) printJson({ File: file, Bytes: bytes, Missing: bundle.missing }, io)
    else io.out(`Wrote ${file} (${humanBytes(bytes)})\n`)
    return 0
  },
})

interface DebugNode {
  readonly id: string
  readonly name: string
}

/** The name is that of a directory in the bundle, and the root of the host chooses it. */
async function nodeOf(target: AgentTarget, given: string, io: CommandIo): Promise<DebugNode> {
  const id = await findNode(target, given, io)
  const name = fieldsOf(await requestJson(target, { path: `/v1/node/${id}` })).text('Name')
  return { id, name: /^\w[\w.-]{0,49}$/.test(name) ? name : id }
}

/** RFC 3339; null for a number that is no time. */
function timeText(atMs: number): string | null {
  const time = new Date(atMs)
  return Number.isNaN(time.getTime()) ? null : time.toISOString()
}

/** Nodes of the same name are in the bundle by their IDs. */
function distinct(nodes: readonly DebugNode[]): DebugNode[] {
  const unique = [...new Map(nodes.map((node) => [node.id, node])).values()]
  const byName = Map.groupBy(unique, ({ name }) => name.toLowerCase())
  return unique.map(({ id, name }) => ({ id, name: byName.get(name.toLowerCase())?.length === 1 ? name : id }))
}

/** Samples of one source. */
interface SampleSeries {
  readonly source: JsonSource
  readonly samples: unknown[]
  bytes: number
  /** Of the last request that failed. */
  error: string
}

function fileOf({ description, path, request }: JsonSource): BundleFile {
  return { path, description, source: request }
}

class DebugCapture {
  readonly #target: AgentTarget
  readonly #bundle: DebugBundle
  readonly #logLevel: string
  readonly #ended = new AbortController()

  constructor(target: AgentTarget, bundle: DebugBundle, logLevel: string) {
    this.#target = target
    this.#bundle = bundle
    this.#logLevel = logLevel
  }

  /** Resolves to true if the user ended it early. */
  async run(
    nodes: readonly DebugNode[],
    { duration: durationMs, interval: intervalMs }: { readonly duration: number; readonly interval: number },
  ): Promise<boolean> {
    const { signal } = this.#ended
    let isInterrupted = false
    const interrupt = () => {
      isInterrupted = true
      this.#ended.abort()
    }
    process.once('SIGINT', interrupt)
    process.once('SIGTERM', interrupt)
    const untilMs = performance.now() + durationMs
    const logs = [
      this.#log('outpost.log', {}),
      ...nodes.map(({ id, name }) => this.#log(`nodes/${name}/outpost.log`, { node_id: id })),
    ]
    const sampled = [
      ...SAMPLED_SOURCES,
      ...nodes.flatMap(({ id, name }) =>
        NODE_SAMPLED_SOURCES.map((source) => ({
          ...source,
          path: `nodes/${name}/${source.path}`,
          query: { node_id: id },
        })),
      ),
    ]
    const series = sampled.map((source) => ({ source, samples: [] as unknown[], bytes: 0, error: '' }))
    await Promise.all([...SERVER_SOURCES.map((source) => this.#once(source)), this.#roster()])
    for (;;) {
      await Promise.all(series.map((each) => this.#sample(each)))
      const leftMs = untilMs - performance.now()
      if (leftMs <= 0 || signal.aborted) break
      await sleep(Math.min(intervalMs, leftMs), undefined, { signal }).catch(() => undefined)
    }
    this.#ended.abort()
    await Promise.all(logs)
    process.off('SIGINT', interrupt)
    process.off('SIGTERM', interrupt)
    for (const { error, samples, source } of series) {
      const file = fileOf(source)
      if (samples.length > 0) this.#bundle.addSamples({ ...file, incomplete: error || undefined }, samples)
      else this.#bundle.addError(file, error)
    }
    return isInterrupted
  }

  async #once(source: JsonSource): Promise<void> {
    const file = fileOf(source)
    try {
      this.#bundle.addJson(file, parseJson(await this.#request(source)))
    } catch (error) {
      if (!(error instanceof CommandError)) throw error
      this.#bundle.addError(file, error.message)
    }
  }

  async #sample(series: SampleSeries): Promise<void> {
    if (series.bytes > SAMPLES_BYTES_MAX) return
    try {
      const body = await this.#request(series.source)
      series.bytes += body.length
      if (series.bytes > SAMPLES_BYTES_MAX) series.error = `limit of ${SAMPLES_BYTES_MAX >> 20} MiB`
      else series.samples.push({ at: new Date().toISOString(), value: parseJson(body) })
    } catch (error) {
      if (!(error instanceof CommandError)) throw error
      series.error = error.message
    }
  }

  async #request({ isStatus = false, query, request }: JsonSource): Promise<string> {
    const response = await openResponse(this.#target, {
      path: request,
      headTimeoutMs: REQUEST_TIMEOUT_MS,
      ...(query && { query }),
    })
    const body = await responseText(response, this.#target)
    const { statusCode = 0 } = response
    if (statusCode === 404 || (statusCode !== 200 && !isStatus)) throw refusalOf(response, body, this.#target)
    return body
  }

  /** Collects the log until the period ends. */
  async #log(path: string, query: Readonly<Record<string, string>>): Promise<void> {
    const file = { path, description: LOG_DESCRIPTION, source: '/v1/agent/monitor' }
    const pieces: Buffer[] = []
    let [bytes, incomplete] = [0, '']
    try {
      const frames = framesOf({
        target: this.#target,
        path: file.source,
        query: { log_level: this.#logLevel, ...query },
        resume: false,
        signal: this.#ended.signal,
        outage: { lost: () => undefined, resumed: () => undefined },
      })
      for await (const { data } of frames) {
        if (!data) continue
        bytes += data.length
        if (bytes > LOG_BYTES_MAX) {
          incomplete = `limit of ${LOG_BYTES_MAX >> 20} MiB`
          break
        }
        pieces.push(data)
      }
    } catch (error) {
      if (!(error instanceof CommandError)) throw error
      incomplete = messageOf(error)
    }
    if (incomplete !== '' && pieces.length === 0) this.#bundle.addError(file, incomplete)
    else this.#bundle.addText({ ...file, incomplete: incomplete || undefined }, Buffer.concat(pieces).toString('utf8'))
  }

  async #roster(): Promise<void> {
    try {
      const nodes = (await listRecords(this.#target, '/v1/nodes', { status_time: true })).map(fieldsOf)
      const query = { namespace: '*', task_states: false }
      const allocations = (await listRecords(this.#target, '/v1/allocations', query)).map(fieldsOf)
      const countBy = (records: typeof nodes, name: string) => {
        const groups = Map.groupBy(records, (record) => record.text(name) || '(none)')
        return Object.fromEntries([...groups].map(([value, all]) => [value, all.length]))
      }
      const notReady = nodes.filter((node) => node.text('Status') !== 'ready').slice(0, NODES_LISTED_MAX)
      this.#bundle.addJson(ROSTER, {
        nodes: {
          total: nodes.length,
          by_status: countBy(nodes, 'Status'),
          by_version: countBy(nodes, 'Version'),
          by_datacenter: countBy(nodes, 'Datacenter'),
          not_ready: notReady.map((node) => ({
            id: node.text('ID'),
            name: node.text('Name'),
            status: node.text('Status'),
            since: timeText(node.number('StatusUpdatedAt') * 1000),
            reason: node.text('StatusDescription'),
          })),
        },
        allocations: { total: allocations.length, by_status: countBy(allocations, 'ClientStatus') },
      })
    } catch (error) {
      if (!(error instanceof CommandError)) throw error
      this.#bundle.addError(ROSTER, error.message)
    }
  }
}
