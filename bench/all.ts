/**
 * Runs all benchmarks, each in its own process, and prints one table. `--only NAME,NAME` selects benchmarks, `--json
 * FILE` also writes JSON, `--quick` only checks that they work, `--install` installs nginx if it is missing.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { cpus, release, tmpdir, totalmem } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { type Report, readOptions, type Row, tableOf } from './support/figure.ts'

const FIGURES = [
  'cat',
  'stream',
  'grep',
  'search',
  'websocket',
  'forward',
  'readat',
  'small-gets',
  'list-verb',
  'follow-latency',
  'rotation',
  'tail-lines',
  'fanout',
  'roster',
  'store',
  'merkle',
  'dr-lag',
  'ha',
  'ha-takeover',
  'secrets',
  'audit',
  'leases',
  'cloud',
  'logins',
  'totp',
  'mfa',
  'start',
  'cli',
  'ui',
]
/** Programs that print their own lines. */
const PRINTERS = ['stats', 'supervisor']

interface Outcome {
  readonly name: string
  readonly rows: readonly Row[]
  readonly lines: readonly string[]
  readonly failure?: string
}

const options = readOptions(process.argv.slice(2))
const flags = [...(options.quick ? ['--quick'] : []), ...(options.install ? ['--install'] : [])]

function machine(): Record<string, string | number> {
  const [first] = cpus()
  return {
    cpu: first?.model.trim() ?? 'unknown',
    cores: cpus().length,
    memoryMiB: Math.round(totalmem() / 1024 ** 2),
    kernel: release(),
    node: process.version,
  }
}

async function figure(name: string): Promise<Outcome> {
  const file = join(tmpdir(), `outpost-bench-${process.pid}-${name}.json`)
  const args = [join(import.meta.dirname, `${name}.ts`), '--json', file, '--rounds', String(options.rounds), ...flags]
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit'] })
  try {
    const [code] = await once(child, 'exit')
    if (code !== 0 && code !== 1) return { name, rows: [], lines: [], failure: `the program ended with ${code}` }
    const { rows, failure } = JSON.parse(readFileSync(file, 'utf8')) as Report
    return { name, rows, lines: [], ...(failure === undefined ? {} : { failure }) }
  } catch {
    return { name, rows: [], lines: [], failure: 'the program failed without a report' }
  } finally {
    rmSync(file, { force: true })
  }
}

async function printer(name: string): Promise<Outcome> {
  const args = [join(import.meta.dirname, `${name}.ts`), ...(options.quick && name === 'stats' ? ['1'] : [])]
  const env = options.quick ? { ...process.env, BENCH_MB: '200' } : process.env
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'], env })
  const [printed, [code]] = await Promise.all([text(child.stdout), once(child, 'exit')])
  const lines = printed.trimEnd().split('\n')
  return { name, rows: [], lines, ...(code === 0 ? {} : { failure: `the program ended with ${code}` }) }
}

const unknown = options.only.filter((name) => ![...FIGURES, ...PRINTERS].includes(name))
if (unknown.length > 0) {
  process.stderr.write(`unknown benchmark ${unknown.join(', ')}, known are ${[...FIGURES, ...PRINTERS].join(', ')}\n`)
  process.exit(2)
}
const wanted = (name: string) => options.only.length === 0 || options.only.includes(name)
const facts = machine()
process.stdout.write(
  `${Object.entries(facts)
    .map(([name, value]) => `${name}: ${value}`)
    .join('   ')}\n\n`,
)

const outcomes: Outcome[] = []
for (const name of [...FIGURES, ...PRINTERS].filter(wanted)) {
  process.stderr.write(`${name} ...\n`)
  outcomes.push(FIGURES.includes(name) ? await figure(name) : await printer(name))
}
process.stdout.write(tableOf(outcomes.flatMap(({ rows }) => rows)))
for (const { name, lines } of outcomes) {
  if (lines.length > 0) process.stdout.write(`\n${name}\n${lines.map((line) => `  ${line}\n`).join('')}`)
}
const wrong = outcomes.filter(({ failure }) => failure !== undefined)
for (const { name, failure } of wrong) process.stdout.write(`\nWRONG: ${name}: ${failure}\n`)
if (options.json !== undefined) {
  const record = { at: new Date().toISOString(), machine: facts, quick: options.quick, outcomes }
  writeFileSync(options.json, `${JSON.stringify(record, undefined, 1)}\n`)
}
process.exitCode = wrong.length > 0 ? 1 : 0
