/**
 * `/v1/agent/monitor`: streams the log of the process from a level that the client selects.
 *
 * Each client has a buffer of `LINES_MAX` lines. A slow client loses lines and never delays the process; the stream reports the number of
 * lost lines every `DROP_REPORT_MS`. The access log has one line when the stream ends, so the stream does not feed itself.
 */
import { HEARTBEAT } from '../platform/stream-frame.ts'
import { Refusal } from '../platform/errors.ts'
import { entryLine, type Level, LEVELS, type LogEntry, type LogSink } from '../platform/log.ts'
import { type Call, type Chunk, handle } from '../platform/operation.ts'
import { type Field, parseBoolean, queryText, queryValue, schema } from '../platform/schema.ts'

const LINES_MAX = 512
const MONITORS_MAX = 16
const HEARTBEAT_MS = 1000
const DROP_REPORT_MS = 3000
/** About one burst of packets; larger frames only delay the reader. */
const CHUNK_BYTES = 49_152

interface MonitorInput {
  readonly log_level: Level
  readonly log_json: boolean
  readonly log_include_location: boolean
  readonly plain: boolean
  readonly node_id: string | undefined
  readonly server_id: string | undefined
}

const level: Field<Level> = {
  in: 'query',
  type: 'string',
  description: 'Lowest level of the lines',
  required: false,
  choices: LEVELS,
  parse(raw, name) {
    const text = queryValue(raw, name) ?? 'info'
    const found = LEVELS.find((known) => known === text.toLowerCase())
    if (found) return found
    throw new Refusal('invalid_request', `Unknown log level: ${text.slice(0, 64).toWellFormed()}`)
  },
}

function flag(description: string, title: string): Field<boolean> {
  return {
    in: 'query',
    type: 'boolean',
    description,
    required: false,
    parse(raw, name) {
      const text = queryValue(raw, name)
      const value = text === undefined ? false : parseBoolean(text)
      if (value !== undefined) return value
      const shown = JSON.stringify((text ?? '').slice(0, 64).toWellFormed())
      const cause = `strconv.ParseBool: parsing ${shown}: invalid syntax`
      throw new Refusal('invalid_request', `Unknown option for ${title}: ${cause}`)
    },
  }
}

const input = schema({
  log_level: level,
  log_include_location: flag('Accepted for compatibility, no effect', 'log_include_location'),
  log_json: flag('Lines as JSON instead of plain text', 'log json'),
  plain: flag('Lines without frames', 'plain'),
  node_id: queryText({ description: 'Node ID; default: this node', fallback: undefined }),
  server_id: queryText({ description: 'ID of the server to monitor; not supported', fallback: undefined }),
})

/** Lines queued for one client. */
class Backlog {
  readonly #entries: LogEntry[] = []
  #dropped = 0
  #resolve: (() => void) | undefined

  readonly add = (entry: LogEntry): void => {
    if (this.#entries.length < LINES_MAX) this.#entries.push(entry)
    else this.#dropped++
    this.wake()
  }

  /** Number of lines dropped since the last call. */
  takeDropped(): number {
    const dropped = this.#dropped
    this.#dropped = 0
    return dropped
  }

  /** Complete lines, about `CHUNK_BYTES` of them; empty if none is queued. */
  take(json: boolean): string {
    let text = ''
    while (text.length < CHUNK_BYTES) {
      const entry = this.#entries.shift()
      if (!entry) break
      text += `${entryLine(entry, json)}\n`
    }
    return text
  }

  /** Resolves when there is a line, when `wake` is called, or after `ms` milliseconds. */
  rest(ms: number): Promise<void> {
    if (this.#entries.length > 0) return Promise.resolve()
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms)
      this.#resolve = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  }

  wake(): void {
    this.#resolve?.()
    this.#resolve = undefined
  }
}

function frame(text: string): Buffer {
  return Buffer.from(`{"Data":"${Buffer.from(text).toString('base64')}","FileEvent":"log"}`)
}

async function* follow(backlog: Backlog, options: MonitorInput, call: Call): AsyncGenerator<Chunk> {
  const framed = !options.plain
  const shown = framed ? frame : (text: string) => Buffer.from(text)
  yield { status: 200, contentType: framed ? 'application/json' : 'text/plain', frames: framed }
  if (framed) yield HEARTBEAT
  let beatAtMs = performance.now() + HEARTBEAT_MS
  let reportAtMs = performance.now() + DROP_REPORT_MS
  while (!call.signal.aborted) {
    const text = backlog.take(options.log_json)
    if (text !== '') yield shown(text)
    const nowMs = performance.now()
    if (nowMs >= reportAtMs) {
      reportAtMs = nowMs + DROP_REPORT_MS
      const dropped = backlog.takeDropped()
      if (dropped > 0) yield shown(droppedLine(dropped, options.log_json))
    }
    if (nowMs >= beatAtMs) {
      beatAtMs = nowMs + HEARTBEAT_MS
      if (framed) yield HEARTBEAT
    }
    if (text === '') await backlog.rest(Math.max(0, beatAtMs - performance.now()))
  }
}

function droppedLine(count: number, json: boolean): string {
  const message = `Monitor dropped ${count} logs during monitor request`
  const entry = { at: new Date().toISOString(), level: 'warn', module: 'outpost.agent', message, fields: {} } as const
  return `${entryLine(entry, json)}\n`
}

function checkTarget({ node_id: node, server_id: server }: MonitorInput, ownNodeId: string): void {
  if (server !== undefined) throw new Refusal('not_found', 'this agent cannot monitor servers: omit server_id')
  requireOwnTarget(node, ownNodeId)
}

/** Throws a Refusal (404) if the node is given and is not that of this process. */
export function requireOwnTarget(node: string | undefined, ownNodeId: string): void {
  if (node === undefined || node === ownNodeId) return
  throw new Refusal('not_found', `Unknown node ${JSON.stringify(node.slice(0, 64).toWellFormed())}`)
}

interface MonitorParts {
  readonly sink: Pick<LogSink, 'listen'>
  readonly nodeId: string
}

export const agentMonitor = handle(
  {
    name: 'agent.monitor',
    summary: "Follow the agent's own log",
    http: ['* /v1/agent/monitor'],
    target: 'node',
    input: {
      fields: input.fields,
      parse(raw) {
        const parsed = input.parse(raw)
        if (parsed.node_id === undefined || parsed.server_id === undefined) return parsed
        throw new Refusal('invalid_request', 'Cannot target node and server simultaneously')
      },
    },
    output: 'stream',
    errorFormat: 'plain',
    endless: () => true,
    // A server without a host has a log as well.
    locate: ({ node_id: nodeId }) => (nodeId === undefined ? undefined : { nodeId }),
    authorize(_input, identity) {
      if (!identity.allowsAgent('read')) throw new Refusal('permission_denied', 'Permission denied')
    },
  },
  (agent: MonitorParts) => {
    let monitors = 0
    async function* monitor(options: MonitorInput, call: Call): AsyncGenerator<Chunk> {
      if (monitors >= MONITORS_MAX) {
        throw new Refusal('too_many', `too many log monitors (limit ${MONITORS_MAX}), try again later`)
      }
      const backlog = new Backlog()
      const leave = agent.sink.listen(options.log_level, backlog.add)
      const onAbort = () => backlog.wake()
      call.signal.addEventListener('abort', onAbort)
      monitors++
      try {
        yield* follow(backlog, options, call)
      } finally {
        monitors--
        call.signal.removeEventListener('abort', onAbort)
        leave()
      }
    }
    return {
      run(options, call) {
        checkTarget(options, agent.nodeId)
        return monitor(options, call)
      },
    }
  },
)
