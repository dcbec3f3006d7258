/** `cluster.hcl`: a member's part of the configuration, as `outpost cluster keys` writes it. */
import type { Member, Members } from './cluster-members.ts'

/** Stands where no address was given yet. */
const EXAMPLE_ADDRESS = 'tls://nats.example.com:4222'

/** Where the files of a member are on its host: beside the configuration of the unit that runs it. */
export function hostDirectoryOf({ nodeId }: Pick<Member, 'nodeId'>): string {
  return nodeId === undefined ? '/etc/outpost-server' : '/etc/outpost'
}

/** Public keys of the servers, as every member's `nats {}` names them. */
export interface KeysOfServers {
  readonly servers: readonly string[]
  /** Of those with the secrets core. */
  readonly cores: readonly string[]
}

export function keysOfServers({ members }: Members): KeysOfServers {
  const servers = members.filter(({ server }) => server)
  return {
    servers: servers.map(({ publicKey }) => publicKey),
    cores: servers.filter(({ edge }) => !edge).map(({ publicKey }) => publicKey),
  }
}

/** What its host needs to take part; the rest of its configuration stands in other files. */
export function fragment(member: Member, region: string, nats: readonly string[], keys: KeysOfServers): string {
  const { name, server, edge, nodeId } = member
  const directory = hostDirectoryOf(member)
  const servers = nats.length > 0 ? nats : [EXAMPLE_ADDRESS]
  return [
    `# Made by "outpost cluster keys" for ${name}: it and cluster.nk belong into ${directory} there.`,
    `name   = ${JSON.stringify(name)}`,
    `region = ${JSON.stringify(region)}`,
    nodeId === undefined ? 'client { enabled = false }' : `client {\n  enabled = true\n  node_id = "${nodeId}"\n}`,
    edge ? 'server {\n  enabled = true\n  secrets = false\n}' : `server { enabled = ${server} }`,
    'nats {',
    `  servers   = ${listOf(servers)}`,
    `  nkey_file = "${directory}/cluster.nk"`,
    // Whoever insists on TLS has an authority of his own, mostly.
    ...(servers.some((url) => url.startsWith('tls:')) ? [`  ca_file   = "${directory}/nats-ca.crt"`] : []),
    ...keyLines(keys),
    '}',
    '',
  ].join('\n')
}

/** The addresses of NATS in such a file; undefined where there are none but the example. */
export function addressesIn(text: string): readonly string[] | undefined {
  const list = /^ *servers *= *\[([^\]]*)\]/m.exec(text)?.[1] ?? ''
  const addresses = [...list.matchAll(/"([^"]+)"/g)].map(([, address]) => address ?? '')
  return addresses.length === 0 || addresses.join() === EXAMPLE_ADDRESS ? undefined : addresses
}

/** The same file with these keys of servers; everything else in it stays. */
export function withKeysOfServers(text: string, keys: KeysOfServers): string {
  const rest = text.replaceAll(/^ *(?:server_keys|core_keys) *= *\[[^\]]*\]\n/gm, '')
  const lines = keyLines(keys)
  if (lines.length === 0) return rest
  return rest.replace(/^nats \{\n(?:(?!\}).*\n)*/m, (block) => `${block}${lines.join('\n')}\n`)
}

/** For `nats {}`; none without servers. */
export function keyLines({ servers, cores }: KeysOfServers): string[] {
  if (servers.length === 0) return []
  return [`  server_keys = ${listOf(servers)}`, `  core_keys   = ${listOf(cores)}`]
}

function listOf(texts: readonly string[]): string {
  return `[${texts.map((text) => JSON.stringify(text)).join(', ')}]`
}
