/**
 * `outpost operator dr drill`: a copy of a secondary is promoted on another port, read from and removed. The copy is the
 * daemon's work (`Parts.beginDrill`); this file walks through it and says what each step took.
 */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { type AgentTarget, agentTarget } from '../../../client/agent-target.ts'
import { CommandError, type CommandIo, defineCommand } from '../../../framework/command-shape.ts'
import { flag, integer, text, texts, UsageError } from '../../../framework/options.ts'
import type { Drill, DrillOptions } from '../../../framework/parts.ts'
import { cleanPath, coreOf, coreOptions } from '../../../core/core-access.ts'
import { typedSecrets } from '../../../input/typed-secret.ts'
import { type ReadOutcome, readPaths, samplePaths } from './drill-reads.ts'
import { Steps } from './steps.ts'

const PORT_MAX = 65_535
const SAMPLE_MAX = 10_000
const INTERRUPTED = 130

const OPTIONS = {
  config: texts('FILE|DIR', "Configuration of the secondary's server, HCL or JSON"),
  dir: text({
    placeholder: 'DIR',
    help: 'Where the copy is put',
    fallback: undefined,
    shownDefault: 'beside the database',
  }),
  port: integer({ placeholder: 'N', help: 'Port of the copy, on loopback', fallback: 0, min: 0, max: PORT_MAX }),
  path: texts('PATH', 'A path to read, as "outpost read" takes it: kv/data/app'),
  'path-file': text({ placeholder: 'FILE', help: 'Paths to read, a line each', fallback: undefined }),
  sample: integer({
    placeholder: 'N',
    help: 'How many secrets are read where no path is given, at random',
    fallback: 20,
    min: 1,
    max: SAMPLE_MAX,
  }),
  'with-token': flag('Read with your own token of the primary, instead of a root token of the copy'),
  hold: flag('Serve the copy until Ctrl-C, after the reads'),
  ...coreOptions,
}

export const command = defineCommand({
  name: 'operator dr drill',
  summary: 'Promote a copy of this DR secondary on another port, read from it, and remove it',
  details: [
    "Runs on the secondary's host as the user of its server. Replication goes on, and nothing outside the",
    'copy is changed: it has no link, no audit device, no engine that reaches other systems, and its leases',
    'do not end. It is opened with key shares of the primary, or with the static key of the configuration.',
    'Values are never shown. The copy is removed at the end, also after Ctrl-C; what a killed drill has',
    'left is removed by the next one. Exit code 1: a step failed, or a path could not be read.',
    '',
    'Example: outpost operator dr drill -config /etc/outpost-server -path kv/data/app - < shares.txt',
  ].join('\n'),
  options: OPTIONS,
  operands: { shown: '[SHARE|-]', min: 0, max: 1, missing: '' },
  async run(values, [given], io, parts) {
    if (values.config.length === 0)
      throw new UsageError("give -config FILE, the configuration of the secondary's server")
    if (!parts.beginDrill) throw new CommandError('this program was built without the server')
    const wanted = [...values.path, ...linesOf(values['path-file'])].map(cleanPath)
    const caller = values['with-token'] ? tokenOf(coreOf(values, io).target) : undefined
    const stop = new AbortController()
    // The second one ends the process at once; the copy is removed then, too.
    const leave = () => {
      if (stop.signal.aborted) process.exit(INTERRUPTED)
      stop.abort()
      // Shares that are still waited for would keep the process.
      process.stdin.destroy()
    }
    const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
    for (const signal of signals) process.on(signal, leave)
    try {
      const begin = parts.beginDrill.bind(parts)
      return await walk({ ...values, given, wanted, caller, stop, begin, directory: values.dir }, io)
    } catch (error) {
      if (!stop.signal.aborted) throw error
      throw new CommandError('the drill was ended, its copy is removed', INTERRUPTED, { cause: error })
    } finally {
      for (const signal of signals) process.off(signal, leave)
    }
  },
})

interface Wanted extends DrillOptions {
  readonly given: string | undefined
  /** Paths; a sample where there are none. */
  readonly wanted: readonly string[]
  readonly sample: number
  /** The token to read with; the copy's own root token where there is none. */
  readonly caller: string | undefined
  readonly hold: boolean
  readonly stop: AbortController
  readonly begin: (options: DrillOptions, signal: AbortSignal) => Promise<Drill>
}

async function walk(wanted: Wanted, io: CommandIo): Promise<number> {
  const { signal } = wanted.stop
  const steps = new Steps((line) => io.out(line), signal)
  const drill = await steps.run(
    () => wanted.begin(wanted, signal),
    ({ directory, removedLeftover, space }) => {
      const left = removedLeftover ? '; the copy of a drill that was killed was removed' : ''
      const { freeBytes, leftFreeBytes, neededBytes } = space
      return `the copy needs up to ${neededBytes} bytes in ${directory}: ${freeBytes} are free, ${leftFreeBytes} must stay so${left}`
    },
  )
  let outcome: Outcome = { isGood: false }
  try {
    outcome = await onCopy(drill, wanted, steps, io)
  } finally {
    await steps.finish(() => drill.close(), 'the copy is removed')
  }
  io.out(`${outcome.isGood ? 'The drill has succeeded' : `The drill has failed: ${outcome.why ?? ''}`}\n`)
  return outcome.isGood ? 0 : 1
}

interface Outcome {
  readonly isGood: boolean
  readonly why?: string
}

async function onCopy(drill: Drill, wanted: Wanted, steps: Steps, io: CommandIo): Promise<Outcome> {
  await steps.run(
    () => drill.copy(),
    ({ bytes, entries, epoch, sequence }) =>
      `copied ${entries} entries of ${bytes} bytes, as of position ${sequence}, all with the right checksum; promoted to epoch ${epoch}`,
  )
  const shares = await steps.run(
    () => drill.open(),
    (needed) => (needed === 0 ? "opened with the machine's static key" : `it opens with ${needed} key shares`),
  )
  if (shares > 0) {
    const gathered = await steps.wait(sharesOf(shares, wanted.given, io))
    await steps.run(
      () => unseal(drill, gathered),
      () => 'unsealed with key shares of the primary',
    )
  }
  const { token, url } = await steps.run(
    () => drill.serve(),
    (served) => `serves reads at ${served.url}`,
  )
  const env = { OUTPOST_ADDR: url, OUTPOST_TOKEN: wanted.caller ?? token }
  const core = { target: agentTarget(env, 'secrets'), headers: { 'X-Vault-Request': 'true' } }
  const paths = await pathsOf(core, wanted, steps)
  const reads = await readPaths(core, paths, steps)
  const found = await steps.run(
    () => drill.integrity(),
    (warnings) => (warnings.length === 0 ? 'all entries are as they were last written' : warnings.join('; ')),
  )
  if (wanted.hold) await hold(url, wanted, io)
  return judged(reads, found)
}

function judged(reads: readonly ReadOutcome[], found: readonly string[]): Outcome {
  const bad = reads.filter(({ isGood }) => !isGood).length
  if (reads.length === 0)
    return { isGood: false, why: 'nothing was read: there is no secret to sample, name paths with -path' }
  if (bad > 0) return { isGood: false, why: `${bad} of ${reads.length} paths could not be read` }
  return found.length === 0 ? { isGood: true } : { isGood: false, why: 'the copy is not whole' }
}

type Core = Parameters<typeof readPaths>[0]

async function pathsOf(core: Core, { sample, wanted }: Wanted, steps: Steps): Promise<readonly string[]> {
  if (wanted.length > 0) return wanted
  return steps.run(
    () => samplePaths(core, sample, steps.signal),
    (found) => `secrets to sample: ${found.length}`,
  )
}

async function hold(url: string, { stop }: Wanted, io: CommandIo): Promise<void> {
  io.err(`The copy serves reads at ${url} until Ctrl-C\n`)
  if (!stop.signal.aborted) await once(stop.signal, 'abort')
  stop.abort()
}

/** Throws CommandError for shares that do not open it. */
async function unseal(drill: Drill, shares: readonly string[]): Promise<void> {
  let isOpen = false
  for (const share of shares) isOpen ||= await drill.unseal(share)
  if (!isOpen) throw new CommandError('the key shares do not open the copy')
}

async function sharesOf(needed: number, given: string | undefined, io: CommandIo): Promise<readonly string[]> {
  const shares: string[] = []
  while (shares.length < needed) {
    const prompt = `Key share ${shares.length + 1} of ${needed} (will be hidden): `
    const before = shares.length
    if (before === 0 || given === undefined) {
      shares.push(...(await typedSecrets(given, { what: 'a key share', prompt }, io)))
    }
    if (shares.length === before)
      throw new CommandError(`${needed} key shares of the primary are needed, ${before} came`)
  }
  return shares.slice(0, needed)
}

function linesOf(file: string | undefined): string[] {
  if (file === undefined) return []
  return readFileSync(file, 'utf8')
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '' && !line.startsWith('#'))
}

function tokenOf({ token }: AgentTarget): string {
  if (token === undefined)
    throw new UsageError('-with-token: set OUTPOST_TOKEN to a token of the primary, and OUTPOST_ADDR to go with it')
  return token
}
