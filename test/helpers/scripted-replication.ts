/**
 * A replication module for the endpoints without a link and a second server: a test sets its role, and calls are
 * recorded. Complete pairs of servers are in `test/system/dr-….test.ts`.
 */
import type {
  ReplicationMode,
  DrReplication,
  ReplicationSide,
  UnwrapTarget,
} from '../../src/secrets/dr-endpoints/dr-side.ts'
import type { CoreWorld } from './core-world.ts'

export class ScriptedReplication implements ReplicationSide {
  mode: ReplicationMode = 'disabled'
  primaryAddress: string | undefined
  fence: DrReplication['fence']
  /** Number of status requests, each of which needs the writer thread. */
  statuses = 0
  /** Each call with its arguments. */
  readonly asked: unknown[][] = []
  /** Set once the core exists: it changes with the role. */
  world: CoreWorld | undefined
  #code: Uint8Array | undefined
  /** The error of a refused promotion. */
  refusal: Error | undefined
  /** The response of another server. */
  unwrapped: { status: number; text: string } | Error = {
    status: 400,
    text: '{"errors":["wrapping token is not valid or does not exist"]}',
  }
  readonly unwraps: UnwrapTarget[] = []

  readonly operationToken: ReplicationSide['operationToken'] & { generation: string | undefined } = {
    read: () => this.#code,
    generation: undefined,
    write: async (code, generation) => {
      this.#code = code
      this.operationToken.generation = generation
    },
  }

  unsealed = async (): Promise<void> => undefined

  async unwrap(_token: string, target: UnwrapTarget): Promise<{ status: number; text: string }> {
    this.unwraps.push(target)
    if (this.unwrapped instanceof Error) throw this.unwrapped
    return this.unwrapped
  }

  get dr(): DrReplication {
    const turn = async (name: string, mode: ReplicationMode, ...given: unknown[]) => {
      this.asked.push([name, ...given])
      this.mode = mode
      await (mode === 'secondary' ? this.world?.core.enterStandby() : this.world?.core.leaveStandby())
    }
    const note = async (name: string, ...given: unknown[]) => void this.asked.push([name, ...given])
    return {
      mode: this.mode,
      primaryAddress: this.primaryAddress,
      brief: { mode: this.mode, sync: 'off' },
      fence: this.fence,
      status: async () => {
        this.statuses++
        return { mode: this.mode }
      },
      enablePrimary: (options) => turn('enablePrimary', 'primary', options),
      demote: (options) => turn('demote', 'secondary', options),
      warnings: [],
      disable: () => turn('disable', 'disabled'),
      issueSecondary: async (options) => {
        await note('issueSecondary', options)
        return options.publicKey === undefined ? { bundle: { id: options.id } } : { sealed: 'dr1.sealed' }
      },
      revokeSecondary: (id) => note('revokeSecondary', id),
      generatePublicKey: async () => 'a-public-key',
      openSealedBundle: async (token) => ({ token }),
      parseBundle: (value) => ({ parsed: value }),
      enableSecondary: (bundle) => turn('enableSecondary', 'secondary', bundle),
      promote: async (options) => {
        if (this.refusal) throw this.refusal
        await turn('promote', 'primary', options)
      },
      updatePrimary: (to) => note('updatePrimary', to),
      reindex: (options) => note('reindex', options),
      merkleCheck: async () => ({ merkle_corruption_report: { corrupted_root: false } }),
    }
  }
}
