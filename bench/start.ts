/**
 * Time from process start to the first response, warm and with an empty compile cache, and the cost
 * of an idle agent, compared with an idle Node process.
 */
import { once } from 'node:events'
import { setTimeout as pause } from 'node:timers/promises'
import { ALLOC_ID, FS, LAUNCHER, readyPort, Site, startAgent } from './support/agent.ts'
import { freePort, pidOf, removeDirectory, start as startProcess, stop, temporaryDirectory } from './support/child.ts'
import { alone, type Options, type Row, WrongContent } from './support/figure.ts'
import { fetchWhole } from './support/http-socket.ts'
import { cpuSeconds, inTurn, nowMs, residentMiB } from './support/measure.ts'

const PATH = `${FS}/stat/${ALLOC_ID}?path=alloc`
const GIVE_UP_MS = 30_000

export async function start(options: Options): Promise<Row[]> {
  const [warm, cold, node]: [number[], number[], number[]] = [[], [], []]
  // The first one fills the compile cache.
  await firstAnswerMs(undefined)
  await inTurn(Math.max(options.rounds, options.quick ? 2 : 7), [
    async () => void warm.push(await firstAnswerMs(undefined)),
    async () => void cold.push(await coldFirstAnswerMs()),
    async () => void node.push(await emptyNodeMs()),
  ])
  const peer = { name: 'node -e 0, start to end', runs: node }
  return [
    { figure: 'start to first response', unit: 'ms', ours: warm, peer },
    { figure: 'start to first response, empty compile cache', unit: 'ms', ours: cold, peer },
    ...(await idle(options)),
  ]
}

async function coldFirstAnswerMs(): Promise<number> {
  const directory = temporaryDirectory()
  try {
    return await firstAnswerMs(directory)
  } finally {
    removeDirectory(directory)
  }
}

/** The port is known in advance, so that the first request does not wait for output of the agent. */
async function firstAnswerMs(compileCache: string | undefined): Promise<number> {
  const port = await freePort()
  const site = new Site(port)
  const env = compileCache === undefined ? process.env : { ...process.env, NODE_COMPILE_CACHE: compileCache }
  const beganMs = nowMs()
  const child = startProcess(LAUNCHER, ['agent', '-config', site.configFile], env)
  try {
    // Also fails immediately if the process fails.
    const ready = readyPort(child)
    ready.catch(() => undefined)
    for (;;) {
      try {
        const { body } = await fetchWhole(port, PATH)
        const tookMs = nowMs() - beganMs
        if (!body.includes('"IsDir":true')) throw new WrongContent(`start: ${body.toString()}`)
        return tookMs
      } catch (error) {
        if (error instanceof WrongContent) throw error
        if (nowMs() - beganMs > GIVE_UP_MS) throw new WrongContent('start: no response', { cause: error })
        if (child.exitCode !== null) await ready
        await pause(2)
      }
    }
  } finally {
    await stop(child, 'SIGTERM')
    await site.remove()
  }
}

async function emptyNodeMs(): Promise<number> {
  const beganMs = nowMs()
  await once(startProcess(process.execPath, ['-e', '0']), 'exit')
  return nowMs() - beganMs
}

async function idle(options: Options): Promise<Row[]> {
  const windowMs = options.quick ? 2000 : 10_000
  const agent = await startAgent()
  const node = startProcess(process.execPath, ['-e', 'setInterval(() => {}, 1000)'])
  try {
    // One response loads the modules that are loaded late. Then the garbage of the start is collected.
    await fetchWhole(agent.port, PATH)
    await pause(windowMs / 2)
    const pids = [agent.pid, pidOf(node)] as const
    const before = pids.map((pid) => cpuSeconds(pid))
    await pause(windowMs)
    const used = pids.map((pid, index) => ((cpuSeconds(pid) - (before[index] ?? 0)) / (windowMs / 1000)) * 100)
    const resident = pids.map(residentMiB)
    return [
      idleRow('idle, resident memory', 'MiB', resident),
      idleRow(`idle, CPU over ${windowMs / 1000} s`, '% of a core', used),
    ]
  } finally {
    await stop(node, 'SIGKILL')
    await agent.stop()
  }
}

function idleRow(figure: string, unit: string, [ours, theirs]: readonly number[]): Row {
  const runs = theirs === undefined ? [] : [theirs]
  return { figure, unit, ours: ours === undefined ? [] : [ours], peer: { name: 'node with a timer', runs } }
}

if (import.meta.main) await alone(start)
