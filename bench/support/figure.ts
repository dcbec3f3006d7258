/**
 * The rows of a benchmark, how they are printed, and how a single benchmark is run: `node bench/NAME.ts`.
 *
 * Exit code: 1 if a response was wrong, short or missing, 0 otherwise. Speed is never a failure.
 */
import { writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { median } from './measure.ts'

/** A wrong or short response, which makes the measurement invalid. */
export class WrongContent extends Error {}

export interface Row {
  readonly figure: string
  readonly unit: string
  /** One value per run; the median is printed. */
  readonly ours: readonly number[]
  readonly peer?: { readonly name: string; readonly runs: readonly number[] } | undefined
  readonly cpu?: { readonly unit: string; readonly ours: readonly number[]; readonly peer?: readonly number[] }
  readonly note?: string
}

export interface Options {
  /** Fewer and smaller runs, to check that everything works. The results are not meaningful. */
  readonly quick: boolean
  /** Allowed to install nginx. */
  readonly install: boolean
  readonly rounds: number
}

export interface Report {
  readonly rows: readonly Row[]
  /** Why a response was wrong. */
  readonly failure?: string
}

export function plainNumber(value: number): string {
  if (Number.isNaN(value)) return '-'
  const digits = value === 0 || Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : Math.abs(value) >= 1 ? 2 : 3
  return value.toFixed(digits)
}

const show = (values: readonly number[]) => plainNumber(median(values))

function cells(row: Row): string[] {
  const { peer, cpu } = row
  const ratio = peer ? median(row.ours) / median(peer.runs) : Number.NaN
  return [
    row.figure,
    `${show(row.ours)} ${row.unit}`,
    peer ? `${show(peer.runs)} ${peer.name}` : '',
    Number.isFinite(ratio) ? `${ratio.toFixed(2)} x` : '',
    cpu ? `${show(cpu.ours)}${cpu.peer ? ` / ${show(cpu.peer)}` : ''} ${cpu.unit}` : '',
    spreadOf(row.ours) + (row.note ?? ''),
  ]
}

function spreadOf(runs: readonly number[]): string {
  return runs.length < 2 ? '' : `[${plainNumber(Math.min(...runs))} .. ${plainNumber(Math.max(...runs))}] `
}

const TITLES = ['benchmark', 'outpost', 'peer', 'ratio', 'CPU outpost / peer', 'lowest .. highest, notes']

export function tableOf(rows: readonly Row[]): string {
  const table = [TITLES, ...rows.map(cells)]
  const widths = TITLES.map((_, column) => Math.max(...table.map((row) => row[column]?.length ?? 0)))
  const lines = table.map((row) => row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  '))
  return `${lines.map((text) => text.trimEnd()).join('\n')}\n`
}

export function readOptions(args: readonly string[]): Options & { json: string | undefined; only: string[] } {
  const { values } = parseArgs({
    args: [...args],
    options: {
      quick: { type: 'boolean', default: false },
      install: { type: 'boolean', default: false },
      rounds: { type: 'string' },
      json: { type: 'string' },
      only: { type: 'string', default: '' },
    },
  })
  const rounds = Number(values.rounds ?? (values.quick ? 2 : 5))
  if (!Number.isSafeInteger(rounds) || rounds < 1) throw new Error('--rounds must be a whole number from 1')
  const only = values.only.split(',').filter((name) => name !== '')
  return { quick: values.quick, install: values.install, rounds, json: values.json, only }
}

/** Runs one benchmark with the options of the command line. Prints its table, or writes JSON if requested. */
export async function alone(figure: (options: Options) => Promise<Row[]>): Promise<void> {
  const options = readOptions(process.argv.slice(2))
  let report: Report
  try {
    report = { rows: await figure(options) }
  } catch (error) {
    if (!(error instanceof WrongContent)) throw error
    report = { rows: [], failure: error.message }
  }
  if (options.json === undefined) process.stdout.write(tableOf(report.rows))
  else writeFileSync(options.json, `${JSON.stringify(report, undefined, 1)}\n`)
  if (report.failure !== undefined) process.stderr.write(`WRONG: ${report.failure}\n`)
  // Sockets that a peer still holds open must not keep the process alive.
  process.exit(report.failure === undefined ? 0 : 1)
}
