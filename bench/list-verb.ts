/**
 * The verb LIST, which Node's parser refuses: its cost for callers that use it, and for all others (none).
 */
import type { CannedAnswer } from './support/bare/http.ts'
import { Helper, type Said } from './support/child.ts'
import { alone, type Options, type Row, WrongContent } from './support/figure.ts'
import { fetchWhole } from './support/http-socket.ts'
import { type Load, load, loadRow, type Request } from './support/load.ts'
import { inTurn, openDescriptors, residentMiB } from './support/measure.ts'

const LISTS = 100_000

function asking(verb: string, path: string): Request {
  return {
    verb,
    path,
    fault(status, body) {
      if (status !== 200) return `status ${status}`
      return body.toString() === '{"keys":["a"]}' ? undefined : `another body: ${body.toString()}`
    },
  }
}

const GET = asking('GET', '/v1/trivial')
const LIST = asking('LIST', '/v1/secret/metadata/a')
const QUERY = asking('GET', '/v1/secret/metadata/a?list=true')

interface Side {
  readonly port: number
  readonly pid: number
  readonly next: (isFirst: boolean) => Request
}

export async function listVerb(options: Options): Promise<Row[]> {
  const ours = new Helper<never, Said>('verbs')
  const bare = new Helper<CannedAnswer, Said>('bare/http')
  try {
    const from = { port: (await ours.next()).port, pid: ours.pid }
    const peer = { port: (await bare.next()).port, pid: bare.pid, next: () => GET }
    await answerAlike(from.port, bare)
    const get: Side = { ...from, next: () => GET }
    const after: Side = { ...from, next: (isFirst) => (isFirst ? LIST : GET) }
    return [
      await compare('GET', get, { name: 'bare node:http', ...peer }, options),
      await compare('GET, connection has sent a LIST', after, { name: 'GET', ...get }, options),
      await compare(
        'LIST',
        { ...from, next: () => LIST },
        { name: 'GET ?list=true', ...from, next: () => QUERY },
        options,
      ),
      ...(await growth(from, options)),
    ]
  } finally {
    await Promise.all([ours.stop(), bare.stop()])
  }
}

/** The peer returns exactly the bytes that outpost returns. */
async function answerAlike(port: number, bare: Helper<CannedAnswer, Said>): Promise<void> {
  const { head, body } = await fetchWhole(port, GET.path)
  const own = /^(date|connection|keep-alive):/i
  const lines = head
    .split('\r\n')
    .slice(1)
    .filter((line) => !own.test(line))
  const headers = lines.flatMap((line) => line.split(/: */, 2))
  bare.send({ path: GET.path, headers, base64: body.toString('base64') })
  await bare.next()
}

async function compare(figure: string, side: Side, peer: Side & { name: string }, options: Options): Promise<Row> {
  const durationMs = options.quick ? 500 : 2000
  const [mine, theirs]: [Load[], Load[]] = [[], []]
  for (const one of [side, peer]) await load({ ...one, durationMs: durationMs / 2 })
  await inTurn(options.rounds, [
    async () => void mine.push(await load({ ...side, durationMs })),
    async () => void theirs.push(await load({ ...peer, durationMs })),
  ])
  return loadRow(figure, mine, { name: peer.name, loads: theirs })
}

/** Time until closed connections are also closed on the other side. */
const pause = () => new Promise((resolve) => setTimeout(resolve, 2000))

/** Memory and descriptors before and after so many. */
async function growth(from: { port: number; pid: number }, options: Options): Promise<Row[]> {
  const count = options.quick ? LISTS / 20 : LISTS
  const asked = { count: 0 }
  await pause()
  const [memory, descriptors] = [residentMiB(from.pid), openDescriptors(from.pid)]
  const next = () => {
    asked.count++
    return LIST
  }
  while (asked.count < count) await load({ ...from, durationMs: 500, next })
  await pause()
  const now = openDescriptors(from.pid)
  if (now > descriptors) throw new WrongContent(`${now - descriptors} descriptors remain open`)
  const peer = { name: 'before', runs: [memory] }
  return [{ figure: `memory after ${asked.count} LISTs`, unit: 'MiB', ours: [residentMiB(from.pid)], peer }]
}

if (import.meta.main) await alone(listVerb)
