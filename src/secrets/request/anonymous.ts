/** A caller without a token: it may do nothing. */
import type { Decision } from '../policies/acl.ts'
import type { Admitted } from '../tokens/token-admission.ts'

const NOTHING: Decision = { allowed: false, reason: 'no rule', sudo: false, rules: [], mfaMethods: [] }

export const NOBODY: Admitted = {
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
  judge: () => NOTHING,
  reaches: () => false,
  lasts: () => true,
}
