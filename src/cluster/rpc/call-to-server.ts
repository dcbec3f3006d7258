/** A call on its way to a server: sealed to one that is picked, and to another when nobody listens there any more. */
import { Fault, Refusal } from '../../platform/errors.ts'
import type { Link } from '../nats/link.ts'
import type { SealedCall, ServerCalls } from './server-calls.ts'
import type { Group, Subjects } from '../nats/subjects.ts'

export interface CallToServerOptions {
  readonly link: Link
  readonly subjects: Subjects
  readonly servers: ServerCalls
  /** Name of this process on the bus. */
  readonly caller: string
  readonly group: Group
}

export interface ServerCallMessage {
  /** Of the call. */
  readonly name: string
  readonly bytes: Uint8Array
  /** Subject of the answers. */
  readonly reply: string
}

export class CallToServer {
  readonly #options: CallToServerOptions
  readonly #message: ServerCallMessage
  readonly #tried = new Set<string>()
  #serverId: string | undefined
  #sealed: SealedCall | undefined
  #isClosed = false

  constructor(options: CallToServerOptions, message: ServerCallMessage) {
    this.#options = options
    this.#message = message
  }

  /** Tells `fail` when no server can be sent to. */
  async send(fail: (error: Error) => void): Promise<void> {
    const { link, subjects, servers, caller, group } = this.#options
    const { bytes, reply } = this.#message
    try {
      const server = await servers.pick(group, this.#tried)
      if (this.#isClosed) return
      const subject = subjects.serverCall(server.serverId, caller, group)
      this.#sealed = servers.seal(server, { subject, reply }, bytes)
      this.#serverId = server.serverId
      link.publish(subject, this.#sealed.request, reply)
    } catch (error) {
      fail(error instanceof Error ? error : new Fault('a call could not be sealed'))
    }
  }

  /** The server is gone, and the call has had no effect there. */
  async sendToAnother(fail: (error: Error) => void): Promise<void> {
    if (this.#serverId !== undefined) this.#tried.add(this.#serverId)
    this.forget()
    this.#sealed = undefined
    await this.send(fail)
  }

  /** The server is not asked again before it is heard again. */
  forget(): void {
    if (this.#serverId !== undefined) this.#options.servers.forget(this.#serverId)
  }

  /** Credit, cancel or drain; nothing before the call is under way. */
  control(payload: Uint8Array): void {
    const { link, subjects, caller } = this.#options
    if (!this.#sealed || this.#serverId === undefined) return
    link.publish(subjects.serverFlow(this.#serverId, caller, this.#message.name), this.#sealed.sealControl(payload))
  }

  /** The next message of the answer; a Refusal ends the call; `lost`: one before it is missing; undefined: not for us. */
  open(payload: Uint8Array): Uint8Array | Refusal | 'lost' | undefined {
    return this.#sealed?.open(payload)
  }

  close(): void {
    this.#isClosed = true
  }
}
