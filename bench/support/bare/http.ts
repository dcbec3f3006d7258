/**
 * Peer: bare node:http. Returns given headers and bytes for each path; a path
 * with the header `X-Bench-Open` gets only a response head and stays open, like an idle follow.
 */
import { createServer } from 'node:http'
import { helperOptions, type Said, serveHere } from '../child.ts'

export interface CannedAnswer {
  readonly path: string
  /** Names and values in turn. */
  readonly headers: string[]
  readonly base64: string
  /** Send the head and wait. */
  readonly open?: boolean
}

helperOptions()
const answers = new Map<string, { headers: string[]; body: Buffer; open: boolean }>()
process.on('message', (message) => {
  const { path, headers, base64, open = false } = message as CannedAnswer
  answers.set(path, { headers, body: Buffer.from(base64, 'base64'), open })
  process.send?.({ port: 0 } satisfies Said)
})

const server = createServer((request, response) => {
  const answer = answers.get(request.url ?? '')
  response.writeHead(answer ? 200 : 404, answer?.headers ?? [])
  if (answer?.open) response.flushHeaders()
  else response.end(answer?.body)
})
serveHere(server)
