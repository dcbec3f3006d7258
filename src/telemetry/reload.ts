/** `/v1/agent/reload`: what SIGHUP does, with an answer that says what came of it. */
import { Refusal } from '../platform/errors.ts'
import { handle } from '../platform/operation.ts'
import { schema } from '../platform/schema.ts'

/** Names of settings as the file spells them, or what kept the configuration from being taken over. */
export type ReloadOutcome =
  | { readonly taken: readonly string[]; readonly waiting: readonly string[] }
  /** `theirs` when the configuration is wrong; otherwise a file that it names, or ours. */
  | { readonly fault: string; readonly theirs: boolean }

const NAMES = { type: 'array', items: { type: 'string' } }

interface ReloadParts {
  readonly reload: () => ReloadOutcome
}

export const agentReload = handle(
  {
    name: 'agent.reload',
    summary: 'Read the configuration again and take over what can change while running',
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
