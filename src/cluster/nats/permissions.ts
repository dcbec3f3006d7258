/**
 * What a NATS server is to permit each member of a cluster, in the words of its configuration file. Everything an agent
 * may say or hear holds its node ID; see `subjects.ts` for why.
 */
import { ANY, type Party, Subjects } from './subjects.ts'

export interface Permissions {
  readonly publish: readonly string[]
  readonly subscribe: readonly string[]
}

/** `edge`: a server without the secrets core. */
export function permissionsOf(role: 'server' | 'edge' | { readonly nodeId: string }, region: string): Permissions {
  const subjects = new Subjects(region)
  const everyServer: Party = { serverId: '*' }
  if (role === 'server' || role === 'edge') {
    return {
      publish: [
        subjects.call('*'),
        subjects.flow('*', '*'),
        subjects.describe('*'),
        subjects.serverCall('*', '*'),
        subjects.serverCall('*', '*', 'core'),
        subjects.serverFlow('*', '*', '*'),
        // For calls that it serves; never in the name of a node.
        subjects.reply({ nodeId: '*' }, ANY, '*'),
        subjects.reply(everyServer, ANY, '*'),
        subjects.serverKey,
        subjects.askServers('*'),
      ],
      subscribe: [
        subjects.serverKey,
        subjects.askServers('*'),
        subjects.serverCall('*', '*'),
        ...(role === 'edge' ? [] : [subjects.serverCall('*', '*', 'core')]),
        subjects.serverFlow('*', '*', '*'),
        subjects.reply(everyServer, '*', '*'),
        subjects.roster('*', '*'),
      ],
    }
  }
  const { nodeId } = role
  return {
    publish: [
      subjects.roster(nodeId, '*'),
      subjects.reply(everyServer, nodeId, '*'),
      subjects.serverCall('*', nodeId),
      subjects.serverFlow('*', nodeId, '*'),
      subjects.askServers(nodeId),
    ],
    subscribe: [
      subjects.serverKey,
      subjects.call(nodeId),
      subjects.flow(nodeId, '*'),
      subjects.describe(nodeId),
      subjects.reply({ nodeId }, '*', '*'),
    ],
  }
}

/** A process of both roles has one key with both permissions. */
export function both(one: Permissions, other: Permissions): Permissions {
  const of = (name: keyof Permissions) => [...new Set([...one[name], ...other[name]])]
  return { publish: of('publish'), subscribe: of('subscribe') }
}
