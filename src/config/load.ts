/**
 * Configuration: from files and flags to one checked, frozen `Config`.
 *
 * Each file is parsed to a tree with positions (`hcl.ts`, `json.ts`, `tree.ts`). The schema (`schema.ts`, built from the kinds of settings in
 * `fields.ts`) reads a tree into raw settings, each with its location. The raw settings of several files are merged per setting, later
 * files over earlier ones; flags are read through the same schema like a last file. `defaults.ts` adds the defaults, and `rules.ts`
 * checks the rules that concern several settings. So each setting has one description, and every fault has a location.
 *
 * Promises:
 * - All faults are reported at once as `file:line:column: message`, ordered by file and line. A file that cannot be parsed reports only its
 *   first fault; the other files are still checked.
 * - Unknown keys, wrong types and settings given twice in one file are faults. Nothing is ignored silently.
 * - The result is immutable and depends only on the files and the options; faults also on the TLS files.
 * - No message quotes a value that may be a secret. The files should not contain secrets: they have hashes of tokens and names of files
 *   with credentials.
 *
 * Assumes that the files do not change while they are read (each is read once), and that their authors are trusted: a configuration names
 * files that the process reads, and policies.
 *
 * What can go wrong: a file that is missing, unreadable, not UTF-8 or larger than `FILE_BYTES_MAX` is a fault. TLS files that settings
 * name are checked on request (`tls-checks.ts`). Files with credentials are not: they are read when they are used, and may be created
 * later. The caller passes a function that checks the syntax of policies, because this module does not know policies.
 */
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { hostname as machineName } from 'node:os'
import { join } from 'node:path'
import { errnoOf } from '../platform/errors.ts'
import type { Config } from './config.ts'
import { applyDefaults } from './defaults.ts'
import { checkRules, type PolicyTextFault } from './rules.ts'
import { type ConfigFault, type ReadContext, FaultList, type SettingOrigin } from './fields.ts'
import { HclError, type HclNode, type ObjectNode, parseText } from './hcl.ts'
import { type RawConfig, SCHEMA } from './schema.ts'
import { checkTlsFiles, type TlsCheckOptions } from './tls-checks.ts'

export type { Config } from './config.ts'
export type { ConfigFault } from './fields.ts'
export type { PolicyTextFault } from './rules.ts'

/** Settings of the command line. They override all files. */
export interface ConfigFlags {
  readonly httpPort?: number
  readonly clusterPort?: number
  readonly dataDir?: string
  readonly nodeId?: string
  readonly logLevel?: string
}

export interface LoadOptions {
  /** Files and directories in the order of the command line; later ones override earlier ones. */
  readonly paths: readonly string[]
  readonly flags?: ConfigFlags
  /** Defaults for a developer's machine: both roles, loopback only, no ACL, late garbage collection. */
  readonly dev?: boolean
  /** Default of `name`; the machine's host name unless given. */
  readonly hostname?: string
  /** Checks the text of a policy. Without it policies are not checked. */
  readonly checkPolicy?: (text: string) => readonly PolicyTextFault[]
  /** Checks the TLS files that settings name. Without it they are not opened. */
  readonly tlsFiles?: TlsCheckOptions
}

export interface LoadedConfig {
  readonly config: Config
  /** For the log: valid but risky settings, and adjusted values. */
  readonly warnings: readonly string[]
}

/** All faults of a configuration; the message has one line per fault. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError'
  readonly faults: readonly ConfigFault[]

  constructor(faults: readonly ConfigFault[]) {
    super(faults.map(faultLine).join('\n'))
    this.faults = faults
  }
}

/** Far above the size of a configuration: a larger file was named by mistake. */
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
  const read = (origin: SettingOrigin, tree: ObjectNode) => {
    const context: ReadContext = { origin, path: '', faults }
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
  // Missing settings may be in a file that could not be read.
  if (!complete) throw new ConfigError(ordered(faults.faults))
  const dev = options.dev ?? false
  const config = applyDefaults(raw, { dev, hostname: options.hostname ?? machineName() })
  checkRules(raw, config, { dev, faults, warnings, checkPolicy: options.checkPolicy ?? (() => []) })
  if (options.tlsFiles) checkTlsFiles(raw, { ...options.tlsFiles, faults, warnings })
  if (faults.faults.length > 0) throw new ConfigError(ordered(faults.faults))
  return { config: freeze(config), warnings }
}

/** The files of a path of the command line; undefined when it cannot be read. */
function filesOf(path: string, faults: FaultList, warnings: string[]): readonly string[] | undefined {
  try {
    if (!statSync(path).isDirectory()) return [path]
    const files = readdirSync(path)
      // Excludes the backup files of editors (`.agent.hcl.swp`, `.#agent.hcl`).
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

const NO_POSITION = { line: 1, column: 1 }

/** Each flag as the tree of a file with only its setting. */
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
  let node: HclNode =
    typeof value === 'string'
      ? { kind: 'string', at: NO_POSITION, value }
      : { kind: 'number', at: NO_POSITION, value, text: String(value) }
  let tree: ObjectNode = { kind: 'object', at: NO_POSITION, entries: [] }
  for (const key of path.toReversed()) {
    tree = { kind: 'object', at: NO_POSITION, entries: [{ key, keyAt: NO_POSITION, labels: [], value: node }] }
    node = tree
  }
  return tree
}

/** Ordered by file (by its first fault), line and column; faults without a location come last. */
function ordered(faults: readonly ConfigFault[]): ConfigFault[] {
  const sources = [...new Set(faults.map((fault) => fault.source))].filter((source) => source !== undefined)
  const rank = (fault: ConfigFault) => (fault.source === undefined ? sources.length : sources.indexOf(fault.source))
  return faults.toSorted(
    (a, b) => rank(a) - rank(b) || (a.line ?? 0) - (b.line ?? 0) || (a.column ?? 0) - (b.column ?? 0),
  )
}

function faultLine({ source, line, column, message }: ConfigFault): string {
  // A fault must be one line even if its key or path has control characters.
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
