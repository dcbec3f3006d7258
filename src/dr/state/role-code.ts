/**
 * The code of the role: the role in `local/replication/state` is authenticated under the membership key of the set
 * (`replication-context.ts`), so an attacker who can write the database of a secondary, without a key, cannot promote it or disable its
 * replication.
 *
 * The code covers what affects peers or which cluster serves (`statementOf`). It does not cover what a sealed member changes:
 * positions, acknowledgements, addresses, forks that a secondary learns. `ReplicationState` writes it in the commit of
 * the state, so no crash separates the two.
 *
 * A member that starts sealed cannot verify. Until it is unsealed it makes no proofs, finishes no promotion and serves nothing. Once
 * verified, the state in memory is authoritative for the life of the process.
 *
 * The epoch of a secondary is stored in the database, and rows raise it while it is sealed. A secondary therefore proves no epoch
 * above `provenEpoch`, which the code covers: its epoch as a primary, or one that its primary has shown.
 */
import { timingSafeEqual } from 'node:crypto'
import { messageOf, Refusal } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import type { MembershipKey } from './replication-context.ts'
import { type ReplicationState, STATE_PATH, type ReplicationRecord } from './replication-state.ts'

export interface RoleStore {
  readonly epoch: number
  readonly hasRoleCode: boolean
  position(): { readonly epoch: number }
  setRoleCode(): Promise<void>
}

interface RoleCheckContext {
  readonly logger: Logger
  readonly state: ReplicationState
  readonly store: RoleStore
}

const WHAT_TO_DO =
  'The server stays sealed, and its peers are not affected. Stop the server and find out which program changed its database. On a secondary, move the ' +
  'database away and enable it again with a token of the primary (sys/replication/dr/primary/secondary-token). On a primary, move the ' +
  'database away and restore a snapshot'

/** The role, or the epoch, was changed by another program. */
class TamperedRoleError extends Refusal {
  constructor(what: string, found: string) {
    super('host_error', `${what} of the database was changed by another program: ${found}. ${WHAT_TO_DO}`)
  }
}

/** What the code of this state covers. The first element separates it from the statements of proofs. */
function statementOf(state: ReplicationRecord): string {
  const { deposed, forks, mode, notice, promoting, provenEpoch, setId, upstream } = state
  const owed = notice && [notice.epoch, notice.upstream.setId, notice.upstream.id, ...wordsOf(notice.fork)]
  const roles = {
    disabled: [],
    primary: [owed, deposed?.epoch, wordsOf(forks.at(-1))],
    secondary: [upstream?.id, provenEpoch],
  }
  return JSON.stringify(['role of a member, 1', mode, setId, promoting, ...roles[mode]])
}

function wordsOf(fork: ReplicationRecord['forks'][number] | undefined): (string | number)[] {
  return fork ? [fork.sequence, fork.epoch, Buffer.from(fork.checksum).toString('base64')] : []
}

export class RoleCode {
  readonly #key: MembershipKey
  #isVerified = false
  #refusal: string | undefined

  constructor(key: MembershipKey) {
    this.#key = key
  }

  /** Why the state is refused; undefined if it is valid or not verified yet. */
  get refusal(): string | undefined {
    return this.#refusal
  }

  /** Whether this cluster is unsealed and its state was verified. */
  get isUsable(): boolean {
    return this.#isVerified && !this.#key.isSealed
  }

  /**
   * Verifies the state, and writes its code if it has none or one under an earlier key. Rejects with TamperedRoleError if another program
   * changed the state; does nothing while this cluster is sealed.
   */
  async admit({ logger, state, store }: RoleCheckContext): Promise<void> {
    try {
      this.#verify(state.now, store)
      this.#refusal = undefined
    } catch (error) {
      this.#refusal = messageOf(error)
      logger.error('the replication role was changed by another program, the server stays sealed', {
        error: this.#refusal,
      })
      throw error
    }
    const { code, setId } = state.now
    const due = this.codeFor(state.now, state.now)
    if (!due || (setId === '' && !code)) return
    try {
      if (!code || !due.equals(code)) await state.change(() => ({}))
      if (!store.hasRoleCode) await store.setRoleCode()
    } catch (error) {
      logger.warn('writing the authentication code of the role failed, will retry at the next unseal', {
        error: messageOf(error),
      })
    }
  }

  /**
   * As `admit`, for a member of an HA cluster that is not the active one: it does not change the state. A code that the state has must be there from
   * now on.
   */
  async inspect(state: ReplicationRecord, store: RoleStore): Promise<void> {
    this.#verify(state, store)
    if (state.code && !store.hasRoleCode) await store.setRoleCode()
  }

  #verify(state: ReplicationRecord, store: RoleStore): void {
    // Data that is about to be wiped has no code and proves nothing.
    const isWiped = state.mode === 'secondary' && state.isWipeDue
    if (this.#isVerified || this.#key.isSealed || isWiped) return
    const code = this.#key.codeOf(statementOf(state))
    if (!code) return
    const entry = `entry ${STATE_PATH}`
    const found = `it has mode "${state.mode}"${state.promoting === undefined ? '' : ` and a promotion to epoch ${state.promoting}`}`
    if (!state.code) checkWithoutCode(state, store, `${found}, and no authentication code of the replication set`)
    else if (state.code.length !== code.length || !timingSafeEqual(state.code, code))
      throw new TamperedRoleError(entry, `${found}, which does not match its authentication code`)
    else checkEpoch(state, store)
    this.#isVerified = true
  }

  /** The code for `next`; undefined where it has none. `now`: the state that `next` replaces. */
  codeFor(next: ReplicationRecord, now: ReplicationRecord): Buffer | undefined {
    // The current key belongs to the data to be wiped.
    if (next.isWipeDue) return undefined
    const code = this.isUsable ? this.#key.codeOf(statementOf(next)) : undefined
    if (code) return code
    return now.code && statementOf(next) === statementOf(now) ? Buffer.from(now.code) : undefined
  }

  /** The key for proofs: sealed until the state was verified. */
  get key(): MembershipKey {
    const isSealed = () => !this.isUsable
    const codeOf = (text: string) => this.#key.codeOf(text)
    return {
      get isSealed() {
        return isSealed()
      },
      codeOf: (text) => (isSealed() ? undefined : codeOf(text)),
    }
  }
}

/** A secondary sees an epoch above its proven one in rows of its primary only. */
function checkEpoch({ mode, promoting = 0, provenEpoch = 0 }: ReplicationRecord, store: RoleStore): void {
  const { epoch } = store
  const logged = store.position().epoch
  if (mode !== 'secondary' || epoch <= Math.max(promoting, provenEpoch) || epoch === logged) return
  const found = `it is ${epoch}, the log is in epoch ${logged}, and this cluster has proof of ${provenEpoch}`
  throw new TamperedRoleError('fact "epoch"', found)
}

/**
 * A state of an earlier version, or of a secondary that was not unsealed since it was enabled. A secondary is accepted: it proves no
 * epoch that its primary has not shown.
 */
function checkWithoutCode(
  { deposed, mode, notice, promoting }: ReplicationRecord,
  store: RoleStore,
  found: string,
): void {
  const entry = `entry ${STATE_PATH}`
  if (store.hasRoleCode) throw new TamperedRoleError(entry, `${found}, but according to secrets.db.seen it had one`)
  if (promoting !== undefined) throw new TamperedRoleError(entry, found)
  if (mode !== 'primary') return
  const { epoch } = store
  const logged = store.position().epoch
  const isOfLog = epoch === logged || epoch === deposed?.epoch
  if (isOfLog && (!notice || notice.epoch === logged)) return
  throw new TamperedRoleError(entry, `${found}; the database is in epoch ${epoch}, its log in epoch ${logged}`)
}
