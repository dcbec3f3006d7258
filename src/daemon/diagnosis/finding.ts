/** Findings of a diagnosis, and what all checks know. */
import type { DiagnosisFinding } from '../../cli/framework/services.ts'
import type { Config } from '../../config/config.ts'

export interface DiagnosisContext {
  readonly config: Config
  /** Configuration files and directories as given. */
  readonly configPaths: readonly string[]
  readonly version: string
  /** Undefined if no process of this configuration serves requests. */
  readonly service: RunningService | undefined
}

export interface RunningService {
  readonly url: string
  /** Version of the running process; empty if it is not known. */
  readonly version: string
  readonly isReady: boolean
  readonly checks: readonly { readonly name: string; readonly state: string; readonly reason: string }[]
  readonly warnings: readonly string[]
}

export type DiagnosisCheck = (context: DiagnosisContext) => Promise<DiagnosisFinding[]> | DiagnosisFinding[]

export function passed(check: string, text: string): DiagnosisFinding {
  return { check, status: 'ok', text }
}

export function warning(check: string, text: string, next: string): DiagnosisFinding {
  return { check, status: 'warning', text, next }
}

export function failure(check: string, text: string, next: string): DiagnosisFinding {
  return { check, status: 'failure', text, next }
}

export function skipped(check: string, text: string): DiagnosisFinding {
  return { check, status: 'skipped', text }
}
