/**
 * NATS permissions of each member of a cluster, for the configuration of a NATS server. Every subject that an agent may
 * publish or subscribe contains its node ID; `subjects.ts` has the reason.
 */
import { HaSubjects } from './ha-subjects.ts'
import { ANY, type ClusterMember, Subjects } from './subjects.ts'

export interface NatsPermissions {
  readonly publish: readonly string[]
  readonly subscribe: readonly string[]
}

/** `edge`: a server without the secrets core. */
export function permissionsOf(role: 'server' | 'edge' | { readonly nodeId: string }, region: string): NatsPermissions {
  const subjects = new Subjects(region)
  const everyServer: ClusterMember = { serverId: '*' }
  if (role === 'server' || role === 'edge') {
    return {
      publish: [
        subjects.call('*'),
        subjects.flow('*', '*'),
        subjects.describe('*'),
        subjects.serverCall('*', '*'),
        subjects.serverCall('*', '*', 'core'),
        subjects.serverFlow('*', '*', '*'),
        // Answers to the calls that it serves; a node answers under its own ID.
        subjects.reply({ nodeId: '*' }, ANY, '*'),
        subjects.reply(everyServer, ANY, '*'),
        subjects.serverKey,
        subjects.askServers('*'),
        ...(role === 'edge' ? [] : haPublished(region)),
      ],
      subscribe: [
        subjects.serverKey,
        subjects.askServers('*'),
        subjects.serverCall('*', '*'),
        ...(role === 'edge' ? [] : [subjects.serverCall('*', '*', 'core')]),
        subjects.serverFlow('*', '*', '*'),
        subjects.reply(everyServer, '*', '*'),
        subjects.roster('*', '*'),
        ...(role === 'edge' ? [] : [new HaSubjects(region).all]),
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

/**
 * For high availability: the subjects of the members, and the requests to JetStream about their stream and their bucket. No server may
 * delete a stream or its messages.
 */
function haPublished(region: string): string[] {
  const subjects = new HaSubjects(region)
  const streams = [subjects.commitStream, subjects.bucketStream]
  const requests = [
    'STREAM.CREATE',
    'STREAM.UPDATE',
    'STREAM.INFO',
    'STREAM.MSG.GET',
    'STREAM.LEADER.STEPDOWN',
    'DIRECT.GET',
  ]
  return [
    subjects.all,
    `${subjects.bucketPrefix}>`,
    '$JS.API.INFO',
    ...streams.flatMap((stream) => requests.map((request) => `$JS.API.${request}.${stream}`)),
  ]
}

/** A process with both roles has one key with both permissions. */
export function mergePermissions(one: NatsPermissions, other: NatsPermissions): NatsPermissions {
  const of = (name: keyof NatsPermissions) => [...new Set([...one[name], ...other[name]])]
  return { publish: of('publish'), subscribe: of('subscribe') }
}
