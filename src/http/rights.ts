/**
 * Checks the rights of callers again while their answers last.
 *
 * A stream can stay open for days, and its caller's token can be revoked, expire or lose a policy meanwhile. Each process
 * keeps the callers of its endless answers here. Callers with the same token and address are one group: one timer and one
 * question for all of them. Each member then judges the identity that was found, and is ended when that refuses.
 *
 * An error of `resolve` ends the whole group: whoever resolves tokens decides for how long an earlier result may be used
 * while no server answers.
 */
import { Refusal } from '../kit/errors.ts'
import type { Identity } from '../kit/operation.ts'

/** Checks of different groups must not fall together: each waits up to this part of the interval less. */
const JITTER = 0.25

export interface RightsOptions {
  /** Resolves a token of a caller that was admitted before. Throws a Refusal when it is not valid any more. */
  readonly resolve: (token: string | undefined, remote: string | undefined) => Identity | Promise<Identity>
  /** Longest time between two checks of a group, in milliseconds. */
  readonly intervalMs: () => number
}

/** One endless answer. */
export interface Holder {
  /** Judges its caller again with the present identity. Throws a Refusal when it has no right to the answer any more. */
  renew(identity: Identity): void
  /** Ends the answer. It is not called again after this. */
  end(refusal: Refusal): void
}

interface Group {
  readonly token: string | undefined
  readonly remote: string | undefined
  readonly holders: Set<Holder>
  timer: NodeJS.Timeout | undefined
}

export class Rights {
  readonly #options: RightsOptions
  readonly #groups = new Map<string, Group>()

  constructor(options: RightsOptions) {
    this.#options = options
  }

  /** Tokens with their addresses that are being checked. */
  get groups(): number {
    return this.#groups.size
  }

  /** Checks this caller from now on; returns how to stop. `remote` is its address. */
  keep(token: string | undefined, remote: string | undefined, holder: Holder): () => void {
    // No address holds a line break, so two different pairs never have the same key.
    const key = `${remote ?? ''}\n${token ?? ''}`
    const group = this.#groups.get(key) ?? { token, remote, holders: new Set(), timer: undefined }
    if (group.holders.size === 0) {
      this.#groups.set(key, group)
      this.#schedule(group)
    }
    group.holders.add(holder)
    return () => {
      group.holders.delete(holder)
      if (group.holders.size > 0 || this.#groups.get(key) !== group) return
      clearTimeout(group.timer)
      this.#groups.delete(key)
    }
  }

  #schedule(group: Group): void {
    const waitMs = this.#options.intervalMs() * (1 - JITTER * Math.random())
    group.timer = setTimeout(() => void this.#check(group), waitMs).unref()
  }

  async #check(group: Group): Promise<void> {
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

function judge(holder: Holder, found: Identity | Refusal): void {
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
