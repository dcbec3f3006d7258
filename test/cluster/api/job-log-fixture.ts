/** Nodes with scripted logs, and followers of the log of their job. */
import { Refusal } from '../../../src/platform/errors.ts'
import type { AnyOperation, Call, Chunk, Operation } from '../../../src/platform/operation.ts'
import type { RawInput } from '../../../src/platform/schema.ts'
import type { TestContext } from 'node:test'
import { allocationOf, type FleetServer, idOf, nodeOf } from '../../helpers/fleet-server.ts'

export const NODE = idOf('aa000000')
export const [ONE, TWO, THREE] = [idOf('01000000'), idOf('02000000'), idOf('03000000')]

export interface Asked {
  readonly id: string
  readonly raw: RawInput
  readonly signal: AbortSignal
}

/** Nodes that send what `make` makes for an allocation; who was asked is kept. */
export function nodes(make: (asked: Asked) => AsyncIterable<Chunk>): { logs: AnyOperation; asked: Asked[] } {
  const asked: Asked[] = []
  const operation: Operation<RawInput, never> = {
    name: 'host.logs',
    summary: '',
    http: ['GET /v1/client/fs/logs/:alloc_id'],
    target: 'node',
    input: {
      fields: {},
      parse(raw) {
        if (raw.query.some(([name, value]) => name === 'grep' && value === '(')) {
          throw new Refusal('invalid_request', 'grep is not a valid pattern')
        }
        return raw
      },
    },
    output: 'stream',
    errorFormat: 'plain',
    authorize: () => undefined,
    run(raw, { signal }: Call) {
      const one = { id: raw.params['alloc_id'] ?? '', raw, signal }
      asked.push(one)
      return make(one)
    },
  }
  return { logs: operation, asked }
}

export function frame(text: string): Buffer {
  const data = Buffer.from(text).toString('base64')
  return Buffer.from(`{"Data":"${data}","File":"alloc/logs/web.stdout.0","Offset":${text.length}}`)
}

export interface Shown {
  readonly AllocID?: string
  readonly Data?: string
  readonly FileEvent?: string
  readonly Error?: string
}

/** The frames of a body, as stock clients cut them. */
export function framesOf(text: string): Shown[] {
  const inner = text.slice(1, -1)
  return text === '' ? [] : inner.split('}{').map((one) => JSON.parse(`{${one}}`) as Shown)
}

export function said(frames: readonly Shown[]): string[] {
  return frames
    .filter(({ AllocID }) => AllocID !== undefined)
    .map(({ AllocID = '', Data, FileEvent, Error: error }) => {
      const what = Data === undefined ? `${FileEvent}${error === undefined ? '' : `: ${error}`}` : atob(Data)
      return `${AllocID.slice(0, 2)} ${what}`
    })
}

export function fill(server: FleetServer, ids: readonly string[]): void {
  server.say(
    nodeOf(NODE),
    ids.map((id) => allocationOf(id)),
  )
}

/** A follower; `said` gives what has come. */
export async function follow(t: Pick<TestContext, 'after'>, server: FleetServer, query: string) {
  const abort = new AbortController()
  t.after(() => abort.abort())
  const answer = await fetch(`${server.url}/v1/job/web/logs?${query}`, { signal: abort.signal })
  const heard = { text: '', ended: false }
  const read = async () => {
    for await (const bytes of answer.body ?? []) heard.text += Buffer.from(bytes).toString()
    heard.ended = true
  }
  void read().catch(() => undefined)
  return { said: () => said(framesOf(heard.text)), heard, close: () => abort.abort() }
}
