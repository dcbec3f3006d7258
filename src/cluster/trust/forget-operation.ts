/**
 * The order of a server to an agent to forget what it remembers about tokens: the secrets core was sealed. It has no route:
 * only a server can give it, and signs it as any call.
 */
import { Refusal } from '../../platform/errors.ts'
import type { AnyOperation, Identity, Operation } from '../../platform/operation.ts'
import { schema } from '../../platform/schema.ts'

export const FORGET_TOKENS = 'cluster.forget_tokens'

/** In whose name a server gives the order. */
export const SEALED_SERVER: Identity = {
  accessor: 'server',
  allowsNode: () => false,
  allowsAgent: () => true,
  allowsNamespace: () => false,
}

export function forgetOperation(forget: () => void): AnyOperation {
  const operation: Operation<Record<string, never>, unknown> = {
    name: FORGET_TOKENS,
    summary: 'Forget what servers have told about tokens',
    http: [],
    target: 'node',
    input: schema({}),
    output: 'json',
    errorFormat: 'plain',
    authorize(_input, identity) {
      if (!identity.allowsAgent('write')) throw new Refusal('permission_denied', 'Permission denied')
    },
    async run() {
      forget()
      return {}
    },
  }
  return operation
}
