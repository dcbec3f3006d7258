/**
 * What this room and the top of the program hand to each other.
 */
import type { PolicyFault } from '../config/load.ts'
import type { Level } from '../kit/log.ts'

/** What the command line of `outpost agent` says. */
export interface AgentOptions {
  readonly dev: boolean
  /** 0 means any free port; undefined means what the configuration says. */
  readonly httpPort: number | undefined
  readonly clusterPort: number | undefined
  /** As given; may be relative to the current directory. */
  readonly dataDir: string | undefined
  readonly devRootTokenId: string | undefined
  readonly devNoDemo: boolean
  /** In lower case. */
  readonly nodeId: string | undefined
  readonly logLevel: Level | undefined
  /** Files and directories in the order given. */
  readonly config: readonly string[]
}

/** What can be told of a command without running it. */
export interface CommandFacts {
  readonly name: string
  readonly summary: string
  readonly options: Readonly<Record<string, OptionFacts>>
  readonly operands: { readonly shown: string; readonly choices?: readonly string[] }
}

export interface OptionFacts {
  /** Undefined for a switch. */
  readonly placeholder: string | undefined
  readonly help: string
  readonly choices?: readonly string[]
}

/** What commands need of rooms that this one must not know; `main.ts` hands it over. */
export interface Parts {
  /** Starts the agent and resolves to the exit code when it has ended. */
  startAgent?(options: AgentOptions): Promise<number>
  /** Every command; the dispatcher gives it. */
  commands?(): Promise<readonly CommandFacts[]>
  /** Loads the function that says what is wrong with a policy's text. */
  policyChecker?(): Promise<(text: string) => readonly PolicyFault[]>
}
