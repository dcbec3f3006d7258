/** What commands need of modules that this one does not import. `main.ts` passes the functions. */
import type { PolicyTextFault } from '../../config/load.ts'
import type { Level } from '../../platform/log.ts'

/** The command line of `outpost agent`. */
export interface AgentOptions {
  readonly dev: boolean
  /** 0: any free port; undefined: the port of the configuration. */
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

export interface DrillOptions {
  /** Configuration of the secondary's server: files and directories in the order given. */
  readonly config: readonly string[]
  /** Directory of the copy; undefined: beside the database. */
  readonly directory: string | undefined
  /** On loopback; 0 means any free port. */
  readonly port: number
}

/** A copy of a secondary that is promoted, read and removed. The steps run in this order; all reject with a text for the operator. */
export interface Drill {
  readonly directory: string
  /** The copy of an earlier drill, which was killed, was found and removed. */
  readonly removedLeftover: boolean
  readonly space: { readonly neededBytes: number; readonly leftFreeBytes: number; readonly freeBytes: number }
  /** Copies the entries of one commit. */
  copy(): Promise<{ entries: number; bytes: number; sequence: number; epoch: number }>
  /** Opens the copy; resolves with the required number of key shares, 0 if the static key has opened it. */
  open(): Promise<number>
  /** Takes one share; true when it has opened with it. */
  unseal(share: string): Promise<boolean>
  /** Serves reads; resolves with the URL and a root token of the copy. */
  serve(): Promise<{ readonly url: string; readonly token: string }>
  /** Checks all entries of the copy; resolves with the faults found. */
  integrity(): Promise<readonly string[]>
  /** Stops the copy and removes it from the disk. Can be called at any time, and twice. */
  close(): Promise<void>
}

/** Groups of checks, in the order in which they run. */
export const DIAGNOSIS_GROUPS = [
  'service',
  'files',
  'disk',
  'ports',
  'certificates',
  'nats',
  'clock',
  'database',
  'seal',
  'versions',
] as const
export type DiagnosisGroup = (typeof DIAGNOSIS_GROUPS)[number]

export interface DiagnosisFinding {
  /** Group and name: `nats/login`. */
  readonly check: string
  readonly status: 'ok' | 'warning' | 'failure' | 'skipped'
  readonly text: string
  /** What an operator does; for warnings and failures. */
  readonly next?: string
}

export interface DiagnosisOptions {
  /** Files and directories in the order given. */
  readonly config: readonly string[]
  readonly skip: readonly DiagnosisGroup[]
}

/** Undefined members are absent in tests and in processes without a daemon. */
export interface DaemonServices {
  /** Starts the agent and resolves to the exit code when it has ended. */
  startAgent?(options: AgentOptions): Promise<number>
  /** Prepares a drill; `signal` ends it. Rejects with a text for the operator, with nothing written. */
  beginDrill?(options: DrillOptions, signal: AbortSignal): Promise<Drill>
  /** Checks this host; findings in the order of the checks. */
  diagnose?(options: DiagnosisOptions): AsyncIterable<DiagnosisFinding>
  /** Loads the function that reports the faults of a policy document. */
  policyChecker?(): Promise<(text: string) => readonly PolicyTextFault[]>
}
