/** A caller without a token: it may do nothing. */
import type { Decision } from '../policies/acl.ts'
import type { AdmittedCaller } from '../tokens/token-admission.ts'

const NOTHING: Decision = { allowed: false, reason: 'no rule', sudo: false, rules: [], mfaMethods: [] }

export const NOBODY: AdmittedCaller = {
  caller: {
    accessor: '',
    tokenHash: '',
    tokenType: 'batch',
    displayName: '',
    policies: [],
    isRoot: false,
    entityId: '',
  },
  leaseOwner: '',
  decide: () => NOTHING,
  reaches: () => false,
  isValid: () => true,
}
