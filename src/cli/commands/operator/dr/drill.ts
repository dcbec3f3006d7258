/**
 * `outpost operator dr drill`: promotes a copy of a secondary on another port, reads from it and removes it. The daemon creates the
 * copy (`DaemonServices.beginDrill`); this file runs and reports the steps.
 */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { type AgentTarget, agentTarget } from '../../../client/agent-target.ts'
import { CommandError, type CommandIo, defineCommand } from '../../../framework/define-command.ts'
import { flag, integer, text, texts, UsageError } from '../../../framework/options.ts'
import type { Drill, DrillOptions } from '../../../framework/services.ts'
import { cleanPath, type CoreAccess, coreOf, coreOptions } from '../../../core/core-access.ts'
import { OPERANDS_MAX, readSecrets, secretOperand } from '../../../input/secret-input.ts'
import { readPaths, type ReadResult, samplePaths } from './drill-reads.ts'
import { TimedSteps } from './progress.ts'

const PORT_MAX = 65_535
const SAMPLE_MAX = 10_000
const INTERRUPTED = 130

const OPTIONS = {
  config: texts('FILE|DIR', 'Configuration of this secondary'),
  dir: text({
    placeholder: 'DIR',
    help: 'Directory of the copy',
    fallback: undefined,
    shownDefault: 'beside the database',
  }),
  port: integer({
    placeholder: 'N',
    help: 'Loopback port of the copy; 0 selects a free port',
    fallback: 0,
    min: 0,
    max: PORT_MAX,
  }),
  path: texts('PATH', 'Read a path such as kv/data/app'),
  'path-file': text({ placeholder: 'FILE', help: 'File with paths to read', fallback: undefined }),
  sample: integer({
    placeholder: 'N',
    help: 'Number of random secrets to read without -path',
    fallback: 20,
    min: 1,
    max: SAMPLE_MAX,
  }),
  'with-token': flag('Read with OUTPOST_TOKEN instead of a root token'),
  hold: flag('Serve the copy until Ctrl-C after the reads'),
  ...coreOptions,
}

export const command = defineCommand({
  name: 'operator dr drill',
  summary: 'Test the promotion of a copy of this DR secondary',
  details: [
    'Promotes a copy of the database on another port, reads secrets from it and removes it. Run it on the host',
    'of the secondary as the user of its server. Replication continues, and nothing outside the copy changes:',
    'the copy does not replicate, has no audit devices and no engines that reach other systems, and its leases',
    'do not expire. It is unsealed with key shares of the primary or with the static key of the configuration.',
    'Values are not printed. The copy is removed at the end, even after Ctrl-C; if a drill was killed, the next',
    'drill removes its copy. Exit code 1: a step failed, or a path could not be read.',
    '',
    'Example: outpost operator dr drill -config /etc/outpost-server -path kv/data/app - < shares.txt',
  ].join('\n'),
  options: OPTIONS,
  operands: { shown: '[@FILE|-]', min: 0, max: OPERANDS_MAX },
  async run(values, operands, io, services) {
    const given = secretOperand(operands, 'key share')
    if (values.config.length === 0)
      throw new UsageError('missing -config FILE: the configuration of the server of the secondary')
    if (!services.beginDrill) throw new CommandError('this build does not contain the server')
    const paths = [...values.path, ...linesOf(values['path-file'])].map(cleanPath)
    const token = values['with-token'] ? tokenOf(coreOf(values, io).target) : undefined
    const stop = new AbortController()
    // A second signal ends the process at once; an exit handler removes the copy.
    const leave = () => {
      if (stop.signal.aborted) process.exit(INTERRUPTED)
      stop.abort()
      // A read of key shares would keep the process alive.
      process.stdin.destroy()
    }
    const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
    for (const signal of signals) process.on(signal, leave)
    try {
      const begin = services.beginDrill.bind(services)
      return await runDrill({ ...values, given, paths, token, stop, begin, directory: values.dir }, io)
    } catch (error) {
      if (!stop.signal.aborted) throw error
      throw new CommandError('drill interrupted, its copy was removed', INTERRUPTED, { cause: error })
    } finally {
      for (const signal of signals) process.off(signal, leave)
    }
  },
})

interface DrillRun extends DrillOptions {
  /** `@FILE` or `-`; undefined for a prompt. */
  readonly given: string | undefined
  /** Empty: a sample is read. */
  readonly paths: readonly string[]
  readonly sample: number
  /** Undefined: the root token of the copy. */
  readonly token: string | undefined
  readonly hold: boolean
  readonly stop: AbortController
  readonly begin: (options: DrillOptions, signal: AbortSignal) => Promise<Drill>
}

async function runDrill(run: DrillRun, io: CommandIo): Promise<number> {
  const { signal } = run.stop
  const steps = new TimedSteps((line) => io.out(line), signal)
  const drill = await steps.run(
    () => run.begin(run, signal),
    ({ directory, removedLeftover, space }) => {
      const leftover = removedLeftover ? '; removed the copy of a killed drill' : ''
      const { freeBytes, leftFreeBytes, neededBytes } = space
      return `the copy needs up to ${neededBytes} bytes in ${directory}: ${freeBytes} free, ${leftFreeBytes} must stay free${leftover}`
    },
  )
  let result: DrillResult = { isGood: false }
  try {
    result = await testCopy(drill, run, steps, io)
  } finally {
    await steps.finish(() => drill.close(), 'removed the copy')
  }
  io.out(`${result.isGood ? 'The drill succeeded' : `The drill failed: ${result.reason ?? ''}`}\n`)
  return result.isGood ? 0 : 1
}

interface DrillResult {
  readonly isGood: boolean
  readonly reason?: string
}

async function testCopy(drill: Drill, run: DrillRun, steps: TimedSteps, io: CommandIo): Promise<DrillResult> {
  await steps.run(
    () => drill.copy(),
    ({ bytes, entries, epoch, sequence }) =>
      `copied ${entries} entries (${bytes} bytes) at position ${sequence}, checksums verified; promoted to epoch ${epoch}`,
  )
  const shares = await steps.run(
    () => drill.open(),
    (required) => (required === 0 ? 'unsealed with the static key' : `${required} key shares required`),
  )
  if (shares > 0) {
    const keyShares = await steps.wait(readShares(shares, run.given, io))
    await steps.run(
      () => unseal(drill, keyShares),
      () => 'unsealed with key shares of the primary',
    )
  }
  const { token, url } = await steps.run(
    () => drill.serve(),
    (copy) => `serving reads at ${copy.url}`,
  )
  const env = { OUTPOST_ADDR: url, OUTPOST_TOKEN: run.token ?? token }
  const core = { target: agentTarget(env, 'secrets'), headers: { 'X-Vault-Request': 'true' } }
  const paths = await pathsOf(core, run, steps)
  const reads = await readPaths(core, paths, steps)
  const faults = await steps.run(
    () => drill.integrity(),
    (found) => (found.length === 0 ? 'integrity check passed' : found.join('; ')),
  )
  if (run.hold) await hold(url, run, io)
  return resultOf(reads, faults)
}

function resultOf(reads: readonly ReadResult[], faults: readonly string[]): DrillResult {
  const failed = reads.filter(({ isGood }) => !isGood).length
  if (reads.length === 0) return { isGood: false, reason: 'no secret to read: use -path' }
  if (failed > 0) return { isGood: false, reason: `${failed} of ${reads.length} paths could not be read` }
  return faults.length === 0 ? { isGood: true } : { isGood: false, reason: 'the copy failed the integrity check' }
}

async function pathsOf(core: CoreAccess, { paths, sample }: DrillRun, steps: TimedSteps): Promise<readonly string[]> {
  if (paths.length > 0) return paths
  return steps.run(
    () => samplePaths(core, sample, steps.signal),
    (found) => `sampled ${found.length} secrets`,
  )
}

async function hold(url: string, { stop }: DrillRun, io: CommandIo): Promise<void> {
  io.err(`Serving reads of the copy at ${url} until Ctrl-C\n`)
  if (!stop.signal.aborted) await once(stop.signal, 'abort')
  stop.abort()
}

/** Throws CommandError for shares that do not unseal the copy. */
async function unseal(drill: Drill, shares: readonly string[]): Promise<void> {
  let isOpen = false
  for (const share of shares) isOpen ||= await drill.unseal(share)
  if (!isOpen) throw new CommandError('the key shares do not unseal the copy')
}

async function readShares(required: number, given: string | undefined, io: CommandIo): Promise<readonly string[]> {
  const shares: string[] = []
  while (shares.length < required) {
    const prompt = `Key share ${shares.length + 1} of ${required} (will be hidden): `
    const before = shares.length
    if (before === 0 || given === undefined) {
      shares.push(...(await readSecrets(given, { what: 'key share', prompt }, io)))
    }
    if (shares.length === before)
      throw new CommandError(`${required} key shares of the primary are required, got ${before}`)
  }
  return shares.slice(0, required)
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
    throw new UsageError(
      'option -with-token: set OUTPOST_TOKEN to a token of the primary, and OUTPOST_ADDR to its address',
    )
  return token
}
