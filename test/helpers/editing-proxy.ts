/** An HTTP proxy to a server that records each request and may change the JSON of its answers. */
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { TestContext } from 'node:test'

export interface ProxiedRequest {
  /** `GET sys/health`, without the query. */
  readonly line: string
  readonly headers: IncomingHttpHeaders
  readonly body: string
}

export type Answer = Record<string, unknown>

export interface EditingProxy {
  readonly url: string
  readonly asked: ProxiedRequest[]
  /** By the line of the request. */
  edits: Readonly<Record<string, (answer: Answer) => Answer>>
}

export async function editingProxy(t: TestContext, url: string): Promise<EditingProxy> {
  const proxy: EditingProxy = { url: '', asked: [], edits: {} }
  const forward = async (request: IncomingMessage, response: ServerResponse) => {
    const chunks: Buffer[] = []
    for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk)
    const { headers, method = '' } = request
    const line = `${method} ${(request.url ?? '').replace(/^\/v1\/|\?.*$/g, '')}`
    const body = Buffer.concat(chunks).toString('utf8')
    proxy.asked.push({ line, headers, body })
    const init = { method, headers: { 'X-Vault-Token': String(headers['x-vault-token'] ?? '') } }
    const answer = await fetch(`${url}${request.url}`, { ...init, ...(body === '' ? {} : { body }) })
    const text = await answer.text()
    const edit = proxy.edits[line]
    response.writeHead(answer.status, { 'content-type': 'application/json' })
    response.end(edit ? JSON.stringify(edit(JSON.parse(text) as Answer)) : text)
  }
  const server = createServer((request, response) => void forward(request, response).catch(() => response.destroy()))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  return Object.assign(proxy, { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` })
}
