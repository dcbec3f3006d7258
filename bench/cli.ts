/**
 * The command line: time from process start to the output of `version` and to the first byte of `logs`, compared
 * with an idle Node; and how fast `logs` copies a log, compared with curl fetching the same frames.
 */
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { ALLOC_ID, LAUNCHER, logsPath, type RunningAgent, startAgent, TASK } from './support/agent.ts'
import { start } from './support/child.ts'
import { alone, type Options, type Row, WrongContent } from './support/figure.ts'
import { inTurn, nowMs } from './support/measure.ts'

const LINE = 'the quick brown fox jumps over the lazy dog, again and again, until the log is full of it and more\n'

export async function cli(options: Options): Promise<Row[]> {
  const agent = await startAgent()
  try {
    return [...(await starts(agent, options)), await copying(agent, options)]
  } finally {
    await agent.stop()
  }
}

const environment = (agent: RunningAgent) => ({ ...process.env, OUTPOST_ADDR: `http://127.0.0.1:${agent.port}` })

async function starts(agent: RunningAgent, options: Options): Promise<Row[]> {
  writeFileSync(agent.site.logFile(0), LINE)
  const [version, logs, node]: [number[], number[], number[]] = [[], [], []]
  const env = environment(agent)
  const commands: [number[], string, readonly string[]][] = [
    [version, LAUNCHER, ['version']],
    [logs, LAUNCHER, ['logs', '-f', '-stdout', ALLOC_ID, TASK]],
  ]
  const firstByte = commands.map(([runs, program, args]) => async () => {
    runs.push(await firstByteMs(program, args, env))
  })
  for (const run of firstByte) await run() // fills the compile cache
  for (const [runs] of commands) runs.length = 0
  await inTurn(Math.max(options.rounds, options.quick ? 2 : 11), [
    ...firstByte,
    async () => void node.push(await emptyNodeMs()),
  ])
  const peer = { name: 'node -e 0, start to end', runs: node }
  return [
    { figure: 'outpost version, start to first byte', unit: 'ms', ours: version, peer },
    { figure: 'outpost logs -f, start to first byte', unit: 'ms', ours: logs, peer },
  ]
}

async function firstByteMs(program: string, args: readonly string[], env: NodeJS.ProcessEnv): Promise<number> {
  const beganMs = nowMs()
  const child = start(program, [...args], env)
  const ended = once(child, 'exit')
  const [first] = (await Promise.race([once(child.stdout ?? child, 'data'), ended])) as [unknown]
  const tookMs = nowMs() - beganMs
  if (!Buffer.isBuffer(first)) throw new WrongContent(`outpost ${args.join(' ')} printed nothing`)
  child.kill('SIGINT')
  await ended
  return tookMs
}

async function emptyNodeMs(): Promise<number> {
  const beganMs = nowMs()
  await once(start(process.execPath, ['-e', '0']), 'exit')
  return nowMs() - beganMs
}

async function copying(agent: RunningAgent, options: Options): Promise<Row> {
  const content = Buffer.from(LINE.repeat(Math.ceil(((options.quick ? 32 : 256) * 1024 * 1024) / LINE.length)))
  writeFileSync(agent.site.logFile(0), content)
  const [ours, theirs]: [number[], number[]] = [[], []]
  const url = `http://127.0.0.1:${agent.port}${logsPath({ framed: true, follow: false })}`
  const rate = (tookMs: number) => content.length / 1e6 / (tookMs / 1000)
  await inTurn(options.rounds, [
    async () => void ours.push(rate(await copyMs(agent))),
    async () => void theirs.push(rate(await throwAwayMs('curl', ['-sN', '-o', '/dev/null', url]))),
  ])
  await checkCopy(agent, content)
  const peer = { name: 'curl, raw frames', runs: theirs }
  return { figure: 'outpost logs > /dev/null', unit: 'MB/s', ours, peer }
}

const copyMs = (agent: RunningAgent) => throwAwayMs(LAUNCHER, ['logs', '-stdout', ALLOC_ID, TASK], environment(agent))

async function throwAwayMs(program: string, args: string[], env: NodeJS.ProcessEnv = process.env): Promise<number> {
  const beganMs = nowMs()
  const child = start('sh', ['-c', 'exec "$0" "$@" > /dev/null', program, ...args], env)
  const [code] = (await once(child, 'exit')) as [number | null]
  if (code !== 0) throw new WrongContent(`${program} ended with ${code}`)
  return nowMs() - beganMs
}

/** Once, through a pipe: every byte. */
async function checkCopy(agent: RunningAgent, content: Buffer): Promise<void> {
  const child = start(LAUNCHER, ['logs', '-stdout', ALLOC_ID, TASK], environment(agent))
  const hash = createHash('sha256')
  child.stdout?.on('data', (bytes: Buffer) => hash.update(bytes))
  await once(child, 'close')
  if (hash.digest('hex') !== createHash('sha256').update(content).digest('hex')) {
    throw new WrongContent('outpost logs: not the bytes of the log')
  }
}

if (import.meta.main) await alone(cli)
