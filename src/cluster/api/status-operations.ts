/**
 * What clients ask a server about itself and its like: leader, peers, members, regions, namespaces, licence. Servers here
 * are equals and know nothing of each other, so each names itself: whoever it was that answered can be asked again.
 */
import { handle, type Identity, type NamespaceCapability, type RoomEndpoint } from '../../platform/operation.ts'
import { Refusal } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import { schema } from '../../platform/schema.ts'
import { list } from './listing.ts'
import type { ServerParts } from './nodes-operations.ts'
import { LIST_ENDPOINT, listFields, prefixField, readFields, requireNode, requireRegion } from './query.ts'
import type { RosterQueries } from '../roster/roster-queries.ts'

export interface ServerFacts {
  readonly name: string
  readonly datacenter: string
  readonly version: string
  /** Names this process; a UUID. */
  readonly id: string
  /** Of the HTTP API, `host:port`. Asked when needed: a port may be chosen late. */
  readonly address: () => string
}

const regionFields = { region: readFields.region }

interface StatusParts extends ServerParts {
  readonly facts: ServerFacts
}

/** A value that is the same for everybody who may ask. */
function said(
  about: { readonly name: string; readonly summary: string; readonly path: string; readonly needsNode?: boolean },
  value: (parts: StatusParts) => unknown,
): RoomEndpoint<StatusParts> {
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
    (parts: StatusParts) => ({
      async run(input) {
        requireRegion(input.region, parts.region)
        return value(parts)
      },
    }),
  )
}

export const leader = said(
  { name: 'leader', path: 'status/leader', summary: 'The address of this server' },
  ({ facts }) => facts.address(),
)
export const peers = said(
  { name: 'peers', path: 'status/peers', summary: 'The address of this server, in a list' },
  ({ facts }) => [facts.address()],
)
export const regions = said(
  { name: 'regions', path: 'regions', summary: 'The region of this server, in a list' },
  ({ region }) => [region],
)
export const agentMembers = said(
  { name: 'members', path: 'agent/members', summary: 'This server', needsNode: true },
  members,
)

function members({ facts, region }: StatusParts): unknown {
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

function hostAndPort(address: string): { host: string; port: number } {
  const mark = address.lastIndexOf(':')
  return { host: address.slice(0, mark).replace(/^\[(.*)\]$/, '$1'), port: Number(address.slice(mark + 1)) }
}

const SEEING: readonly NamespaceCapability[] = ['list-jobs', 'read-job', 'submit-job', 'read-logs', 'read-fs']
const NAMESPACE_FIELDS: ReadonlySet<string> = new Set(['CreateIndex', 'Description', 'ModifyIndex', 'Name', 'Quota'])
const namespacesFields = { ...listFields, prefix: prefixField }

export const namespaces = handle(
  {
    name: 'server.namespaces',
    summary: 'The namespaces that allocations name, as far as the caller may see them',
    http: ['GET /v1/namespaces'],
    ...LIST_ENDPOINT,
    input: schema(namespacesFields),
    longPoll: (input) => input.index > 0,
    authorize: () => undefined,
  },
  ({ queries, region }: ServerParts) => ({
    run(input, call) {
      requireRegion(input.region, region)
      const { next_token: from, reverse } = input
      return list(
        queries,
        {
          topic: { kind: 'allocations' },
          records() {
            const names = queries.namespaces().filter((name) => name.startsWith(input.prefix))
            if (reverse) names.reverse()
            return from === undefined ? names : names.filter((name) => (reverse ? name <= from : name >= from))
          },
          isSeen: (name) => SEEING.some((capability) => call.identity.allowsNamespace(name, capability)),
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

/** There is no licence to show: 204, as an installation without one answers. */
export const license = handle(
  {
    name: 'server.license',
    summary: 'Nothing: no licence is needed',
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

/** Starts collection on a node; see `systemGc`. */
export interface NodeCaller {
  /** Resolves when the node has answered; rejects with what it refused. */
  (
    nodeId: string,
    options: { readonly identity: Identity; readonly requestId: string; readonly hops: number },
  ): Promise<unknown>
}

interface GcParts extends ServerParts {
  readonly collect: NodeCaller
  readonly logger: Logger
}

/** Nodes that are asked at once. */
const ASKED_AT_ONCE = 64

/**
 * `PUT /v1/system/gc`: asks every node that is there to collect what has ended, and answers without waiting for them, as
 * the compatible system does. Each node judges the caller again. One round at a time.
 */
export const systemGc = handle(
  {
    name: 'server.system_gc',
    summary: 'Start to remove the directories of all allocations that have ended, on every node',
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
  ({ queries, region, collect, logger }: GcParts) => {
    let isRunning = false
    return {
      async run(input, { identity, requestId, hops }) {
        requireRegion(input.region, region)
        if (isRunning) return
        isRunning = true
        const all = async () => {
          const { asked, failed, error } = await callEveryNode(queries, (id) =>
            collect(id, { identity, requestId, hops }),
          )
          isRunning = false
          if (failed === 0) logger.info('every node was asked to collect', { nodes: asked })
          else logger.warn('not every node took the order to collect', { nodes: asked, failed, error })
        }
        void all()
      },
    }
  },
)

/** Calls each node that is there, so many at once. `error`: what the first one that failed said. */
export async function callEveryNode(
  queries: RosterQueries,
  call: (nodeId: string) => Promise<unknown>,
  runSlices = ASKED_AT_ONCE,
) {
  const outcome = { asked: 0, failed: 0, error: '' }
  const ids = queries.nodeIds.read({ prefix: '', reverse: false })
  const worker = async () => {
    for (const id of ids) {
      if (queries.roster.node(id)?.status !== 'ready') continue
      outcome.asked++
      await call(id).catch((error: unknown) => {
        outcome.failed++
        outcome.error ||= error instanceof Error ? error.message : String(error)
      })
    }
  }
  await Promise.all(Array.from({ length: runSlices }, worker))
  return outcome
}
