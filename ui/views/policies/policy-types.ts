/**
 * The evaluation of policies in the browser: the code of the server and of `outpost policy check`, bundled for the page. So a policy is
 * checked before it is saved, without a request. Its sources need the types of Node, so the page declares what it uses of them.
 */

export const VERBS = ['read', 'list', 'scan', 'create', 'update', 'patch', 'delete'] as const
export type PolicyVerb = (typeof VERBS)[number]

export interface PolicyDocument {
  readonly file: string
  readonly text: string
}

export interface PolicyQuestion {
  readonly operation: PolicyVerb
  /** Without a leading slash. */
  readonly path: string
  readonly data?: Readonly<Record<string, unknown>>
  readonly wrapTtlSeconds?: number | undefined
  readonly entityFacts: ReadonlyMap<string, string>
}

export interface PolicyAnswer {
  readonly allowed: boolean
  readonly verdict: string
  readonly reasons: readonly string[]
  readonly unmatched: readonly string[]
  readonly warnings: readonly string[]
  readonly faults: readonly string[]
}

export type AnswerPolicy = (
  documents: readonly PolicyDocument[],
  question: PolicyQuestion,
  nowMs: number,
) => PolicyAnswer
