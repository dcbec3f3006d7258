/**
 * Where `alloc list` and `alloc status` look: at the allocation directories of this host, or at an agent or server. An
 * address is never answered from the local disk; see docs/decisions/094 for the rule.
 */
import { existsSync } from 'node:fs'
import { agentOf } from './agent-access.ts'
import type { AgentTarget } from './agent-target.ts'
import { allocRoot } from '../../supervisor/alloc-directory.ts'
import type { CommandIo } from '../framework/command-shape.ts'
import { UsageError } from '../framework/options.ts'

export interface AllocSource {
  /** The directory to look in; undefined: only the agent is asked. */
  readonly root: string | undefined
  /** True: nothing else is asked when the directory has no match. */
  readonly isLocalOnly: boolean
  readonly target: AgentTarget
}

/** For the help of both commands. */
export const SOURCE_DETAILS = [
  'With an address (-address, OUTPOST_ADDR, NOMAD_ADDR or VAULT_ADDR) that agent or server answers, and',
  'nothing is read from the local disk. Without an address, the data directory of this host is read,',
  'which needs no agent; if it does not exist, the agent at http://127.0.0.1:4646 answers.',
  '-data-dir reads DIR, whatever the address.',
]

/** Throws CommandError and UsageError. */
export function allocSource(
  values: { readonly 'data-dir': string | undefined; readonly address: string | undefined },
  io: CommandIo,
): AllocSource {
  const { address, 'data-dir': dataDir } = values
  if (dataDir !== undefined && address !== undefined) {
    throw new UsageError('-data-dir reads this host and -address asks another process: give one of them')
  }
  const root = allocRoot(dataDir, io.env)
  const target = agentOf({ address }, io)
  if (dataDir !== undefined) return { root, isLocalOnly: true, target }
  const isLocal = target.from === undefined && existsSync(root)
  return { root: isLocal ? root : undefined, isLocalOnly: false, target }
}
