/**
 * Checks the rights of callers again while their answers last.
 *
 * A stream can stay open for days, and its caller's token can be revoked, expire or lose a policy meanwhile. Each process
 * keeps the callers of its endless answers here, and those of streams with an end that last: most are over in a millisecond,
 * so they only stand in a set, which is looked through every half interval by one timer for all. Callers with the same token and address are one group: one timer and one
 * question for all of them. Each member then judges the identity that was found, and is ended when that refuses.
 *
 * An error of `resolve` ends the whole group: whoever resolves tokens decides for how long an earlier result may be used
 * while no server answers.
 */
import { Refusal } from '../platform/errors.ts'
import type { Identity, PermissionWatcher, PermissionHolder } from '../platform/operation.ts'

/** Checks of different groups must not fall together: each waits up to this part of the interval less. */
const JITTER = 0.25

export interface RightsOptions {
  /** Resolves a token of a caller that was admitted before. Throws a Refusal when it is not valid any more. */
  readonly resolve: (token: string | undefined, remote: string | undefined) => Identity | Promise<Identity>
  /** Longest time between two checks of a group, in milliseconds. */
  readonly intervalMs: () => number
}

interface Group {
  readonly token: string | undefined
  readonly remote: string | undefined
  readonly holders: Set<PermissionHolder>
  timer: NodeJS.Timeout | undefined
  /** When its next check begins, by `performance.now`; 0 while one is under way. */
  checkAtMs: number
}

/** An answer with an end that has not lasted yet. */
interface Young {
  readonly token: string | undefined
  readonly remote: string | undefined
  readonly holder: PermissionHolder
  /** How to leave its group, once it is in one. */
  leave: (() => void) | undefined
}

export class Rights implements PermissionWatcher {
  readonly #options: RightsOptions
  readonly #groups = new Map<string, Group>()
  readonly #young = new Set<Young>()
  #sweeper: NodeJS.Timeout | undefined

  constructor(options: RightsOptions) {
    this.#options = options
  }

  /** Tokens with their addresses that are being checked. */
  get groups(): number {
    return this.#groups.size
  }

  /** Checks this caller from now on; returns how to stop. `remote` is its address. */
  keep(token: string | undefined, remote: string | undefined, holder: PermissionHolder): () => void {
    return this.#join({ token, remote, holder }, this.#options.intervalMs())
  }

  /** The same for an answer with an end. The first check comes as soon, and where it is over before the next sweep, none. */
  keepLong(token: string | undefined, remote: string | undefined, holder: PermissionHolder): () => void {
    const young: Young = { token, remote, holder, leave: undefined }
    this.#young.add(young)
    if (!this.#sweeper) this.#sweeper = setTimeout(() => this.#sweep(), this.#options.intervalMs() / 2).unref()
    return () => {
      this.#young.delete(young)
      young.leave?.()
    }
  }

  #sweep(): void {
    this.#sweeper = undefined
    const withinMs = this.#options.intervalMs() / 2
    for (const young of this.#young) young.leave = this.#join(young, withinMs)
    this.#young.clear()
  }

  /** `withinMs`: until the next check of its group, at most. */
  #join({ token, remote, holder }: Omit<Young, 'leave'>, withinMs: number): () => void {
    // No address holds a line break, so two different pairs never have the same key.
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
    const found = await this.#found(group)
    // A holder that ends leaves the set, which may change while it is gone through.
    for (const holder of group.holders) judge(holder, found)
    if (group.holders.size > 0) this.#schedule(group)
  }

  async #found({ token, remote }: Group): Promise<Identity | Refusal> {
    try {
      return await this.#options.resolve(token, remote)
    } catch (error) {
      return refusalOf(error)
    }
  }
}

function judge(holder: PermissionHolder, found: Identity | Refusal): void {
  if (found instanceof Refusal) return holder.end(found)
  try {
    holder.renew(found)
  } catch (error) {
    holder.end(refusalOf(error))
  }
}

function refusalOf(error: unknown): Refusal {
  if (error instanceof Refusal) return error
  return new Refusal('unavailable', 'the rights of the caller could not be checked again')
}
