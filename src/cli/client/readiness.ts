/** What `/v1/agent/ready` of a process says, for `outpost status`. */
import type { AgentTarget } from './agent-target.ts'
import { fieldsOf } from '../output/answer.ts'
import { openResponse, responseText } from './http-client.ts'

export interface Readiness {
  readonly ready: boolean
  /** `active` or `standby`. */
  readonly role: string
  readonly checks: readonly { readonly name: string; readonly state: string; readonly reason: string }[]
  readonly warnings: readonly string[]
}

/** Undefined where the other end does not have it, as a server of another program. Throws CommandError. */
export async function readinessOf(target: AgentTarget): Promise<Readiness | undefined> {
  const response = await openResponse(target, { path: '/v1/agent/ready' })
  const told = fieldsOf(parsed(await responseText(response, target)))
  const [checks, warnings] = [told.value('checks'), told.value('warnings')]
  if (!Array.isArray(checks)) return undefined
  return {
    ready: told.boolean('ready'),
    role: told.text('role') || 'active',
    checks: checks.map((each: unknown) => {
      const check = fieldsOf(each)
      return { name: check.text('name'), state: check.text('state'), reason: check.text('reason') }
    }),
    warnings: Array.isArray(warnings) ? warnings.map(String) : [],
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
