/** A host room of real files for the tests of allocations, state, metadata and collection. */
import { mkdirSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type LogFields, type Level, type Logger } from '../../../src/platform/log.ts'
import { admit, type AnyOperation, type Call, type Identity } from '../../../src/platform/operation.ts'

export interface Line {
  readonly level: Level
  readonly message: string
  readonly fields: LogFields
}

/** A logger that keeps its lines. */
export function recordingLogger(): Logger & { readonly lines: Line[] } {
  const lines: Line[] = []
  const at =
    (level: Level) =>
    (message: string, fields: LogFields = {}) =>
      void lines.push({ level, message, fields })
  const log = {
    lines,
    trace: at('trace'),
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    named: () => log,
    enabled: () => true,
  }
  return log
}

let serial = 0

/** A fresh UUID whose order is the order of the calls. */
export function nextId(): string {
  return `6f1c0b9e-2f0a-4a51-9d0c-${(++serial).toString(16).padStart(12, '0')}`
}

export type ManifestValue = Readonly<Record<string, unknown>>

/** Writes the manifest of an allocation as a supervisor does: temporary name, then rename. */
export function writeManifest(allocDir: string, id: string, value: ManifestValue | string): void {
  const directory = join(allocDir, id)
  mkdirSync(join(directory, 'alloc', 'logs'), { recursive: true })
  const text = typeof value === 'string' ? value : JSON.stringify({ ID: id, ...value })
  writeFileSync(join(directory, '.alloc.json.new'), text)
  renameSync(join(directory, '.alloc.json.new'), join(directory, 'alloc.json'))
}

/** An ended allocation. */
export function complete(finishedAt = '2026-11-21T10:00:00Z'): ManifestValue {
  return { ClientStatus: 'complete', Tasks: { web: { State: 'dead', FinishedAt: finishedAt } } }
}

/** An identity that may do what is listed: `node:read`, `node:write`, `<namespace>:<capability>`. */
export function identity(...grants: readonly string[]): Identity {
  return {
    accessor: 'test',
    allowsNode: (access) => grants.includes(`node:${access}`),
    allowsAgent: (access) => grants.includes(`agent:${access}`),
    allowsNamespace: (namespace, capability) => grants.includes(`${namespace}:${capability}`),
  }
}

export const root: Identity = {
  accessor: 'root',
  allowsNode: () => true,
  allowsAgent: () => true,
  allowsNamespace: () => true,
}

/** Does what a transport does with an operation: looks up, authorizes, runs. */
export function performed(operation: AnyOperation, input: unknown, call: Call = callOf()) {
  return operation.run(input, call, admit(operation, input, call.identity))
}

export function callOf(caller: Identity = root): Call {
  const raw = { params: {}, query: [], headers: {}, body: undefined }
  return { requestId: 'r', identity: caller, signal: new AbortController().signal, raw, token: undefined, hops: 0 }
}
