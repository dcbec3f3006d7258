/**
 * Configuration: from files and flags to one checked, frozen `Config`.
 *
 * How it works. Each file is read to a tree that knows where everything stands (`hcl.ts`, `json.ts`, `tree.ts`). The
 * schema (`schema.ts`, made of the kinds in `fields.ts`) reads a tree into raw settings, each remembering its place.
 * Raw settings of several files are merged setting by setting, later ones over earlier ones; flags are read through
 * the very same schema as if they were a last file. `defaults.ts` fills in defaults and applies the rules that concern
 * several settings. So there is one description of each setting, and a fault found in any step can name its line.
 *
 * Promises:
 * - All faults are reported at once, each as `file:line:column: message`, in the order of the files and of their
 *   lines. Only a file that cannot be parsed at all reports just its first fault; the other files are still checked.
 * - Nothing is ignored silently: unknown keys, wrong types and settings given twice in one file are faults.
 * - What is returned does not change any more and depends on nothing but the files and the options.
 * - No message quotes a value that may be a secret. Secrets do not belong into these files anyway: there are only
 *   hashes of tokens, and names of files that hold credentials.
 *
 * Assumes that the files do not change while they are read (each is read once, as a whole), and that whoever can write
 * them is trusted: they name files that the process will read, and policies.
 *
 * What can go wrong: a file that is missing, unreadable, not UTF-8 or larger than `FILE_BYTES_MAX` is a fault like any
 * other. Whether the files that settings name (certificates, credentials) exist is not looked at here: they are opened
 * by whoever uses them, and may well appear later than the configuration. A policy's syntax is checked by a function
 * that the caller brings, because this room knows nothing of policies.
 */
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { hostname as machineName } from 'node:os'
import { join } from 'node:path'
import { errnoOf } from '../platform/errors.ts'
import type { Config } from './config.ts'
import { type PolicyFault, settle } from './defaults.ts'
import { type ConfigFault, type Context, FaultList, type Origin } from './fields.ts'
import { HclError, type Node, type ObjectNode, parseText } from './hcl.ts'
import { type RawConfig, SCHEMA } from './schema.ts'

export type { Config } from './config.ts'
export type { ConfigFault } from './fields.ts'
export type { PolicyFault } from './defaults.ts'

/** Settings of the command line. They count more than any file. */
export interface ConfigFlags {
  readonly httpPort?: number
  readonly clusterPort?: number
  readonly dataDir?: string
  readonly nodeId?: string
  readonly logLevel?: string
}

export interface LoadOptions {
  /** Files and directories as the command line names them, in its order: later ones count more. */
  readonly paths: readonly string[]
  readonly flags?: ConfigFlags
  /** Defaults for a developer's machine: both roles, loopback only, no ACL, late garbage collection. */
  readonly dev?: boolean
  /** Default of `name`; the machine's host name unless given. */
  readonly hostname?: string
  /** Says what is wrong with a policy's text. Without it policies are taken unread. */
  readonly checkPolicy?: (text: string) => readonly PolicyFault[]
}

export interface LoadedConfig {
  readonly config: Config
  /** For the log: what is allowed, but risky or not as asked. */
  readonly warnings: readonly string[]
}

/** Everything that is wrong with a configuration; the message has one line for each fault. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError'
  readonly faults: readonly ConfigFault[]

  constructor(faults: readonly ConfigFault[]) {
    super(faults.map(faultLine).join('\n'))
    this.faults = faults
  }
}

/** No real configuration comes near; something larger was named by mistake. */
const FILE_BYTES_MAX = 4 << 20

/**
 * Reads, merges and checks.
 * @throws ConfigError with all faults.
 */
export function loadConfig(options: LoadOptions): LoadedConfig {
  const faults = new FaultList()
  const warnings: string[] = []
  let raw: RawConfig = {}
  let complete = true
  const read = (origin: Origin, tree: ObjectNode) => {
    const context: Context = { origin, path: '', faults }
    const from = SCHEMA.read({ key: '', keyAt: tree.at, labels: [], value: tree }, context)
    if (from) raw = SCHEMA.merge(raw, from, context)
  }
  for (const path of options.paths) {
    const files = filesOf(path, faults, warnings)
    complete &&= files !== undefined
    for (const file of files ?? []) {
      const tree = readTree(file, faults)
      complete &&= tree !== undefined
      if (tree) read({ name: file, isFlag: false }, tree)
    }
  }
  for (const [name, tree] of flagTrees(options.flags ?? {})) read({ name, isFlag: true }, tree)
  // Whatever seems to be missing may stand in what could not be read.
  if (!complete) throw new ConfigError(ordered(faults.faults))
  const config = settle(raw, {
    dev: options.dev ?? false,
    hostname: options.hostname ?? machineName(),
    faults,
    warnings,
    checkPolicy: options.checkPolicy ?? (() => []),
  })
  if (faults.faults.length > 0) throw new ConfigError(ordered(faults.faults))
  return { config: freeze(config), warnings }
}

/** The files that a path of the command line stands for; undefined when it cannot be looked at. */
function filesOf(path: string, faults: FaultList, warnings: string[]): readonly string[] | undefined {
  try {
    if (!statSync(path).isDirectory()) return [path]
    const files = readdirSync(path)
      // Dot files are editors' (`.agent.hcl.swp`, `.#agent.hcl`); other backups do not end in these.
      .filter((name) => /\.(hcl|json)$/.test(name) && !/^[.#]/.test(name))
      .sort()
      .map((name) => join(path, name))
      .filter((file) => statSync(file).isFile())
    if (files.length === 0) warnings.push(`${path}: no *.hcl or *.json file in this directory`)
    return files
  } catch (error) {
    faults.faults.push({ source: path, message: readFailure(error) })
    return undefined
  }
}

function readFailure(error: unknown): string {
  const errno = errnoOf(error)
  if (errno === 'ENOENT') return 'no such file or directory'
  return errno === 'EACCES' ? 'permission denied' : `cannot be read (${errno ?? 'unknown error'})`
}

function readTree(file: string, faults: FaultList): ObjectNode | undefined {
  const fail = (message: string): undefined => void faults.faults.push({ source: file, message })
  let bytes: Buffer
  try {
    if (statSync(file).size > FILE_BYTES_MAX) return fail(`larger than ${FILE_BYTES_MAX >> 20} MiB`)
    bytes = readFileSync(file)
  } catch (error) {
    return fail(readFailure(error))
  }
  const text = bytes.toString('utf8')
  if (!Buffer.from(text).equals(bytes)) return fail('not UTF-8 text')
  try {
    return parseText(text)
  } catch (error) {
    if (!(error instanceof HclError)) throw error
    faults.faults.push({ source: file, line: error.at.line, column: error.at.column, message: error.message })
    return undefined
  }
}

const NOWHERE = { line: 1, column: 1 }

/** Each flag as the tree of a file that holds only its setting. */
function flagTrees(flags: ConfigFlags): [string, ObjectNode][] {
  const found: [string, ObjectNode][] = []
  const put = (flag: string, path: readonly string[], value: string | number | undefined) => {
    if (value !== undefined) found.push([flag, treeOf(path, value)])
  }
  put('-http-port', ['ports', 'http'], flags.httpPort)
  put('-cluster-port', ['ports', 'cluster'], flags.clusterPort)
  put('-data-dir', ['data_dir'], flags.dataDir)
  put('-node-id', ['client', 'node_id'], flags.nodeId)
  put('-log-level', ['log_level'], flags.logLevel)
  return found
}

function treeOf(path: readonly string[], value: string | number): ObjectNode {
  let node: Node =
    typeof value === 'string'
      ? { kind: 'string', at: NOWHERE, value }
      : { kind: 'number', at: NOWHERE, value, text: String(value) }
  let tree: ObjectNode = { kind: 'object', at: NOWHERE, entries: [] }
  for (const key of path.toReversed()) {
    tree = { kind: 'object', at: NOWHERE, entries: [{ key, keyAt: NOWHERE, labels: [], value: node }] }
    node = tree
  }
  return tree
}

/** By file in the order in which files were first found faulty, then by line and column; what has no place comes last. */
function ordered(faults: readonly ConfigFault[]): ConfigFault[] {
  const sources = [...new Set(faults.map((fault) => fault.source))].filter((source) => source !== undefined)
  const rank = (fault: ConfigFault) => (fault.source === undefined ? sources.length : sources.indexOf(fault.source))
  return faults.toSorted(
    (a, b) => rank(a) - rank(b) || (a.line ?? 0) - (b.line ?? 0) || (a.column ?? 0) - (b.column ?? 0),
  )
}

function faultLine({ source, line, column, message }: ConfigFault): string {
  // A fault is one line, whatever stands in the key or path that it names.
  const shown = message.replaceAll(/[\u0000-\u001f\u007f]/g, '?') // oxlint-disable-line no-control-regex
  return (
    [source, line, column].filter((part) => part !== undefined).join(':') + (source === undefined ? '' : ': ') + shown
  )
}

function freeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value)
    for (const inner of Object.values(value)) freeze(inner)
  }
  return value
}
