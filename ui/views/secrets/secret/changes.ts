/** Changes of secrets by others: the watch stream of the mount, while the page is visible. */
import { useEffect, useRef, useState } from 'preact/hooks'
import { ApiError, secretsPath, send } from '../../../api/client.ts'
import { refreshSession, token } from '../../../app/session.ts'
import { lineReader } from '../line-reader.ts'
import { type KvMount, kvPath } from '../secret-path.ts'

export interface SecretChange {
  readonly path: string
  readonly change: 'write' | 'delete' | 'undelete' | 'destroy' | 'metadata' | 'remove'
  readonly version: number
}

interface StreamLine extends Partial<SecretChange> {
  readonly cursor?: string
  /** Of the last line: why the server ended the stream. */
  readonly status?: number
  /** Changes may be missing. */
  readonly reset?: boolean
}

const RETRY_MS = 3000
const SEALED = 503
/** After these, the stream would be refused again. 400: a server without a secrets core cannot forward streams. */
const FINAL = new Set([400, 403, 404])

/**
 * Calls `onChange` for each change of a secret, or below a folder. Needs `read` on the path `watch/…`; with `isAllowed` false nothing is
 * requested. A stream is a connection, of which a browser has few, so it is closed while the page is hidden and resumed at its cursor.
 * Returns true if the server refused the stream.
 */
export function useChanges(
  mount: KvMount,
  name: string,
  isAllowed: boolean,
  onChange: (change: SecretChange | 'reset') => void,
): boolean {
  const [isRefused, setRefused] = useState(false)
  const handler = useRef(onChange)
  handler.current = onChange
  useEffect(() => {
    if (!isAllowed || mount.version === 1) return undefined
    setRefused(false)
    const follower = new Follower(kvPath(mount, 'watch', name), {
      onChange: (change) => handler.current(change),
      onRefused: () => setRefused(true),
    })
    const update = () => follower.run(document.visibilityState === 'visible')
    update()
    document.addEventListener('visibilitychange', update)
    return () => {
      document.removeEventListener('visibilitychange', update)
      follower.run(false)
    }
  }, [mount.path, mount.version, name, isAllowed, token.value])
  return isRefused
}

interface FollowerEvents {
  readonly onChange: (change: SecretChange | 'reset') => void
  readonly onRefused: () => void
}

class Follower {
  readonly #path: string
  readonly #events: FollowerEvents
  #cursor = ''
  #abort: AbortController | undefined

  constructor(path: string, events: FollowerEvents) {
    this.#path = path
    this.#events = events
  }

  run(isWanted: boolean): void {
    if (isWanted === (this.#abort !== undefined)) return
    this.#abort?.abort()
    this.#abort = isWanted ? new AbortController() : undefined
    if (this.#abort) void this.#follow(this.#abort.signal)
  }

  async #follow(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const status = await this.#stream(signal).catch((error: unknown) =>
        error instanceof ApiError ? error.status : 0,
      )
      if (signal.aborted) return
      if (FINAL.has(status)) {
        this.#events.onRefused()
        return
      }
      // The core was sealed: the page shows it at once.
      if (status === SEALED) void refreshSession().catch(() => undefined)
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS))
    }
  }

  /** Returns the status with which the server ended the stream. */
  async #stream(signal: AbortSignal): Promise<number> {
    const response = await send(secretsPath(this.#path), { query: { stream: true, cursor: this.#cursor }, signal })
    if (!response.body) return 0
    for await (const text of lineReader(response.body)) {
      if (signal.aborted) return 0
      const line = JSON.parse(text) as StreamLine
      if (line.cursor !== undefined) this.#cursor = line.cursor
      if (line.status !== undefined) return line.status
      if (line.reset) this.#events.onChange('reset')
      const { change, path, version = 0 } = line
      if (path !== undefined && change !== undefined) this.#events.onChange({ path, change, version })
    }
    return 0
  }
}

const POLL_MS = 15_000

/** Calls `check` at an interval, while the page is visible: for tokens that may not watch. */
export function usePolling(isWanted: boolean, check: () => Promise<void>): void {
  const current = useRef(check)
  current.current = check
  useEffect(() => {
    if (!isWanted) return undefined
    const poll = () => {
      // A failure is shown by the next request of the user.
      if (document.visibilityState === 'visible') current.current().catch(() => undefined)
    }
    const timer = setInterval(poll, POLL_MS)
    return () => clearInterval(timer)
  }, [isWanted])
}

/** Whether a draft has this change: it is based on that version or a later one. */
export function isInDraft(change: SecretChange | 'reset', base: number | undefined): boolean {
  return change !== 'reset' && change.change === 'write' && base !== undefined && change.version <= base
}
