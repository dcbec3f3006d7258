/**
 * Status of a server: leader, peers, members, regions, namespaces, license. Servers are equal and do not know of each other, so
 * each reports itself, and a client can always address the server that has answered.
 */
import { Refusal } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import { handle, type Identity, type NamespaceCapability, type EndpointBinding } from '../../platform/operation.ts'
import { schema } from '../../platform/schema.ts'
import type { RosterQueries } from '../roster/roster-queries.ts'
import type { RegionServers } from '../roster/region-servers.ts'
import { streamList } from './listing.ts'
import {
  LIST_ENDPOINT,
  listFields,
  prefixField,
  readFields,
  requireNode,
  requireRegion,
  type ServerDeps,
} from './query.ts'
import { SERVER_LIST } from './result-schemas.ts'

export interface ServerFacts {
  readonly name: string
  readonly datacenter: string
  readonly version: string
  /** UUID of this process. */
  readonly id: string
  /** Address of the HTTP API, `host:port`. A function, because the port may be assigned late. */
  readonly address: () => string
}

const regionFields = { region: readFields.region }

interface StatusDeps extends ServerDeps {
  readonly facts: ServerFacts
}

/** An endpoint whose value does not depend on the caller. */
function statusEndpoint(
  about: { readonly name: string; readonly summary: string; readonly path: string; readonly needsNode?: boolean },
  value: (parts: StatusDeps) => unknown,
): EndpointBinding<StatusDeps> {
  return handle(
    {
      name: `server.${about.name}`,
      summary: about.summary,
      http: [`GET /v1/${about.path}`],
      target: 'server',
      input: schema(regionFields),
      output: 'json',
      errorFormat: 'plain',
      ...(about.needsNode ? {} : { open: true }),
      authorize(_input, identity) {
        if (about.needsNode) requireNode(identity)
      },
    },
    (parts: StatusDeps) => ({
      async run(input) {
        requireRegion(input.region, parts.region)
        return value(parts)
      },
    }),
  )
}

export const leader = statusEndpoint(
  { name: 'leader', path: 'status/leader', summary: 'Read the address of this server' },
  ({ facts }) => facts.address(),
)
export const peers = statusEndpoint(
  { name: 'peers', path: 'status/peers', summary: 'Read the address of this server, in a list' },
  ({ facts }) => [facts.address()],
)
export const regions = statusEndpoint(
  { name: 'regions', path: 'regions', summary: 'Read the region of this server, in a list' },
  ({ region }) => [region],
)
export const agentMembers = statusEndpoint(
  { name: 'members', path: 'agent/members', summary: 'List the members: this server only', needsNode: true },
  members,
)

function members({ facts, region }: StatusDeps): unknown {
  const { host, port } = hostAndPort(facts.address())
  const member = {
    Addr: host,
    DelegateCur: 4,
    DelegateMax: 5,
    DelegateMin: 2,
    Name: `${facts.name}.${region}`,
    Port: port,
    ProtocolCur: 2,
    ProtocolMax: 5,
    ProtocolMin: 1,
    Status: 'alive',
    Tags: {
      build: facts.version,
      dc: facts.datacenter,
      id: facts.id,
      port: String(port),
      raft_vsn: '3',
      region,
      role: 'nomad',
      rpc_addr: host,
      vsn: '1',
    },
  }
  return { Members: [member], ServerDC: facts.datacenter, ServerName: facts.name, ServerRegion: region }
}

/** Not in Nomad: there, servers find each other by gossip, and `agent/members` has all. */
export const operatorMembers = handle(
  {
    name: 'server.servers',
    summary: 'List the servers of the region with version, address, core state and role',
    http: ['GET /v1/operator/members'],
    target: 'server',
    input: schema(regionFields),
    output: 'json',
    result: SERVER_LIST,
    errorFormat: 'plain',
    authorize: (_input, identity) => requireNode(identity),
  },
  ({ region, servers }: ServerDeps & { readonly servers: Pick<RegionServers, 'list'> }) => ({
    async run(input) {
      requireRegion(input.region, region)
      return servers.list()
    },
  }),
)

function hostAndPort(address: string): { host: string; port: number } {
  const mark = address.lastIndexOf(':')
  return { host: address.slice(0, mark).replace(/^\[(.*)\]$/, '$1'), port: Number(address.slice(mark + 1)) }
}

/** Capabilities that make a namespace visible. */
const VISIBLE_WITH: readonly NamespaceCapability[] = ['list-jobs', 'read-job', 'submit-job', 'read-logs', 'read-fs']
const NAMESPACE_FIELDS: ReadonlySet<string> = new Set(['CreateIndex', 'Description', 'ModifyIndex', 'Name', 'Quota'])
const namespacesFields = { ...listFields, prefix: prefixField }

export const namespaces = handle(
  {
    name: 'server.namespaces',
    summary: 'List the namespaces of allocations that the caller may see',
    http: ['GET /v1/namespaces'],
    ...LIST_ENDPOINT,
    input: schema(namespacesFields),
    longPoll: (input) => input.index > 0,
    authorize: () => undefined,
  },
  ({ queries, region }: ServerDeps) => ({
    run(input, call) {
      requireRegion(input.region, region)
      const { next_token: from, reverse } = input
      return streamList(
        queries,
        {
          topic: { kind: 'allocations' },
          records() {
            const names = queries.namespaces().filter((name) => name.startsWith(input.prefix))
            if (reverse) names.reverse()
            return from === undefined ? names : names.filter((name) => (reverse ? name <= from : name >= from))
          },
          isVisible: (name) => VISIBLE_WITH.some((capability) => call.identity.allowsNamespace(name, capability)),
          tokenOf: (name) => name,
          text: (name) => JSON.stringify(namespaceValue(name)),
          filtered: { fields: NAMESPACE_FIELDS, value: namespaceValue },
        },
        input,
        call,
      )
    },
  }),
)

function namespaceValue(name: string): Record<string, unknown> {
  return {
    Capabilities: null,
    ConsulConfiguration: null,
    CreateIndex: 1,
    Description: name === 'default' ? 'Default shared namespace' : '',
    Hash: '',
    Meta: null,
    ModifyIndex: 1,
    Name: name,
    NodePoolConfiguration: null,
    Quota: '',
    VaultConfiguration: null,
  }
}

/** Answers 204, as an installation without a license. */
export const license = handle(
  {
    name: 'server.license',
    summary: 'Read the license: empty, because there is none',
    http: ['GET /v1/operator/license'],
    target: 'server',
    input: schema({}),
    output: 'empty',
    emptyStatus: 204,
    errorFormat: 'plain',
    open: true,
    authorize: () => undefined,
  },
  () => ({ run: async () => undefined }),
)

/** Starts garbage collection on a node. */
export interface NodeCollector {
  /** Rejects with the node's refusal. */
  (
    nodeId: string,
    options: { readonly identity: Identity; readonly requestId: string; readonly hops: number },
  ): Promise<unknown>
}

interface GcDeps extends ServerDeps {
  readonly collect: NodeCollector
  readonly logger: Logger
}

/** Concurrent calls to nodes. */
const CONCURRENT_CALLS = 64

/**
 * `PUT /v1/system/gc`: starts garbage collection on all ready nodes, and answers without waiting for them, as the compatible
 * system does. Each node authorizes the caller again. A request during a round does nothing.
 */
export const systemGc = handle(
  {
    name: 'server.system_gc',
    summary: 'Start garbage collection of ended allocations on all nodes',
    http: ['PUT /v1/system/gc'],
    target: 'server',
    input: schema(regionFields),
    output: 'empty',
    errorFormat: 'plain',
    bodyBytesMax: 1 << 16,
    authorize(_input, identity) {
      if (!identity.allowsNode('write')) throw new Refusal('permission_denied', 'Permission denied')
    },
  },
  ({ queries, region, collect, logger }: GcDeps) => {
    let isRunning = false
    return {
      async run(input, { identity, requestId, hops }) {
        requireRegion(input.region, region)
        if (isRunning) return
        isRunning = true
        const round = async () => {
          const { called, failed, error } = await callEveryNode(queries, (id) =>
            collect(id, { identity, requestId, hops }),
          )
          isRunning = false
          if (failed === 0) logger.info('garbage collection requested on all nodes', { nodes: called })
          else logger.warn('garbage collection request failed on some nodes', { nodes: called, failed, error })
        }
        void round()
      },
    }
  },
)

/** Calls all ready nodes. `error` is that of the first failed call. */
export async function callEveryNode(
  queries: RosterQueries,
  call: (nodeId: string) => Promise<unknown>,
  concurrency = CONCURRENT_CALLS,
) {
  const outcome = { called: 0, failed: 0, error: '' }
  const ids = queries.nodeIds.read({ prefix: '', reverse: false })
  const worker = async () => {
    for (const id of ids) {
      if (queries.roster.node(id)?.status !== 'ready') continue
      outcome.called++
      await call(id).catch((error: unknown) => {
        outcome.failed++
        outcome.error ||= error instanceof Error ? error.message : String(error)
      })
    }
  }
  await Promise.all(Array.from({ length: concurrency }, worker))
  return outcome
}
