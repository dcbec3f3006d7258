/**
 * An HTTP proxy to a server for one client, which calls back before it forwards a request. If the callback rejects, the
 * request gets no response.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { TestContext } from 'node:test'

/** Resolves with the URL of the proxy. */
export async function watchedProxy(
  t: TestContext,
  url: string,
  onRequest: (path: string) => Promise<void>,
): Promise<string> {
  const forward = async (request: IncomingMessage, response: ServerResponse) => {
    const chunks: Buffer[] = []
    for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk)
    await onRequest(request.url ?? '')
    const { method = '', headers } = request
    const token = String(headers['x-vault-token'] ?? '')
    const body = method === 'GET' ? null : Buffer.concat(chunks)
    const answer = await fetch(`${url}${request.url}`, { method, body, headers: { 'X-Vault-Token': token } })
    response.writeHead(answer.status, { 'content-type': 'application/json' }).end(await answer.text())
  }
  const server = createServer((request, response) => void forward(request, response).catch(() => response.destroy()))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => server.close())
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}
