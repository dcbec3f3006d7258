/** `/v1/agent/reload`: reads the configuration again, as SIGHUP does, and returns the result. */
import { Refusal } from '../platform/errors.ts'
import { handle } from '../platform/operation.ts'
import { schema } from '../platform/schema.ts'

/** Names of applied settings and of those that need a restart, or the reason of the failure. */
export type ReloadOutcome =
  | { readonly taken: readonly string[]; readonly waiting: readonly string[] }
  /** `theirs`: the configuration is invalid; otherwise a file or an internal error. */
  | { readonly fault: string; readonly theirs: boolean }

const NAMES = { type: 'array', items: { type: 'string' } }

interface ReloadParts {
  readonly reload: () => ReloadOutcome
}

export const agentReload = handle(
  {
    name: 'agent.reload',
    summary: 'Reload the configuration and apply what can change at run time',
    http: ['PUT /v1/agent/reload', 'POST /v1/agent/reload'],
    target: 'server',
    input: schema({}),
    output: 'json',
    result: {
      type: 'object',
      properties: { NeedsRestart: NAMES, Reloaded: NAMES },
      required: ['NeedsRestart', 'Reloaded'],
    },
    errorFormat: 'plain',
    authorize(_input, identity) {
      if (!identity.allowsAgent('write')) throw new Refusal('permission_denied', 'Permission denied')
    },
  },
  ({ reload }: ReloadParts) => ({
    async run() {
      const outcome = reload()
      if (!('fault' in outcome)) return { NeedsRestart: outcome.waiting, Reloaded: outcome.taken }
      throw new Refusal(outcome.theirs ? 'invalid_request' : 'host_error', outcome.fault)
    },
  }),
)
