/** Requests and responses of `sys/internal/ui/policy-check` and `policy-format`. */

export const VERBS = ['read', 'list', 'scan', 'create', 'update', 'patch', 'delete'] as const
export type PolicyVerb = (typeof VERBS)[number]

export interface PolicyDocument {
  readonly name: string
  readonly policy: string
}

export interface PolicyQuestion {
  readonly policies: readonly PolicyDocument[]
  readonly operation: PolicyVerb
  /** Without `/v1/`. */
  readonly path: string
  readonly parameters: Readonly<Record<string, unknown>>
  readonly entity: Readonly<Record<string, string>>
}

/** A text about a position in a policy. */
export interface PolicyNote {
  readonly policy: string
  readonly line: number
  readonly column: number
  readonly text: string
}

export interface PolicyAnswer {
  readonly allowed: boolean
  readonly verdict: string
  readonly reasons: readonly PolicyNote[]
  readonly hint?: string
  readonly unmatched: readonly PolicyNote[]
  readonly warnings?: readonly PolicyNote[]
  readonly faults: readonly PolicyNote[]
}

export interface FormattedPolicy {
  readonly policy: string
  readonly faults: readonly PolicyNote[]
}
