/** A client that follows an endless response and records what it received and how that ended. */
import { type ClientRequest, request } from 'node:http'
import type { TestContext } from 'node:test'
import { MessageClient } from './message-client.ts'
import { eventually } from './eventually.ts'

export interface Follower {
  readonly name: string
  /** Number of received bytes. */
  readonly bytes: number
  /** Everything received so far. */
  readonly text: () => string
  /** `whole`: a clean end, which a follower that was cut off must not get. A number: the WebSocket close code. */
  readonly ended: 'whole' | 'broken' | number | undefined
}

interface Asked {
  readonly port: number
  readonly path: string
  readonly token: string
  /** Milliseconds to pause after each chunk, for a slow client that discards the text. 0 by default. */
  readonly restMs?: number
}

/** Follows over HTTP; resolves with the first bytes. */
export async function follow(
  t: TestContext,
  name: string,
  { port, path, token, restMs = 0 }: Asked,
): Promise<Follower> {
  let status = 0
  let text = ''
  const begun = { name, bytes: 0, text: () => text, ended: undefined }
  const state: { -readonly [Key in keyof Follower]: Follower[Key] } = begun
  const sent: ClientRequest = request(
    { port, host: '127.0.0.1', path, headers: { 'X-Nomad-Token': token } },
    (response) => {
      status = response.statusCode ?? 0
      response.on('data', (chunk: Buffer) => {
        state.bytes += chunk.length
        if (restMs === 0) text += chunk.toString()
        else {
          response.pause()
          setTimeout(() => response.resume(), restMs)
        }
      })
      response.on('end', () => (state.ended ??= 'whole'))
      response.on('error', () => (state.ended ??= 'broken'))
    },
  )
  sent.on('error', () => (state.ended ??= 'broken'))
  sent.end()
  t.after(() => sent.destroy())
  await eventually(() => state.bytes > 0 || state.ended !== undefined, `${name} begins`)
  if (status !== 200 || state.ended !== undefined)
    throw new Error(`${name}: ${status} ${state.ended} ${text.slice(0, 500)}`)
  return state
}

/** Follows over a WebSocket; resolves with the first message. */
export async function followMessages(t: TestContext, name: string, { port, path, token }: Asked): Promise<Follower> {
  const client = new MessageClient({ port, path, lines: [`X-Nomad-Token: ${token}`] })
  t.after(() => client.socket.destroy())
  await client.until(`${name} begins`, ({ messages, closed }) => messages.length > 0 || closed)
  if (client.closed) throw new Error(`${name}: ${client.closed.code} ${client.closed.reason}`)
  return {
    name,
    get bytes() {
      return client.messages.reduce((sum, { bytes }) => sum + bytes.length, 0)
    },
    text: () => client.texts.join(''),
    get ended() {
      return client.closed?.code ?? (client.ended && 'broken')
    },
  }
}
