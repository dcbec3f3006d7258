/** `/v1/agent/permissions`: what the caller may do on hosts, so that an interface offers only permitted actions. */
import { type Access, handle, type Identity, NAMESPACE_CAPABILITIES } from '../platform/operation.ts'
import { type InputOf, queryText, schema } from '../platform/schema.ts'

const fields = {
  namespace: queryText({ description: 'Namespace of the capabilities', fallback: 'default' }),
}

const ACCESS = ['read', 'write'] as const

const accessOf = (allows: (access: Access) => boolean) => ACCESS.filter((access) => allows(access))

function permissionsOf(identity: Identity, { namespace }: InputOf<typeof fields>) {
  return {
    Agent: accessOf((access) => identity.allowsAgent(access)),
    Node: accessOf((access) => identity.allowsNode(access)),
    Namespace: namespace,
    Capabilities: NAMESPACE_CAPABILITIES.filter((capability) => identity.allowsNamespace(namespace, capability)),
  }
}

const names = (choices: readonly string[]) => ({ type: 'array', items: { type: 'string', enum: choices } })

export const agentPermissions = handle(
  {
    name: 'agent.permissions',
    summary: 'Read what the caller may do on hosts and in a namespace',
    http: ['GET /v1/agent/permissions'],
    target: 'server',
    input: schema(fields),
    output: 'json',
    result: {
      type: 'object',
      properties: {
        Agent: names(ACCESS),
        Node: names(ACCESS),
        Namespace: { type: 'string' },
        Capabilities: names(NAMESPACE_CAPABILITIES),
      },
      required: ['Agent', 'Node', 'Namespace', 'Capabilities'],
    },
    errorFormat: 'plain',
    authorize: () => undefined,
  },
  () => ({ run: (input, { identity }) => Promise.resolve(permissionsOf(identity, input)) }),
)
