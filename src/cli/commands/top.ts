/** `outpost top`: the resource usage of a fleet, live. */
import { agentOf, agentOptions, jsonOption, printJson } from '../client/agent-target.ts'
import { findNode } from '../client/id-prefix.ts'
import { CommandError, type CommandIo, defineCommand } from '../framework/define-command.ts'
import { choice, duration, flag, text, UsageError } from '../framework/options.ts'
import { escapeLine } from '../framework/terminal-escapes.ts'
import { hasScreen, LiveScreen } from '../output/live-screen.ts'
import { humanSeconds } from '../output/table.ts'
import { fitted, terminalOf } from '../output/terminal.ts'
import { type FleetKind, FleetSampler, ROUND_CALLS_MAX } from './top/fleet-sampler.ts'
import { type RowOrder, SORT_KEYS, type SortKey, sortKeysOf, sortRows, topJson, topTable } from './top/top-table.ts'

export const command = defineCommand({
  name: 'top',
  summary: 'Show the resource usage of nodes or tasks live',
  details: [
    'Shows nodes, or with "tasks" the tasks of running allocations, of the addressed server or agent. The CPU',
    'of a node is a percentage of all its cores; the CPU of a task is a percentage of one core. Disk is the file',
    'system of the allocations. Rows without a sample come last.',
    '',
    `A round sends at most ${ROUND_CALLS_MAX} requests, 16 at a time, oldest samples first: with 1,000 nodes each row is sampled`,
    'every fourth round. The first line shows the number of sampled rows and the age of the oldest.',
    '',
    'Keys: q quit; s next sort order; c m d n sort by CPU, memory, disk, name; r reverse; arrows, Page Up',
    'and Page Down scroll; Home scroll to the first row; Space refresh now.',
    '',
    'Without a terminal, with TERM=dumb, or with -once or -json, samples every row once and prints one table.',
    'Requires node:read and, for tasks, read-job in the namespace.',
    '',
    'Examples:',
    '  outpost top',
    '  outpost top -sort memory -job web tasks',
  ].join('\n'),
  options: {
    sort: choice({ placeholder: 'KEY', help: 'Sort order', choices: SORT_KEYS, shownDefault: 'cpu' }),
    reverse: flag('Reverse the order'),
    node: text({ placeholder: 'NODE', help: 'Filter by node name or ID prefix', fallback: undefined }),
    job: text({ placeholder: 'JOB', help: 'Filter tasks by job', fallback: undefined }),
    namespace: text({ placeholder: 'NAME', help: 'Filter tasks by namespace', fallback: undefined }),
    interval: duration({ help: 'Time between rounds', fallback: '2s', minMs: 500 }),
    once: flag('Print one table and exit'),
    verbose: flag('Print full IDs'),
    json: jsonOption,
    ...agentOptions,
  },
  operands: { shown: '[nodes|tasks]', min: 0, max: 1, choices: ['nodes', 'tasks'] },
  async run(values, [given = 'nodes'], io) {
    const kind = kindOf(given)
    const key = values.sort ?? 'cpu'
    if (!sortKeysOf(kind).includes(key)) throw new UsageError(`option -sort: tasks have no ${key} usage of their own`)
    if (kind === 'nodes' && (values.job !== undefined || values.namespace !== undefined)) {
      throw new UsageError('options -job and -namespace require "tasks"')
    }
    const target = agentOf(values, io)
    const nodeId = values.node === undefined ? undefined : await findNode(target, values.node, io)
    const sampler = new FleetSampler(target, { kind, nodeId, job: values.job, namespace: values.namespace ?? '*' })
    const order = { key, isReversed: values.reverse }
    if (!values.once && !values.json && hasScreen(io.env)) {
      const view = { kind, order, isVerbose: values.verbose, origin: target.url.origin }
      return new LiveTop(sampler, view, values.interval, io).run()
    }
    await sampler.round(new AbortController().signal, Number.POSITIVE_INFINITY)
    const rows = sortRows(sampler.rows(), order)
    if (values.json) {
      printJson(
        rows.map((row) => topJson(kind, row)),
        io,
      )
    } else if (rows.length === 0) io.out(`No ${kind}\n`)
    else io.out(fitted(topTable(kind, rows, values.verbose), terminalOf(1, io.env, values['no-color'])))
    return 0
  },
})

/** Throws UsageError. */
function kindOf(given: string): FleetKind {
  if (given === 'nodes' || given === 'tasks') return given
  throw new UsageError(`unexpected argument ${JSON.stringify(given)}: expected nodes or tasks`)
}

interface LiveView {
  readonly kind: FleetKind
  readonly order: RowOrder
  readonly isVerbose: boolean
  readonly origin: string
}

/** Lines above the rows: status, column names. Below: keys. */
const HEAD_LINES = 2
const FOOT_LINES = 1

class LiveTop {
  readonly #sampler: FleetSampler
  readonly #view: LiveView
  readonly #intervalMs: number
  readonly #screen: LiveScreen
  readonly #ended = new AbortController()
  #order: RowOrder
  #firstRow = 0
  /** Error of the last round; empty if it succeeded. */
  #fault = ''
  #wake: () => void = () => undefined

  constructor(sampler: FleetSampler, view: LiveView, intervalMs: number, io: CommandIo) {
    this.#sampler = sampler
    this.#view = view
    this.#intervalMs = intervalMs
    this.#order = view.order
    this.#screen = new LiveScreen(io, { onKey: (key) => this.#press(key), onResize: () => this.#draw() })
  }

  /** Resolves to the exit code when the user quits. Throws CommandError if the first round fails. */
  async run(): Promise<number> {
    const { signal } = this.#ended
    const end = () => this.#end()
    process.once('SIGTERM', end)
    process.once('SIGHUP', end)
    this.#screen.open()
    try {
      this.#draw()
      for (let isFirst = true; !signal.aborted; isFirst = false) {
        await this.#round(isFirst)
        this.#draw()
        await this.#pause()
      }
      return 0
    } finally {
      this.#screen.close()
      process.off('SIGTERM', end)
      process.off('SIGHUP', end)
    }
  }

  async #round(isFirst: boolean): Promise<void> {
    try {
      await this.#sampler.round(this.#ended.signal)
      this.#fault = ''
    } catch (error) {
      if (this.#ended.signal.aborted) return
      if (!(error instanceof CommandError) || isFirst) throw error
      this.#fault = error.message
    }
  }

  /** Resolves when the next round is due, when a key starts it, or when the user quits. */
  #pause(): Promise<void> {
    if (this.#ended.signal.aborted) return Promise.resolve()
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, this.#intervalMs)
      this.#wake = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  }

  #end(): void {
    this.#ended.abort()
    this.#wake()
  }

  #press(key: string): void {
    const keys = sortKeysOf(this.#view.kind)
    const chosen = keys.find((each) => each.startsWith(key))
    if (key === 'q' || key === 'interrupt') return this.#end()
    if (key === 's') this.#sortBy(keys[(keys.indexOf(this.#order.key) + 1) % keys.length] ?? 'cpu')
    else if (key.length === 1 && chosen) this.#sortBy(chosen)
    else if (key === 'r') this.#order = { ...this.#order, isReversed: !this.#order.isReversed }
    else if (key === 'down') this.#firstRow++
    else if (key === 'up') this.#firstRow--
    else if (key === 'page down') this.#firstRow += this.#pageRows
    else if (key === 'page up') this.#firstRow -= this.#pageRows
    else if (key === 'home') this.#firstRow = 0
    else if (key === ' ') this.#wake()
    this.#draw()
  }

  #sortBy(key: SortKey): void {
    this.#order = { key, isReversed: false }
    this.#firstRow = 0
  }

  get #pageRows(): number {
    return Math.max(1, this.#screen.rows - HEAD_LINES - FOOT_LINES)
  }

  #draw(): void {
    const rows = sortRows(this.#sampler.rows(), this.#order)
    const pageRows = this.#pageRows
    this.#firstRow = Math.max(0, Math.min(this.#firstRow, rows.length - pageRows))
    const [columns = '', ...lines] = topTable(this.#view.kind, rows, this.#view.isVerbose).trimEnd().split('\n')
    const shown = lines.slice(this.#firstRow, this.#firstRow + pageRows)
    const blank = Array.from({ length: pageRows - shown.length }, () => '')
    this.#screen.draw([this.#statusLine(rows.length), columns, ...shown, ...blank, this.#keyLine(rows.length)], 1)
  }

  #statusLine(count: number): string {
    if (this.#fault !== '') return `outpost top: retrying: ${escapeLine(this.#fault)}`
    const { kind, origin } = this.#view
    const { oldestMs, reachable, sampled } = this.#sampler.coverage()
    const what = kind === 'nodes' ? 'nodes' : 'allocations'
    const order = `by ${this.#order.key}${this.#order.isReversed ? ' reversed' : ''}`
    const age = sampled === 0 ? '' : `, oldest ${humanSeconds(oldestMs / 1000)}`
    return `outpost top: ${count} ${kind} at ${origin}, ${order}; ${sampled} of ${reachable} ${what} sampled${age}`
  }

  #keyLine(count: number): string {
    const sorts = sortKeysOf(this.#view.kind).map((key) => `${key.charAt(0)} ${key}`)
    const position = count === 0 ? '' : `  rows from ${this.#firstRow + 1}`
    return `q quit  s sort  ${sorts.join('  ')}  r reverse  arrows scroll${position}`
  }
}
