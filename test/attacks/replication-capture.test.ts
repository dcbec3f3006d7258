/**
 * Neither the link between two clusters nor the disk of a secondary reveals a secret, and a client without a certificate
 * of the primary is refused.
 */
import assert from 'node:assert/strict'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { createConnection, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { connect } from 'node:tls'
import { workDirectory } from '../helpers/agent-process.ts'
import { DR, DrServer } from '../helpers/dr-pair.ts'

const PLANTED = 'planted-value-of-a-secret'

/** Passes on, and keeps, every byte between a secondary and the cluster port of its primary. */
async function tap(t: TestContext, target: string) {
  const [host = '', port = ''] = target.split(':')
  const kept: Buffer[] = []
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    const other = createConnection(Number(port), host)
    for (const [one, to] of [
      [socket, other],
      [other, socket],
    ] as const) {
      sockets.add(one)
      one.on('error', () => to.destroy()).on('close', () => to.destroy())
      one.on('data', (chunk: Buffer) => kept.push(chunk))
      one.pipe(to)
    }
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  t.after(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  const address = server.address()
  const url = `127.0.0.1:${typeof address === 'object' ? address?.port : 0}`
  return { url, bytes: () => Buffer.concat(kept) }
}

function filesBelow(directory: string): Buffer[] {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((file) => statSync(file).size > 0)
    .map((file) => readFileSync(file))
}

test('a capture of the link and of the secondary’s files holds no planted value', { timeout: 280_000 }, async (t) => {
  const directory = workDirectory(t)
  const [a, b] = await Promise.all([DrServer.startHere(t, 'a', '', directory), DrServer.start(t, 'b', '', directory)])
  await a.told('POST', `${DR}/primary/enable`)
  const cluster = readFileSync(join(a.directory, 'data/cluster.addr'), 'utf8').trim()
  const link = await tap(t, cluster)
  await a.told('POST', `${DR}/primary/disable`)
  await a.told('POST', `${DR}/primary/enable`, { primary_cluster_addr: link.url })
  await a.told('POST', 'cubbyhole/before', { value: `${PLANTED}-before` })
  await b.told('POST', `${DR}/secondary/enable`, { token: await a.issue('b') })
  await b.follows(a)
  await a.told('POST', 'cubbyhole/after', { value: `${PLANTED}-after` })
  await b.follows(a)
  const captured = [link.bytes(), ...filesBelow(join(b.directory, 'data'))]
  assert.ok(link.bytes().length > 10_000, 'everything went through the tap')
  for (const secret of [PLANTED, a.keys.token, ...a.keys.shares]) {
    const raw = Buffer.from(secret)
    assert.ok(captured.every((bytes) => !bytes.includes(raw)))
  }

  // Who has no certificate of the primary, or one of another authority, gets no answer.
  const [host = '', port = ''] = cluster.split(':')
  const outcome = await new Promise<string>((done) => {
    const socket = connect({ host, port: Number(port), rejectUnauthorized: false, ALPNProtocols: ['h2'] })
    let said = ''
    socket.on('data', (chunk: Buffer) => (said += chunk.toString('latin1')))
    socket.on('error', (error) => done(String(error))).on('close', () => done(said === '' ? 'closed' : said))
    socket.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
  })
  assert.match(outcome, /closed|alert|ECONNRESET|socket hang up|certificate/i)
})
