/** A greeting of a host. */
import { Refusal } from '../../src/platform/errors.ts'
import { handle } from '../../src/platform/operation.ts'
import { pathParam, queryText, schema } from '../../src/platform/schema.ts'
import { requireOwnNode } from '../../src/host/allocations/allocation.ts'

const fields = {
  name: pathParam('Who is greeted'),
  node_id: queryText({ description: 'Node that greets; the one the request reaches when absent', fallback: undefined }),
}

export const hello = handle(
  {
    name: 'host.hello',
    summary: 'Read a greeting',
    http: ['GET /v1/client/hello/:name'],
    target: 'node',
    input: schema(fields),
    output: 'json',
    errorFormat: 'plain',
    locate: (input) => ({ nodeId: input.node_id }),
    authorize(_input, identity) {
      if (!identity.allowsNode('read')) throw new Refusal('permission_denied', 'Permission denied')
    },
  },
  ({ nodeId }: { readonly nodeId: string }) => ({
    find(input) {
      requireOwnNode(input.node_id, nodeId)
      if (input.name === '') throw new Refusal('invalid_request', 'name is empty, say who is greeted')
    },
    run: async ({ name }) => ({ Hello: name, NodeID: nodeId }),
  }),
)
