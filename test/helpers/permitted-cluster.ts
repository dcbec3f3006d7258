/** A NATS server with the shipped configuration, keys from `outpost cluster keys`, and members of the cluster. */
import { execFileSync } from 'node:child_process'
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { TestContext } from 'node:test'
import { createHash } from 'node:crypto'
import { startAgent } from './agent-process.ts'
import { connect, nkeyAuthenticator, type NatsConnection } from '@nats-io/transport-node'
import { makeCertificates } from './certificates.ts'
import { OUTPOST } from './program.ts'
import { type NatsServer, startNatsServer } from './nats-server.ts'

const ROOT = resolve(import.meta.dirname, '../..')
export const TOKEN = 'a-token-of-the-operator'

export interface PermittedCluster {
  readonly directory: string
  readonly nats: NatsServer
  /** Runs `outpost cluster keys` again and reloads the NATS server. */
  readonly keys: (...args: readonly string[]) => string
  /** The CA certificate of NATS. */
  readonly authority: string
  readonly seedOf: (name: string) => Uint8Array
  readonly nodeIdOf: (name: string) => string
  /** Starts the process of a member. */
  readonly start: (name: string, program?: string) => ReturnType<typeof startAgent>
}

/** Undefined without openssl. */
export async function permittedCluster(
  t: TestContext,
  directory: string,
  args: readonly string[],
): Promise<PermittedCluster | undefined> {
  if (!makeCertificates(directory, ['server'])) return undefined
  const out = join(directory, 'keys')
  const run = (more: readonly string[]) =>
    execFileSync(OUTPOST, ['cluster', 'keys', '-out', out, ...more], { encoding: 'utf8' })
  run([...args, '-nats', 'tls://127.0.0.1:4222'])
  const users = () => ({ 'users.conf': readFileSync(join(out, 'users.conf'), 'utf8') })
  const config = readFileSync(join(ROOT, 'systemd/nats/nats-server.conf'), 'utf8')
    .replace(/^listen:.*$/m, '')
    .replace('"127.0.0.1:8222"', '"127.0.0.1:-1"')
    .replaceAll('/etc/nats/server.crt', join(directory, 'server.pem'))
    .replaceAll('/etc/nats/server.key', join(directory, 'server.key'))
  const nats = await startNatsServer(t, config, users())
  return {
    directory,
    nats,
    authority: readFileSync(join(directory, 'ca.pem'), 'utf8'),
    keys(...more) {
      const said = run(more)
      nats.reload(config, users())
      return said
    },
    seedOf: (name) => new TextEncoder().encode(readFileSync(join(out, name, 'cluster.nk'), 'utf8').trim()),
    nodeIdOf: (name) => /node_id = "(.*)"/.exec(readFileSync(join(out, name, 'cluster.hcl'), 'utf8'))?.[1] ?? '',
    start(name, program) {
      const folder = join(directory, name)
      mkdirSync(folder, { recursive: true })
      copyFileSync(join(out, name, 'cluster.nk'), join(folder, 'cluster.nk'))
      const text = readFileSync(join(out, name, 'cluster.hcl'), 'utf8')
        .replaceAll(/\/etc\/outpost(-server)?\/nats-ca\.crt/g, join(directory, 'ca.pem'))
        .replaceAll(/\/etc\/outpost(-server)?/g, folder)
        .replace(':4222', `:${nats.port}`)
      writeFileSync(join(folder, 'cluster.hcl'), text)
      const isServer = /^server \{\s+enabled = true/m.test(text)
      writeFileSync(
        join(folder, 'agent.hcl'),
        `data_dir = "${folder}/data"\nports { http = 0 }\n${isServer ? ACL : ''}`,
      )
      const files = ['-config', join(folder, 'agent.hcl'), '-config', join(folder, 'cluster.hcl')]
      return startAgent(t, files, program === undefined ? {} : { env: { OUTPOST_TEST_PROGRAM: program } })
    },
  }
}

/** By IP address, for which the client has no name to verify. */
export function tlsOf({ directory }: PermittedCluster) {
  return { ca: readFileSync(join(directory, 'ca.pem'), 'utf8'), checkServerIdentity: () => undefined }
}

/** Connects to NATS with the key of a member. */
export async function connectAs(t: TestContext, cluster: PermittedCluster, name: string): Promise<NatsConnection> {
  const connection = await connect({
    servers: [cluster.nats.url],
    authenticator: nkeyAuthenticator(cluster.seedOf(name)),
    tls: tlsOf(cluster),
    reconnect: false,
  })
  t.after(() => connection.close())
  return connection
}

const SHA256 = createHash('sha256').update(TOKEN).digest('hex')
/** Servers have the token; agents resolve it there. */
const ACL = `acl {
  token "ops" {
    sha256 = "${SHA256}"
    policy = "node { policy = \\"write\\" } agent { policy = \\"write\\" } namespace \\"*\\" { policy = \\"write\\" }"
  }
}
`
