/**
 * What this room and the top of the program hand to each other.
 */
import type { PolicyTextFault } from '../../config/load.ts'
import type { Level } from '../../platform/log.ts'

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

/** What a drill is made of. */
export interface DrillOptions {
  /** Configuration of the secondary's server: files and directories in the order given. */
  readonly config: readonly string[]
  /** Where the copy is put; beside the database unless given. */
  readonly directory: string | undefined
  /** On loopback; 0 means any free port. */
  readonly port: number
}

/** A copy of a secondary that is promoted, asked and removed. Its steps come in this order; all reject with a text for the operator. */
export interface Drill {
  /** Where the copy lies while there is one. */
  readonly directory: string
  /** A copy of an earlier drill, which was killed, was found there and removed. */
  readonly removedLeftover: boolean
  readonly space: { readonly neededBytes: number; readonly leftFreeBytes: number; readonly freeBytes: number }
  /** Copies the entries of one moment. */
  copy(): Promise<{ entries: number; bytes: number; sequence: number; epoch: number }>
  /** Opens the copy; resolves with how many key shares it takes, 0 where the machine's own key has opened it. */
  open(): Promise<number>
  /** Takes one share; true when it has opened with it. */
  unseal(share: string): Promise<boolean>
  /** Serves reads; resolves with the URL and a root token that only the copy knows. */
  serve(): Promise<{ readonly url: string; readonly token: string }>
  /** Resolves with what a look at all entries of the copy has found; nothing where all are what was last written. */
  integrity(): Promise<readonly string[]>
  /** Ends what runs and removes the copy from the disk. It may be called at any time, and twice. */
  close(): Promise<void>
}

/** What commands need of rooms that this one must not know; `main.ts` hands it over. */
export interface Parts {
  /** Starts the agent and resolves to the exit code when it has ended. */
  startAgent?(options: AgentOptions): Promise<number>
  /** Prepares a drill; `signal` ends it. Rejects with a text for the operator, and nothing was written then. */
  beginDrill?(options: DrillOptions, signal: AbortSignal): Promise<Drill>
  /** Every command; the dispatcher gives it. */
  commands?(): Promise<readonly CommandFacts[]>
  /** Loads the function that says what is wrong with a policy's text. */
  policyChecker?(): Promise<(text: string) => readonly PolicyTextFault[]>
}
