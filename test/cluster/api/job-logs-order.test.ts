/** Logs of a job: the order of lines of random allocations. */
import '../../helpers/short-timings.ts'
import assert from 'node:assert/strict'
import { setTimeout as delay } from 'node:timers/promises'
import { test } from 'node:test'
import { Refusal } from '../../../src/platform/errors.ts'
import type { Chunk } from '../../../src/platform/operation.ts'
import { allocationOf, idOf, nodeOf, startFleetServer } from '../../helpers/fleet-server.ts'
import { Random } from '../../helpers/frames.ts'
import { nodes, frame, framesOf } from './job-log-fixture.ts'

type PartKind = 'busy' | 'quiet' | 'short' | 'slow' | 'failing'
const PART_KINDS = ['busy', 'quiet', 'short', 'slow', 'failing'] as const
const LINES_OF: Readonly<Record<PartKind, number>> = { busy: 60, quiet: 1, short: 3, slow: 8, failing: 20 }

/** A log of one kind, cut into chunks anywhere, with heartbeats between the lines. */
async function* partOf(kind: PartKind, random: Random): AsyncGenerator<Chunk> {
  yield { status: 200 }
  const lineBytes = kind === 'busy' ? 12_000 : 20
  let rest = Buffer.alloc(0)
  for (let line = 0; line < LINES_OF[kind]; line++) {
    const beats = Buffer.from('{}'.repeat(kind === 'quiet' ? 40 : random.between(0, 2)))
    rest = Buffer.concat([rest, beats, frame(`${line}:`.padEnd(lineBytes, 'x'))])
    while (rest.length > 0 && random.chance(0.9)) {
      const end = random.between(1, rest.length)
      yield rest.subarray(0, end)
      rest = rest.subarray(end)
      if (kind === 'slow') await new Promise((resolve) => setImmediate(resolve))
    }
  }
  yield rest
  if (kind === 'failing') throw new Refusal('no_answer', 'a gap')
}

test('each line of busy, quiet, ending, failing and slow allocations arrives in order, or its gap is reported', async (t) => {
  for (const seed of [1, 2]) {
    const random = new Random(seed)
    const parts = new Map<string, PartKind>()
    for (let serial = 0; serial < 90; serial++) parts.set(idOf('0a000000', serial), random.pick(PART_KINDS))
    const { logs } = nodes(({ id }) =>
      partOf(parts.get(id) ?? 'short', new Random(seed + Number.parseInt(id.slice(-4), 16))),
    )
    const server = await startFleetServer(t, logs)
    for (let at = 0; at < 6; at++) {
      const ids = [...parts.keys()].filter((_, index) => index % 6 === at)
      server.say(
        nodeOf(idOf('aa000000', at)),
        ids.map((id) => allocationOf(id)),
      )
    }
    const query = random.chance(0.5) ? 'follow=true&end_when_done=true' : ''
    const answer = await fetch(`${server.url}/v1/job/web/logs?${query}`)
    const pieces: Uint8Array[] = []
    for await (const bytes of answer.body ?? []) {
      pieces.push(bytes)
      if (random.chance(0.1)) await delay(1)
    }
    const lines = new Map<string, string[]>()
    for (const { AllocID = '', Data, FileEvent, Error: error } of framesOf(Buffer.concat(pieces).toString())) {
      if (AllocID === '') continue
      const what = Data === undefined ? `${FileEvent} ${error ?? ''}` : (atob(Data).split(':')[0] ?? '')
      lines.set(AllocID, [...(lines.get(AllocID) ?? []), what])
    }
    for (const [id, kind] of parts) {
      const last = kind === 'failing' ? 'log failed 504 a gap' : 'log ended '
      const expected = [...Array.from({ length: LINES_OF[kind] }, (_, line) => String(line)), last]
      assert.deepEqual(lines.get(id), expected, `seed ${seed}, ${kind}`)
    }
  }
})
