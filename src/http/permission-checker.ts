/**
 * Checks the permissions of callers again while their responses last.
 *
 * A stream can stay open for days, and meanwhile its token can be revoked, expire or lose a policy. Endless responses are
 * registered at once; finite ones, most of which take a millisecond, wait in a set that one timer moves to the groups every half
 * interval. Callers with the same token and address are one group with one timer and one
 * `resolve` call. Each member then checks the resolved identity, and is ended if it refuses.
 *
 * An error of `resolve` ends the whole group: `resolve` decides how long an earlier result stays valid
 * while no server answers.
 */
import { Refusal } from '../platform/errors.ts'
import type { Identity, PermissionWatcher, PermissionHolder } from '../platform/operation.ts'

/** Each check comes earlier by up to this part of the interval, so groups spread. */
const JITTER = 0.25

export interface PermissionCheckerOptions {
  /** Resolves the token of an admitted caller again. Throws a Refusal if it is no longer valid. */
  readonly resolve: (token: string | undefined, remote: string | undefined) => Identity | Promise<Identity>
  /** Longest time between two checks of a group, in milliseconds. */
  readonly intervalMs: () => number
}

interface Group {
  readonly token: string | undefined
  readonly remote: string | undefined
  readonly holders: Set<PermissionHolder>
  timer: NodeJS.Timeout | undefined
  /** Monotonic; 0 during a check. */
  checkAtMs: number
}

/** A finite response that is not in a group yet. */
interface NewHolder {
  readonly token: string | undefined
  readonly remote: string | undefined
  readonly holder: PermissionHolder
  /** Leaves its group; undefined before it is in one. */
  leave: (() => void) | undefined
}

export class PermissionChecker implements PermissionWatcher {
  readonly #options: PermissionCheckerOptions
  readonly #groups = new Map<string, Group>()
  readonly #newHolders = new Set<NewHolder>()
  #sweeper: NodeJS.Timeout | undefined

  constructor(options: PermissionCheckerOptions) {
    this.#options = options
  }

  /** Number of groups. */
  get groups(): number {
    return this.#groups.size
  }

  /** Checks this caller until the returned function is called. `remote` is its address. */
  keep(token: string | undefined, remote: string | undefined, holder: PermissionHolder): () => void {
    return this.#join({ token, remote, holder }, this.#options.intervalMs())
  }

  /** `keep` for a finite response: not checked if it ends before the next sweep, else as early as with `keep`. */
  keepLong(token: string | undefined, remote: string | undefined, holder: PermissionHolder): () => void {
    const newHolder: NewHolder = { token, remote, holder, leave: undefined }
    this.#newHolders.add(newHolder)
    if (!this.#sweeper) this.#sweeper = setTimeout(() => this.#sweep(), this.#options.intervalMs() / 2).unref()
    return () => {
      this.#newHolders.delete(newHolder)
      newHolder.leave?.()
    }
  }

  #sweep(): void {
    this.#sweeper = undefined
    const withinMs = this.#options.intervalMs() / 2
    for (const newHolder of this.#newHolders) newHolder.leave = this.#join(newHolder, withinMs)
    this.#newHolders.clear()
  }

  /** `withinMs`: maximum time until the next check of the group. */
  #join({ token, remote, holder }: Omit<NewHolder, 'leave'>, withinMs: number): () => void {
    // Addresses have no line break, so keys are unique.
    const key = `${remote ?? ''}\n${token ?? ''}`
    const group = this.#groups.get(key) ?? { token, remote, holders: new Set(), timer: undefined, checkAtMs: 0 }
    const isNew = group.holders.size === 0
    if (isNew) this.#groups.set(key, group)
    if (isNew || group.checkAtMs > performance.now() + withinMs) this.#schedule(group, withinMs)
    group.holders.add(holder)
    return () => {
      group.holders.delete(holder)
      if (group.holders.size > 0 || this.#groups.get(key) !== group) return
      clearTimeout(group.timer)
      this.#groups.delete(key)
    }
  }

  #schedule(group: Group, withinMs = this.#options.intervalMs()): void {
    const waitMs = withinMs * (1 - JITTER * Math.random())
    clearTimeout(group.timer)
    group.checkAtMs = performance.now() + waitMs
    group.timer = setTimeout(() => void this.#check(group), waitMs).unref()
  }

  async #check(group: Group): Promise<void> {
    group.checkAtMs = 0
    const result = await this.#resolve(group)
    // Ended holders leave the set during the iteration, which a Set allows.
    for (const holder of group.holders) applyResult(holder, result)
    if (group.holders.size > 0) this.#schedule(group)
  }

  async #resolve({ token, remote }: Group): Promise<Identity | Refusal> {
    try {
      return await this.#options.resolve(token, remote)
    } catch (error) {
      return refusalOf(error)
    }
  }
}

function applyResult(holder: PermissionHolder, result: Identity | Refusal): void {
  if (result instanceof Refusal) return holder.end(result)
  try {
    holder.renew(result)
  } catch (error) {
    holder.end(refusalOf(error))
  }
}

function refusalOf(error: unknown): Refusal {
  if (error instanceof Refusal) return error
  return new Refusal('unavailable', 'checking the permissions of the caller failed')
}
