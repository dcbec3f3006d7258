/**
 * Who belongs to a cluster, as `outpost cluster keys` remembers it: `members.json`, which holds no secret. The keys
 * themselves may leave the directory; what has been given out stays known.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import * as v from 'valibot'
import { mergePermissions, type NatsPermissions, permissionsOf } from '../../../cluster/nats/permissions.ts'
import { isErrno, messageOf } from '../../../platform/errors.ts'
import { replaceFile } from '../../../platform/own-file.ts'
import { CommandError } from '../../framework/command-shape.ts'

const MEMBERS_VERSION = 1

const membersSchema = v.strictObject({
  version: v.literal(MEMBERS_VERSION),
  region: v.string(),
  /** Addresses of NATS as they were given last. */
  nats: v.optional(v.array(v.string())),
  members: v.array(
    v.strictObject({
      name: v.string(),
      server: v.boolean(),
      /** A server without the secrets core. */
      edge: v.optional(v.boolean()),
      /** Of an agent. */
      nodeId: v.optional(v.pipe(v.string(), v.uuid())),
      publicKey: v.pipe(v.string(), v.regex(/^U[A-Z2-7]{55}$/)),
    }),
  ),
})

export interface Member {
  readonly name: string
  readonly server: boolean
  /** A server without the secrets core (`server { secrets = false }`). */
  readonly edge?: boolean | undefined
  /** Set when it is an agent. */
  readonly nodeId?: string | undefined
  readonly publicKey: string
}

export interface Members {
  readonly region: string
  /** Addresses of NATS as they were given last; for members that are added without any. */
  readonly nats?: readonly string[] | undefined
  readonly members: readonly Member[]
}

/** Undefined when there are none yet. Throws CommandError for a file that is not ours. */
export function readMembers(directory: string): Members | undefined {
  const file = join(directory, 'members.json')
  let text: string
  try {
    text = readFileSync(file, 'utf8')
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return undefined
    throw new CommandError(messageOf(error), 1, { cause: error })
  }
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), membersSchema), text)
  if (!parsed.success)
    throw new CommandError(`${file} is not what "outpost cluster keys" writes: restore it, or name another -out`)
  const { region, nats, members } = parsed.output
  return { region, nats, members }
}

/** Writes the list, then what the NATS server includes; whoever reads finds a whole file. */
export function writeMembers(directory: string, members: Members): void {
  const text = JSON.stringify({ version: MEMBERS_VERSION, ...members }, null, 2)
  replaceFile(join(directory, 'members.json'), `${text}\n`, { mode: 0o644 })
  replaceFile(join(directory, 'users.conf'), usersConf(members), { mode: 0o644 })
}

/** Public keys and permissions: nothing that must be hidden. */
export function usersConf({ region, members }: Members): string {
  const users = members.map((member) => {
    const { publish, subscribe } = permissionsOfMember(member, region)
    return [
      `  # ${describe(member)}`,
      `  { nkey: ${member.publicKey}, permissions: {`,
      `    publish: [${publish.map((subject) => JSON.stringify(subject)).join(', ')}]`,
      `    subscribe: [${subscribe.map((subject) => JSON.stringify(subject)).join(', ')}]`,
      '  } }',
    ].join('\n')
  })
  return [
    '# Made by "outpost cluster keys": who may connect, and what each may say and hear. Do not edit: run it again.',
    'users: [',
    ...users,
    ']',
    '',
  ].join('\n')
}

export function describe({ name, server, edge, nodeId }: Omit<Member, 'publicKey'>): string {
  const asServer = edge ? 'server without secrets' : 'server'
  const roles = [server ? asServer : undefined, nodeId && `agent ${nodeId}`].filter((role) => role !== undefined)
  return `${name}: ${roles.join(', ')}`
}

function permissionsOfMember({ server, edge, nodeId }: Member, region: string): NatsPermissions {
  const none: NatsPermissions = { publish: [], subscribe: [] }
  return mergePermissions(
    server ? permissionsOf(edge ? 'edge' : 'server', region) : none,
    nodeId === undefined ? none : permissionsOf({ nodeId }, region),
  )
}
