/** Raw requests over a separate socket, for bytes that no HTTP client sends. */
import { connect, type Socket } from 'node:net'
import { connect as connectTls, type ConnectionOptions } from 'node:tls'

export interface Heard {
  readonly bytes: Buffer
  readonly text: string
  /** How the connection ended: closed by the server, reset, or still open when the client left. */
  readonly end: 'closed' | 'reset' | 'open'
}

export interface RawOptions {
  readonly host?: string
  readonly port: number
  /** Leaves after this time without data. */
  readonly patienceMs?: number
  /** Leaves once this was received. */
  readonly until?: (text: string) => boolean
  readonly tls?: ConnectionOptions
}

/** Sends `pieces` in order (a number is a pause in ms) and reads until the end. */
export function raw(options: RawOptions, ...pieces: readonly (string | Buffer | number)[]): Promise<Heard> {
  const { port, host = '127.0.0.1', tls } = options
  const socket = tls ? connectTls({ port, host, ...tls }) : connect({ port, host })
  const heard = listen(socket, options)
  void send(socket, pieces)
  return heard
}

export function listen(socket: Socket, options: Pick<RawOptions, 'patienceMs' | 'until'>): Promise<Heard> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = []
    const finish = (end: Heard['end']) => {
      const bytes = Buffer.concat(chunks)
      resolve({ bytes, text: bytes.toString('latin1'), end })
      socket.destroy()
    }
    socket.setTimeout(options.patienceMs ?? 60_000, () => finish('open'))
    socket.on('data', (bytes) => {
      chunks.push(bytes)
      if (options.until?.(Buffer.concat(chunks).toString('latin1'))) finish('open')
    })
    socket.on('end', () => finish('closed'))
    socket.on('error', () => finish('reset'))
    socket.on('close', () => finish('reset'))
  })
}

async function send(socket: Socket, pieces: readonly (string | Buffer | number)[]): Promise<void> {
  for (const piece of pieces) {
    if (typeof piece === 'number') await new Promise((resolve) => setTimeout(resolve, piece))
    else if (!socket.writable) return
    else socket.write(piece)
  }
}

export interface Answer {
  readonly status: number
  /** The last value of each header, by its lower-case name. */
  readonly headers: ReadonlyMap<string, string>
  readonly head: string
  readonly body: Buffer
  /** True if the announced length or all chunks were received. */
  readonly whole: boolean
}

/** Parses received responses in order. `methods` identifies those to HEAD requests. */
export function answersIn(bytes: Buffer, methods: readonly string[] = []): Answer[] {
  const answers: Answer[] = []
  let at = 0
  while (at < bytes.length) {
    const headEnd = bytes.indexOf('\r\n\r\n', at)
    if (headEnd < 0) throw new Error(`no head in ${JSON.stringify(bytes.toString('latin1', at, at + 200))}`)
    const head = bytes.toString('latin1', at, headEnd)
    const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(head)?.[1])
    const headers = new Map(head.split('\r\n').slice(1).map(splitHeader))
    const bodiless = methods[answers.length] === 'HEAD' || status === 204 || status === 100
    const part = bodiless
      ? { body: Buffer.alloc(0), end: headEnd + 4, whole: true }
      : bodyAt(bytes, headEnd + 4, headers)
    answers.push({ status, headers, head, body: part.body, whole: part.whole })
    at = part.end
  }
  return answers
}

function splitHeader(line: string): [string, string] {
  const colon = line.indexOf(':')
  return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()]
}

interface Part {
  readonly body: Buffer
  readonly end: number
  readonly whole: boolean
}

function bodyAt(bytes: Buffer, start: number, headers: ReadonlyMap<string, string>): Part {
  if (headers.get('transfer-encoding') === 'chunked') return chunksAt(bytes, start)
  const length = Number(headers.get('content-length') ?? bytes.length - start)
  const body = bytes.subarray(start, start + length)
  return { body, end: start + body.length, whole: body.length === length }
}

function chunksAt(bytes: Buffer, start: number): Part {
  const chunks: Buffer[] = []
  let at = start
  for (;;) {
    const lineEnd = bytes.indexOf('\r\n', at)
    const size = lineEnd < 0 ? Number.NaN : Number.parseInt(bytes.toString('latin1', at, lineEnd), 16)
    if (Number.isNaN(size) || lineEnd + 2 + size + 2 > bytes.length) {
      return { body: Buffer.concat(chunks), end: bytes.length, whole: false }
    }
    if (size === 0) return { body: Buffer.concat(chunks), end: lineEnd + 4, whole: true }
    chunks.push(bytes.subarray(lineEnd + 2, lineEnd + 2 + size))
    at = lineEnd + 2 + size + 2
  }
}

/** Sends one request over a separate connection and returns the first response. */
export async function ask(port: number, method: string, target: string, ...lines: readonly string[]): Promise<Answer> {
  const head = [`${method} ${target} HTTP/1.1`, 'Host: localhost', 'Connection: close', ...lines, '', ''].join('\r\n')
  const { bytes } = await raw({ port }, head)
  const [answer] = answersIn(bytes, [method])
  if (!answer) throw new Error(`no answer to ${method} ${target}`)
  return answer
}
