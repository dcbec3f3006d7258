/** `outpost cluster keys`: nkeys of agents and servers, and the NATS users with their permissions. */
import { randomUUID } from 'node:crypto'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { createUser, fromSeed } from '@nats-io/nkeys'
import { messageOf } from '../../../platform/errors.ts'
import { fileExists } from '../../../platform/program-file.ts'
import { isUuid } from '../../../platform/schema.ts'
import { CommandError, defineCommand } from '../../framework/define-command.ts'
import { text, texts, UsageError } from '../../framework/options.ts'
import {
  addressesIn,
  clusterHcl,
  describe,
  hostDirectoryOf,
  keyLines,
  type Member,
  type Members,
  readMembers,
  serverKeysOf,
  withServerKeys,
  writeMembers,
} from './cluster-files.ts'

const REGION = 'global'

export const command = defineCommand({
  name: 'cluster keys',
  summary: 'Generate keys and NATS permissions for agents and servers',
  details: [
    'Writes these files to DIR:',
    '',
    '  users.conf        NATS users with public keys and permissions; include it in nats-server.conf as',
    '                    systemd/nats/nats-server.conf does',
    '  NAME/cluster.nk   secret key of a host or server (mode 0600)',
    '  NAME/cluster.hcl  configuration of a host or server with the public keys of all servers',
    '  members.json      list of the members; contains no secrets',
    '',
    'Copy cluster.nk and cluster.hcl to /etc/outpost on the host, or to /etc/outpost-server for a server. After',
    'that, the copy of the key in DIR can be deleted. Run the command again to add or remove members; existing',
    'members do not change. A new agent gets a random node ID. For a host that has run without servers, specify',
    'the ID that "outpost node status" shows as NODE-ID. A name that is both agent and server is one process.',
    '',
    'A region has one secrets core. The first -server has it; the others get "secrets = false" and forward',
    'requests for secrets. To move the core, remove its server with -remove and add another one with -server.',
    '-core adds a further server with a core. Use it for each server of a highly available core',
    '("server { ha { enabled = true } }"), to replace the key of the server with the core, or for a DR secondary in',
    'the same region.',
    '',
    'Adding or removing a server changes every cluster.hcl: copy the files and run "systemctl reload outpost".',
    '',
    'Example: outpost cluster keys -out keys -nats tls://nats.example.com:4222 -server s1 -agent w1',
  ].join('\n'),
  options: {
    out: text({ placeholder: 'DIR', help: 'Output directory; created if missing', fallback: undefined }),
    server: texts('NAME', 'Add a server; the first has the secrets core'),
    core: texts('NAME', 'Add a further server with a secrets core'),
    edge: texts('NAME', 'Add a server without a secrets core'),
    agent: texts('NAME[=NODE-ID]', 'Add an agent'),
    remove: texts('NAME', 'Remove a member and its permissions'),
    nats: texts('URL', 'NATS server for the configuration of new members'),
    region: text({
      placeholder: 'REGION',
      help: 'Region of the cluster',
      fallback: undefined,
      shownDefault: REGION,
    }),
  },
  async run(values, _operands, io) {
    if (values.out === undefined) throw new UsageError('missing -out DIR')
    const directory = resolve(values.out)
    const before = readMembers(directory) ?? { region: values.region ?? REGION, members: [] }
    if (values.region !== undefined && values.region !== before.region) {
      throw new CommandError(
        `${directory} contains the keys of region ${before.region}: use another -out for region ${values.region}`,
      )
    }
    if (!/^[A-Za-z0-9_-]{1,128}$/.test(before.region))
      throw new UsageError('option -region: only letters, digits, "-" and "_" are allowed')
    if (values.nats.some((url) => !/^(?:nats|tls):\/\/[^@/\s"]+$/.test(url))) {
      throw new UsageError('option -nats: expected nats://host:port or tls://host:port')
    }
    const added = { servers: values.server, cores: values.core, edges: values.edge, agents: values.agent }
    const roles = rolesOf(added, before, values.remove)
    const print = (line: string) => io.out(`${line}\n`)
    try {
      changeMembers(directory, before, { roles, removed: values.remove, nats: values.nats }, print)
    } catch (error) {
      if (error instanceof CommandError) throw error
      throw new CommandError(messageOf(error), 1, { cause: error })
    }
    return 0
  },
})

interface MemberRoles {
  readonly server: boolean
  /** A server without the secrets core. */
  readonly edge: boolean
  /** Undefined: none, or to be generated. */
  readonly nodeId: string | undefined
  readonly agent: boolean
}

/** Names on the command line. */
interface AddedMembers {
  readonly servers: readonly string[]
  readonly cores: readonly string[]
  readonly edges: readonly string[]
  readonly agents: readonly string[]
}

/** Roles of the added members by name. Throws UsageError for contradictions with each other and with existing members. */
function rolesOf(
  added: AddedMembers,
  { members }: Members,
  removed: readonly string[],
): ReadonlyMap<string, MemberRoles> {
  const roles = new Map<string, MemberRoles>()
  const before = coresIn(members)
  const kept = before.filter((name) => !removed.includes(name))
  for (const name of added.edges) {
    if (added.servers.includes(name) || added.cores.includes(name) || before.includes(name)) {
      throw new UsageError(`option -edge: ${name} is a server with a secrets core`)
    }
  }
  // The first server of a region has the core, also if -core adds a second one with the same command.
  const cores = new Set([...(kept.length > 0 ? kept : added.servers.slice(0, 1)), ...added.cores])
  for (const name of [...added.cores, ...added.servers, ...added.edges]) {
    roles.set(validName(name), { server: true, edge: !cores.has(name), agent: false, nodeId: undefined })
  }
  for (const given of added.agents) {
    const [name = '', id] = given.split('=', 2)
    validName(name)
    if (id !== undefined && !isUuid(id))
      throw new UsageError(`option -agent: expected a UUID as node ID, got ${JSON.stringify(id)}`)
    const nodeId = id?.toLowerCase() ?? (isUuid(name) ? name.toLowerCase() : undefined)
    const { server, edge } = roles.get(name) ?? { server: false, edge: false }
    roles.set(name, { server, edge, agent: true, nodeId })
  }
  const unknown = removed.find((name) => !members.some((member) => member.name === name))
  if (unknown !== undefined) throw new UsageError(`option -remove: unknown member ${unknown}`)
  for (const name of roles.keys()) if (removed.includes(name)) throw new UsageError(`${name} is both added and removed`)
  const ids = new Map(
    members.flatMap(({ name, nodeId }) => (nodeId === undefined || removed.includes(name) ? [] : [[nodeId, name]])),
  )
  for (const [name, { nodeId }] of roles) {
    if (nodeId === undefined) continue
    const owner = ids.get(nodeId) ?? name
    if (owner !== name) throw new UsageError(`node ID ${nodeId} belongs to ${owner}: each node needs its own ID`)
    ids.set(nodeId, name)
    const known = members.find((member) => member.name === name)?.nodeId
    if (known !== undefined && known !== nodeId) {
      throw new UsageError(
        `${name} has the node ID ${known}: remove it first (-remove ${name}), then add it with the new ID`,
      )
    }
  }
  return roles
}

/** Names of the servers with a secrets core. */
function coresIn(members: readonly Member[]): string[] {
  return members.filter(({ server, edge }) => server && edge !== true).map(({ name }) => name)
}

/** Member names are names of directories. Throws UsageError. */
function validName(name: string): string {
  const isReserved = /\.(conf|json|new)$/.test(name)
  if (/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/.test(name) && !isReserved) return name
  if (isReserved)
    throw new UsageError(`invalid name ${JSON.stringify(name)}: the suffixes .conf, .json and .new are reserved`)
  throw new UsageError(`invalid name ${JSON.stringify(name)}: only letters, digits, ".", "-" and "_" are allowed`)
}

function changeMembers(
  directory: string,
  before: Members,
  change: {
    readonly roles: ReadonlyMap<string, MemberRoles>
    readonly removed: readonly string[]
    readonly nats: readonly string[]
  },
  print: (line: string) => void,
): void {
  mkdirSync(directory, { recursive: true, mode: 0o700 })
  const members = new Map(
    before.members.filter(({ name }) => !change.removed.includes(name)).map((each) => [each.name, each]),
  )
  const fresh = new Set<string>()
  for (const [name, roles] of change.roles) {
    const known = members.get(name)
    const server = roles.server || (known?.server ?? false)
    const nodeId = known?.nodeId ?? roles.nodeId ?? (roles.agent ? randomUUID() : undefined)
    const folder = join(directory, name)
    mkdirSync(folder, { recursive: true, mode: 0o700 })
    const publicKey = known?.publicKey ?? publicKeyIn(join(folder, 'cluster.nk'))
    // A known server that is only given as an agent keeps its role.
    const edge = roles.edge || (!roles.server && known?.edge === true)
    const member: Member = {
      name,
      server,
      publicKey,
      ...(edge ? { edge } : {}),
      ...(nodeId === undefined ? {} : { nodeId }),
    }
    const isNew = known?.server !== server || known.nodeId !== nodeId || (known.edge ?? false) !== edge
    if (isNew || !fileExists(join(folder, 'cluster.hcl'))) fresh.add(name)
    members.set(name, member)
    print(`${isNew ? 'created  ' : 'unchanged'}  ${describe(member)}`)
  }
  const nats = change.nats.length > 0 ? change.nats : before.nats
  const after: Members = { region: before.region, nats, members: [...members.values()] }
  writeClusterFiles(directory, after, fresh, print)
  writeMembers(directory, after)
  const cores = coresIn(after.members)
  if (cores.length > 1) print(`several servers have a secrets core (${cores.join(', ')}): ${TWO_CORES}`)
  for (const name of change.removed) {
    rmSync(join(directory, name, 'cluster.nk'), { force: true })
    print(`removed    ${name}`)
  }
  print(
    `wrote ${members.size} users to ${join(directory, 'users.conf')}: copy it to the directory of nats-server.conf, then: systemctl reload outpost-nats`,
  )
}

/**
 * Writes the files of new members and of members with changed roles, and updates the server keys in the other files that exist. The NATS
 * addresses in a file are kept, because they may have been edited.
 */
function writeClusterFiles(
  directory: string,
  members: Members,
  fresh: ReadonlySet<string>,
  print: (line: string) => void,
): void {
  const keys = serverKeysOf(members)
  for (const member of members.members) {
    const file = join(directory, member.name, 'cluster.hcl')
    if (fresh.has(member.name)) {
      const nats = (fileExists(file) ? addressesIn(readFileSync(file, 'utf8')) : undefined) ?? members.nats ?? []
      if (nats.length === 0) print(`${file} has no NATS addresses: use -nats, or edit "servers" in the file`)
      writeFileSync(file, clusterHcl(member, members.region, nats, keys), { mode: 0o644 })
      continue
    }
    if (!fileExists(file)) continue
    const before = readFileSync(file, 'utf8')
    const after = withServerKeys(before, keys)
    if (after === before) continue
    writeFileSync(file, after, { mode: 0o644 })
    print(
      `changed    ${file}: copy it to ${hostDirectoryOf(member)} on its host, then: systemctl reload ${unitOf(member)}`,
    )
  }
  if (keys.servers.length > 0) print(`server keys for "nats {}" of every host:\n${keyLines(keys).join('\n')}`)
}

const TWO_CORES =
  'this is correct with server.ha on each of them, for a DR secondary, or while a key is replaced; otherwise set server { secrets = false } on all but one'

function unitOf({ nodeId }: Member): string {
  return nodeId === undefined ? 'outpost-server' : 'outpost'
}

/** The public key of the key in the file, which is created if it is missing. */
function publicKeyIn(file: string): string {
  if (!fileExists(file)) {
    const seed = Buffer.from(createUser().getSeed())
    writeFileSync(file, `${seed.toString()}\n`, { mode: 0o600, flag: 'wx', flush: true })
  }
  try {
    return fromSeed(new TextEncoder().encode(readFileSync(file, 'utf8').trim())).getPublicKey()
  } catch {
    throw new CommandError(`${file} does not contain the seed of an nkey: remove it to generate a new key`)
  }
}
