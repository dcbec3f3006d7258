/** `outpost cluster keys`. */
import { randomUUID } from 'node:crypto'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { createUser, fromSeed } from '@nats-io/nkeys'
import { messageOf } from '../../../platform/errors.ts'
import { isThere } from '../../../platform/own-file.ts'
import { isUuid } from '../../../platform/schema.ts'
import {
  fragment,
  hostDirectoryOf,
  keyLines,
  keysOfServers,
  addressesIn,
  withKeysOfServers,
} from './cluster-fragment.ts'
import { describe, type Member, type Members, readMembers, writeMembers } from './cluster-members.ts'
import { CommandError, defineCommand } from '../../framework/command-shape.ts'
import { text, texts, UsageError } from '../../framework/options.ts'

const REGION = 'global'

export const command = defineCommand({
  name: 'cluster keys',
  summary: 'Make the keys of agents and servers, and what NATS is to permit them',
  details: [
    'Writes into DIR:',
    '  users.conf        who may connect to NATS and what each may say and hear; public keys only.',
    '                    systemd/nats/nats-server.conf includes it',
    '  NAME/cluster.nk   the secret key of one host or server, readable by you only',
    '  NAME/cluster.hcl  its part of the configuration, with the public keys of all servers;',
    '                    both files belong into /etc/outpost there, or /etc/outpost-server of a server',
    '  members.json      what was made, no secrets',
    '',
    'Run it again to add or remove members: what is there already stays as it is. A key that is on its host',
    'may be deleted here. An agent gets a new node ID, unless one is given: a host that has run alone keeps',
    'the one that "outpost node status" shows. A name given as both is one process of both roles.',
    '',
    'A region has one secrets core: the first -server has it, further ones get "secrets = false" and',
    'forward requests for secrets to it. To move it, -remove its server and give another one as -server.',
    '-core adds a second server with a core: for a new key of that server, or a DR secondary in the region.',
    '',
    'When the servers change, every cluster.hcl changes: copy it to its host and run "systemctl reload',
    'outpost" there.',
    '',
    'Example: outpost cluster keys -out keys -nats tls://nats.example.com:4222 -server s1 -agent w1',
  ].join('\n'),
  options: {
    out: text({ placeholder: 'DIR', help: 'Directory of the keys, made when missing', fallback: undefined }),
    server: texts('NAME', 'A server; the first one has the secrets core'),
    core: texts('NAME', 'A server with a secrets core beside another one'),
    edge: texts('NAME', 'A server without the secrets core'),
    agent: texts('NAME[=NODE-ID]', 'An agent'),
    remove: texts('NAME', 'A member whose key is to open nothing any more'),
    nats: texts('URL', 'NATS servers, for the configuration of new members'),
    region: text({
      placeholder: 'REGION',
      help: `Region of the cluster, as in the configuration (${REGION})`,
      fallback: undefined,
    }),
  },
  async run(values, _operands, io) {
    if (values.out === undefined) throw new UsageError('where do the keys go? give -out DIR')
    const directory = resolve(values.out)
    const before = readMembers(directory) ?? { region: values.region ?? REGION, members: [] }
    if (values.region !== undefined && values.region !== before.region) {
      throw new CommandError(
        `the keys in ${directory} are of the region ${before.region}: give another -out for ${values.region}`,
      )
    }
    if (!/^[A-Za-z0-9_-]{1,128}$/.test(before.region))
      throw new UsageError('-region: letters, digits, "-" and "_" only')
    const wrong = values.nats.find((url) => !/^(?:nats|tls):\/\/[^@/\s"]+$/.test(url))
    if (wrong !== undefined) throw new UsageError('-nats: expected nats://host:port or tls://host:port')
    const asked = { servers: values.server, cores: values.core, edges: values.edge, agents: values.agent }
    const wanted = wantedOf(asked, before, values.remove)
    const say = (line: string) => io.out(`${line}\n`)
    try {
      change(directory, before, { wanted, removed: values.remove, nats: values.nats }, say)
    } catch (error) {
      if (error instanceof CommandError) throw error
      throw new CommandError(messageOf(error), 1, { cause: error })
    }
    return 0
  },
})

interface Wanted {
  readonly server: boolean
  /** A server without the secrets core. */
  readonly edge: boolean
  /** Undefined: none, or not yet known. */
  readonly nodeId: string | undefined
  readonly agent: boolean
}

interface Asked {
  readonly servers: readonly string[]
  readonly cores: readonly string[]
  readonly edges: readonly string[]
  readonly agents: readonly string[]
}

/** By name. Throws UsageError for what contradicts itself or what is there. */
function wantedOf(asked: Asked, { members }: Members, removed: readonly string[]): ReadonlyMap<string, Wanted> {
  const wanted = new Map<string, Wanted>()
  const before = coresIn(members)
  const kept = before.filter((name) => !removed.includes(name))
  for (const name of asked.edges) {
    if (asked.servers.includes(name) || asked.cores.includes(name) || before.includes(name)) {
      throw new UsageError(`${name} is a server with the secrets core: it cannot be -edge too`)
    }
  }
  const cores = new Set([...kept, ...asked.cores])
  for (const name of [...asked.cores, ...asked.servers, ...asked.edges]) {
    if (cores.size === 0 && !asked.edges.includes(name)) cores.add(name)
    wanted.set(checkedName(name), { server: true, edge: !cores.has(name), agent: false, nodeId: undefined })
  }
  for (const given of asked.agents) {
    const [name = '', id] = given.split('=', 2)
    checkedName(name)
    if (id !== undefined && !isUuid(id)) throw new UsageError(`-agent ${given}: ${id} is no node ID, which is a UUID`)
    const nodeId = id?.toLowerCase() ?? (isUuid(name) ? name.toLowerCase() : undefined)
    const { server, edge } = wanted.get(name) ?? { server: false, edge: false }
    wanted.set(name, { server, edge, agent: true, nodeId })
  }
  const unknown = removed.find((name) => !members.some((member) => member.name === name))
  if (unknown !== undefined) throw new UsageError(`-remove ${unknown}: there is no such member`)
  for (const name of wanted.keys()) if (removed.includes(name)) throw new UsageError(`${name} is given as -remove too`)
  const ids = new Map(
    members.flatMap(({ name, nodeId }) => (nodeId === undefined || removed.includes(name) ? [] : [[nodeId, name]])),
  )
  for (const [name, { nodeId }] of wanted) {
    if (nodeId === undefined) continue
    const owner = ids.get(nodeId) ?? name
    if (owner !== name) throw new UsageError(`${nodeId} is the node ID of ${owner}: each node has a key of its own`)
    ids.set(nodeId, name)
    const known = members.find((member) => member.name === name)?.nodeId
    if (known !== undefined && known !== nodeId) {
      throw new UsageError(`${name} has the node ID ${known}: -remove ${name} first, then give it its new one`)
    }
  }
  return wanted
}

/** Names of the servers with a secrets core. */
function coresIn(members: readonly Member[]): string[] {
  return members.filter(({ server, edge }) => server && edge !== true).map(({ name }) => name)
}

/** It becomes the name of a directory. */
function checkedName(name: string): string {
  const isTaken = /\.(conf|json|new)$/.test(name)
  if (/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/.test(name) && !isTaken) return name
  if (isTaken) throw new UsageError(`${JSON.stringify(name)} could be a file of ours, name it otherwise`)
  throw new UsageError(`${JSON.stringify(name)} is not a name: letters, digits, ".", "-" and "_" only`)
}

function change(
  directory: string,
  before: Members,
  asked: {
    readonly wanted: ReadonlyMap<string, Wanted>
    readonly removed: readonly string[]
    readonly nats: readonly string[]
  },
  say: (line: string) => void,
): void {
  mkdirSync(directory, { recursive: true, mode: 0o700 })
  const members = new Map(
    before.members.filter(({ name }) => !asked.removed.includes(name)).map((each) => [each.name, each]),
  )
  const fresh = new Set<string>()
  for (const [name, wanted] of asked.wanted) {
    const known = members.get(name)
    const server = wanted.server || (known?.server ?? false)
    const nodeId = known?.nodeId ?? wanted.nodeId ?? (wanted.agent ? randomUUID() : undefined)
    const folder = join(directory, name)
    mkdirSync(folder, { recursive: true, mode: 0o700 })
    const publicKey = known?.publicKey ?? publicKeyIn(join(folder, 'cluster.nk'))
    // A known server that is given as an agent only stays what it was.
    const edge = wanted.edge || (!wanted.server && known?.edge === true)
    const member: Member = {
      name,
      server,
      publicKey,
      ...(edge ? { edge } : {}),
      ...(nodeId === undefined ? {} : { nodeId }),
    }
    const isNew = known?.server !== server || known.nodeId !== nodeId || (known.edge ?? false) !== edge
    if (isNew || !isThere(join(folder, 'cluster.hcl'))) fresh.add(name)
    members.set(name, member)
    say(`${isNew ? 'made' : 'kept'}     ${describe(member)}`)
  }
  const nats = asked.nats.length > 0 ? asked.nats : before.nats
  const after: Members = { region: before.region, nats, members: [...members.values()] }
  writeFragments(directory, after, fresh, say)
  writeMembers(directory, after)
  const cores = coresIn(after.members)
  if (cores.length > 1) say(`${cores.join(', ')} have a secrets core each: ${TWO_CORES}`)
  for (const name of asked.removed) {
    rmSync(join(directory, name, 'cluster.nk'), { force: true })
    say(`removed  ${name}`)
  }
  say(
    `${join(directory, 'users.conf')} holds ${members.size}: put it beside nats-server.conf, then: systemctl reload outpost-nats`,
  )
}

/**
 * The files of new members and of those whose roles have changed; in those of others that are still here, the keys of the
 * servers. The address of NATS that a file has is never replaced: it may have been corrected by hand.
 */
function writeFragments(
  directory: string,
  members: Members,
  fresh: ReadonlySet<string>,
  say: (line: string) => void,
): void {
  const keys = keysOfServers(members)
  for (const member of members.members) {
    const file = join(directory, member.name, 'cluster.hcl')
    if (fresh.has(member.name)) {
      const nats = (isThere(file) ? addressesIn(readFileSync(file, 'utf8')) : undefined) ?? members.nats ?? []
      if (nats.length === 0) say(`${file} needs the address of NATS: give -nats, or edit "servers" in it`)
      writeFileSync(file, fragment(member, members.region, nats, keys), { mode: 0o644 })
      continue
    }
    if (!isThere(file)) continue
    const before = readFileSync(file, 'utf8')
    const now = withKeysOfServers(before, keys)
    if (now === before) continue
    writeFileSync(file, now, { mode: 0o644 })
    say(`changed  ${file}: copy it to ${hostDirectoryOf(member)} there, then: systemctl reload ${unitOf(member)}`)
  }
  if (keys.servers.length > 0)
    say(`the keys of the servers, for "nats {}" of every host:\n${keyLines(keys).join('\n')}`)
}

const TWO_CORES =
  'right for a DR secondary and while a key is replaced, else set server { secrets = false } on all but one'

function unitOf({ nodeId }: Member): string {
  return nodeId === undefined ? 'outpost-server' : 'outpost'
}

/** Of the key in the file; made when there is none. */
function publicKeyIn(file: string): string {
  if (!isThere(file)) {
    const seed = Buffer.from(createUser().getSeed())
    writeFileSync(file, `${seed.toString()}\n`, { mode: 0o600, flag: 'wx', flush: true })
  }
  try {
    return fromSeed(new TextEncoder().encode(readFileSync(file, 'utf8').trim())).getPublicKey()
  } catch {
    throw new CommandError(`${file} does not hold the seed of an nkey: move it away to have a new one made`)
  }
}
