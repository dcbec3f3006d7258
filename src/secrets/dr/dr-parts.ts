/** What the paths of replication use of the core. */
import type { HeldKey } from '../../storage/barrier/held-key.ts'
import type { Seal } from '../../storage/seal/seal.ts'
import type { EngineCall } from '../../engines/framework/engine.ts'
import type { Logger } from '../../platform/log.ts'
import type { ResponseWrapping } from '../wrapping/wrapping.ts'
import type { ReplicationSide } from './dr-replication.ts'

export interface ReplicationParts {
  /** Throws a Refusal (503) while the core is not active. */
  readonly open: { readonly wrapping: ResponseWrapping }
  readonly options: {
    readonly seal: Seal
    readonly logger: Logger
    /** Absent where the process does not replicate. */
    readonly replication?: ReplicationSide
  }
  readonly barrier: { readonly standby: HeldKey }
  /** Milliseconds since 1970, by the clock that lives are measured with. */
  now(): number
}

/** What operators do is told to the log, and callers without a token are kept from doing much of it. */
export interface Doorway {
  readonly tell: (what: string, call: EngineCall, more?: Readonly<Record<string, string>>) => void
  /** Of PGP keys. */
  readonly pgpRate: { check(keys: readonly string[], call: EngineCall): void }
}

/** Undefined where the process does not replicate. */
export function sideOf(core: ReplicationParts): ReplicationSide | undefined {
  return core.options.replication
}
