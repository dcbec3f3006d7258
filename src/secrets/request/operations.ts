/** The core as operations. */
import { type AnyOperation, handle } from '../../platform/operation.ts'
import { Refusal } from '../../platform/errors.ts'
import { AGENT_LOGIN, CORE_VERBS, isForAgents } from './core-endpoints.ts'
import { handle as answer } from './handle.ts'
import type { Core } from './request-states.ts'

/** `verbs`: those that are served. */
export function secretsOperations(core: Core, verbs = CORE_VERBS): AnyOperation[] {
  return verbs.map(({ verb, endpoint }) =>
    handle(endpoint, () => ({
      run: (raw, call) => answer(core, verb, raw, call),
      takesLongBody: (token, remote) => core.knows(token, remote),
    })).in(core),
  )
}

/** What agents may ask over NATS. */
export function agentLoginOperation(core: Core): AnyOperation {
  return handle(AGENT_LOGIN, () => ({
    async run(raw, call) {
      const path = raw.params['path'] ?? ''
      if (!isForAgents(path, core.isActive ? core.find(path)?.mount.record.type : 'approle')) {
        throw new Refusal('permission_denied', 'an agent may log in by AppRole, and renew and revoke its own token')
      }
      return answer(core, 'write', raw, call)
    },
  })).in(core)
}
