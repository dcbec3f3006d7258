/**
 * `/v1/agent/health` and `/v1/agent/self`, in the shapes that stock clients decode.
 */
import { availableParallelism } from 'node:os'
import { Refusal } from '../platform/errors.ts'
import { handle } from '../platform/operation.ts'
import { type Field, schema } from '../platform/schema.ts'

/** Facts about the process, from the daemon. */
export interface AgentFacts {
  readonly client: boolean
  readonly server: boolean
  readonly nodeId: string
  readonly name: string
  readonly version: string
  /** The configuration with Nomad's names, without secrets. */
  readonly config: () => Readonly<Record<string, unknown>>
  readonly allocations: () => number
}

/** May be repeated, as Nomad's clients do. */
const roles: Field<readonly string[]> = {
  in: 'query',
  type: 'string',
  description: 'Role: client or server; default: both',
  required: false,
  parse: (raw, name) => raw.query.filter(([key, value]) => key === name && value !== '').map(([, value]) => value),
}
const healthFields = { type: roles }

type Health = Readonly<Record<string, { readonly message: string; readonly ok: boolean }>>

/**
 * Health of the roles in `types`, or of all enabled roles if it is empty. A requested role that is not enabled is refused (500).
 */
function healthOf(facts: Pick<AgentFacts, 'client' | 'server'>, types: readonly string[]): Health {
  const health: Record<string, { message: string; ok: boolean }> = {}
  for (const role of ['client', 'server'] as const) {
    const enabled = facts[role]
    if (types.length === 0 ? !enabled : !types.includes(role)) continue
    health[role] = enabled ? { message: 'ok', ok: true } : { message: `${role} not enabled`, ok: false }
  }
  if (Object.values(health).some(({ ok }) => !ok)) throw new Refusal('host_error', JSON.stringify(health))
  return health
}

function statsOf(facts: AgentFacts): Record<string, Record<string, string>> {
  return {
    client: {
      node_id: facts.nodeId,
      known_servers: '',
      num_allocations: String(facts.allocations()),
    },
    runtime: {
      'kernel.name': process.platform,
      // The name in Go.
      arch: process.arch === 'x64' ? 'amd64' : process.arch,
      cpu_count: String(availableParallelism()),
      max_procs: String(availableParallelism()),
      version: process.version,
      pid: String(process.pid),
      uptime_seconds: String(Math.floor(process.uptime())),
      rss_bytes: String(process.memoryUsage.rss()),
    },
  }
}

interface SelfParts {
  readonly facts: AgentFacts
}

export const agentHealth = handle(
  {
    name: 'agent.health',
    summary: 'Read the health of the roles of this process',
    http: ['GET /v1/agent/health'],
    target: 'server',
    input: schema(healthFields),
    output: 'json',
    result: {
      type: 'object',
      additionalProperties: {
        type: 'object',
        properties: { message: { type: 'string' }, ok: { type: 'boolean' } },
        required: ['message', 'ok'],
      },
    },
    errorFormat: 'plain',
    open: true,
    authorize: () => undefined,
  },
  ({ facts }: SelfParts) => ({
    run: async (input) => healthOf(facts, input.type),
  }),
)

export const agentSelf = handle(
  {
    name: 'agent.self',
    summary: 'Read the configuration and state of this process',
    http: ['GET /v1/agent/self'],
    target: 'server',
    input: schema({}),
    output: 'json',
    errorFormat: 'plain',
    authorize(_input, identity) {
      if (!identity.allowsAgent('read')) throw new Refusal('permission_denied', 'Permission denied')
    },
  },
  ({ facts }: SelfParts) => ({
    run: async () => ({
      config: facts.config(),
      // No gossip: the values of a client-only agent.
      member: {
        Addr: null,
        DelegateCur: 0,
        DelegateMax: 0,
        DelegateMin: 0,
        Name: facts.name,
        Port: 0,
        ProtocolCur: 0,
        ProtocolMax: 0,
        ProtocolMin: 0,
        Status: 'none',
        Tags: { build: facts.version },
      },
      stats: statsOf(facts),
    }),
  }),
)
