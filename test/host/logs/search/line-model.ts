/**
 * What a filter of lines must give, said in the plainest way: cut the text at line ends, look at each line, mark the lines
 * around those that match. And a way to feed a filter in any pieces and to compare.
 */
import { LINE_BYTES_MAX } from '../../../../src/host/logs/search/line-assembly.ts'
import { LineFilter, type LineRun } from '../../../../src/host/logs/search/line-filter.ts'
import { compileLinePattern } from '../../../../src/host/logs/search/line-pattern.ts'

/** One file of a log. */
export interface Place {
  readonly name: string
  readonly bytes: Buffer
}

export interface Ask {
  readonly pattern: string | undefined
  /** The same for the model, as it sees one line. */
  readonly matches: (line: string) => boolean
  readonly invert: boolean
  readonly context: number
}

export interface Line {
  readonly text: string
  readonly place: string
  readonly end: number
}

export function filterOf(ask: Ask, after = 0): LineFilter<Place> {
  const pattern = ask.pattern === undefined ? undefined : compileLinePattern(ask.pattern)
  return new LineFilter<Place>({ pattern, invert: ask.invert, context: ask.context, after })
}

/** The lines of the files, one after the other, as they are given when they are. */
function linesOf(places: readonly Place[]): { judged: string; line: Line }[] {
  const lines: { judged: string; line: Line }[] = []
  let begun = Buffer.alloc(0)
  for (const place of places) {
    for (let at = 0; at < place.bytes.length; ) {
      const newline = place.bytes.indexOf('\n', at)
      const to = newline < 0 ? place.bytes.length : newline + 1
      begun = Buffer.concat([begun, place.bytes.subarray(at, to)])
      at = to
      if (newline < 0) continue
      lines.push(lineOf(begun, place.name, to))
      begun = Buffer.alloc(0)
    }
  }
  const last = places.findLast(({ bytes }) => bytes.length > 0)
  if (begun.length > 0 && last) lines.push(lineOf(begun, last.name, last.bytes.length))
  return lines
}

function lineOf(bytes: Buffer, place: string, end: number): { judged: string; line: Line } {
  const length = bytes.at(-1) === 10 ? bytes.length - 1 : bytes.length
  const content = bytes.subarray(0, length)
  if (length > LINE_BYTES_MAX) {
    const head = content.subarray(0, LINE_BYTES_MAX)
    const text = `${head.toString('latin1')} [line cut: it has ${length} bytes]\n`
    return { judged: head.toString(), line: { text, place, end } }
  }
  const judged = length < bytes.length && content.at(-1) === 13 ? content.subarray(0, -1) : content
  return { judged: judged.toString(), line: { text: bytes.toString('latin1'), place, end } }
}

/** What must come out. */
export function expected(places: readonly Place[], ask: Ask): Line[] {
  const lines = linesOf(places)
  const wanted = lines.map(() => false)
  lines.forEach(({ judged }, index) => {
    if (ask.matches(judged) === ask.invert) return
    wanted.fill(true, Math.max(0, index - ask.context), index + ask.context + 1)
  })
  return lines.filter((_, index) => wanted[index]).map(({ line }) => line)
}

/** The lines of a run. Their ends are known from the run's, except in one that is a single line. */
export function linesOfRun(run: LineRun<Place>): Line[] {
  const lines: Line[] = []
  for (let at = 0; at < run.bytes.length; ) {
    const newline = run.bytes.indexOf('\n', at)
    const to = newline < 0 ? run.bytes.length : newline + 1
    lines.push({
      text: run.bytes.toString('latin1', at, to),
      place: run.file.name,
      end: run.end - (run.bytes.length - to),
    })
    at = to
  }
  return lines
}

export interface Moment {
  readonly place: Place
  readonly offset: number
  readonly after: number
  /** Lines given up to here. */
  readonly given: number
}

/**
 * Feeds the files from a moment on, in pieces of `size()` bytes, and tells what came out and where one could resume:
 * behind every piece of every run, and at what was pending after every push.
 */
export async function feed(
  places: readonly Place[],
  ask: Ask,
  size: () => number,
  from: { place: Place | undefined; offset: number; after: number } = { place: places[0], offset: 0, after: 0 },
): Promise<{ lines: Line[]; moments: Moment[] }> {
  const filter = filterOf(ask, from.after)
  const lines: Line[] = []
  const moments: Moment[] = []
  const take = (runs: LineRun<Place>[]) => {
    for (const whole of runs) {
      for (const run of filter.pieces(whole, LINE_BYTES_MAX + 100)) {
        lines.push(...linesOfRun(run))
        moments.push({ place: run.file, offset: run.end, after: run.after, given: lines.length })
      }
    }
  }
  const first = places.findIndex((place) => place === from.place)
  for (const [index, place] of places.entries()) {
    if (index < first) continue
    for (let at = index === first ? from.offset : 0; at < place.bytes.length; ) {
      // A buffer of its own, overwritten behind the push: nothing may be held of it.
      const data = Buffer.from(place.bytes.subarray(at, at + size()))
      take(await filter.push(data, place, at))
      at += data.length
      data.fill('#')
      const { pending, after } = filter
      moments.push({ place: pending?.file ?? place, offset: pending?.offset ?? at, after, given: lines.length })
    }
  }
  take(await filter.finish())
  filter.close()
  return { lines, moments }
}
