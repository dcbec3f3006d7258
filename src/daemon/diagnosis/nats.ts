/** Each configured NATS server: name, TCP, login, and the permissions that the roles of this process need. */
import type { DiagnosisFinding } from '../../cli/framework/services.ts'
import { mergePermissions, type NatsPermissions, permissionsOf } from '../../cluster/nats/permissions.ts'
import { Subjects } from '../../cluster/nats/subjects.ts'
import type { Config, NatsConfig } from '../../config/config.ts'
import { unencryptedServers } from '../../config/config.ts'
import { expiryText } from '../../config/tls-files.ts'
import { readNodeId } from '../../host/node/state.ts'
import { errnoOf, messageOf } from '../../platform/errors.ts'
import { type DiagnosisContext, failure, passed, skipped, warning } from './finding.ts'

/** A name that no member of a cluster has. */
const PROBE_ID = 'diagnose'
const NIL_UUID = '00000000-0000-0000-0000-000000000000'
/** The state of a node is one message, which is not sent if it exceeds the limit of the server. */
const PAYLOAD_BYTES_MIN = 1 << 20

export async function checkNats({ config }: DiagnosisContext): Promise<DiagnosisFinding[]> {
  const { nats } = config
  if (!nats) return [skipped('nats', 'not configured: this process is standalone')]
  const findings = await Promise.all(nats.servers.map((server) => serverFindings(server, nats, config)))
  const plain = unencryptedServers(nats)
  if (plain.length > 0) {
    const text = `the connection to ${plain.join(', ')} is not encrypted`
    findings.push([warning('nats/encryption', text, 'use tls:// addresses, or set nats.ca_file')])
  }
  return findings.flat()
}

async function serverFindings(server: string, nats: NatsConfig, config: Config): Promise<DiagnosisFinding[]> {
  const { probeNats } = await import('../../cluster/nats/nats-probe.ts')
  const needs = await permissionsNeeded(config)
  try {
    const probe = await probeNats({
      ...nats,
      server,
      name: `outpost diagnose ${config.name}`,
      subjects: needs ? withoutEffect(needs) : { publish: [], subscribe: [] },
    })
    const about = `${probe.serverName || server} (NATS ${probe.serverVersion}), ${probe.roundTripMs.toFixed(0)} ms`
    const findings = [passed('nats/login', `${server}: connected to ${about}`)]
    if (!needs) {
      findings.push(skipped('nats/permissions', `${server}: the node has no ID yet, start the agent once`))
    } else if (probe.denied.length === 0) {
      findings.push(passed('nats/permissions', `${server}: all subjects of this process are permitted`))
    }
    for (const { operation, subject } of probe.denied) {
      const next = 'correct the permissions in the NATS configuration: outpost cluster keys prints them'
      findings.push(failure('nats/permissions', `${server}: ${operation} of ${subject} is denied`, next))
    }
    if (probe.payloadBytesMax > 0 && probe.payloadBytesMax < PAYLOAD_BYTES_MIN) {
      const text = `${server}: max_payload is ${probe.payloadBytesMax} bytes`
      findings.push(warning('nats/payload', text, 'set max_payload of the NATS server to at least 1MB'))
    }
    const expiry =
      probe.certificateExpiryMs === undefined ? undefined : expiryText(probe.certificateExpiryMs, Date.now())
    if (expiry !== undefined) {
      findings.push(warning('nats/certificate', `${server}: its certificate ${expiry}`, 'renew it on the NATS server'))
    }
    return findings
  } catch (error) {
    return [connectFailure(server, error)]
  }
}

function connectFailure(server: string, error: unknown): DiagnosisFinding {
  const [text, code] = [messageOf(error), errnoOf(error) ?? '']
  const fault = (why: string, next: string) => failure('nats/login', `${server}: ${why}`, next)
  if (/ENOTFOUND|EAI_AGAIN/.test(`${code} ${text}`)) return fault('unknown host name', 'correct nats.servers or DNS')
  if (/ECONNREFUSED|CONNECTION_REFUSED|connection refused/i.test(`${code} ${text}`)) {
    return fault('connection refused', 'start nats-server there, or correct nats.servers')
  }
  if (/authorization|authentication/i.test(text)) {
    return fault(
      `login refused: ${text}`,
      'correct the credentials in nats {}, or add the user to the NATS configuration',
    )
  }
  if (/timeout|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH/i.test(`${code} ${text}`)) {
    return fault(`no response: ${text}`, 'check network and firewall (port 4222)')
  }
  if (/certificate|tls|ssl/i.test(`${code} ${text}`)) {
    return fault(`TLS failed: ${text}`, 'correct nats.ca_file, nats.cert_file, or the certificate of the NATS server')
  }
  return fault(text, 'see the log of nats-server')
}

/** Undefined for an agent without a node ID. */
async function permissionsNeeded(config: Config): Promise<NatsPermissions | undefined> {
  const { client, region, server } = config
  const ofServer = server.enabled ? permissionsOf(server.secrets ? 'server' : 'edge', region) : undefined
  const nodeId = client.enabled ? await nodeIdOf(config) : undefined
  if (client.enabled && nodeId === undefined) return ofServer
  const ofNode = nodeId === undefined ? undefined : permissionsOf({ nodeId }, region)
  return ofServer && ofNode ? mergePermissions(ofServer, ofNode) : (ofServer ?? ofNode)
}

async function nodeIdOf({ client }: Config): Promise<string | undefined> {
  return client.nodeId ?? (await readNodeId(client.stateDir).catch(() => undefined))
}

/**
 * The subjects with names that no process has. Not published: messages of the roster, which servers would log, and announcements of
 * keys.
 */
function withoutEffect({ publish, subscribe }: NatsPermissions): NatsPermissions {
  const named = publish
    .filter((subject) => !/\.roster\.|\.servers\.key$/.test(subject))
    .map((subject) => subject.replaceAll('.*', `.${PROBE_ID}`))
  return { publish: named.map(withNilNode), subscribe }
}

function withNilNode(subject: string): string {
  return subject.replace(`.node.${PROBE_ID}.`, `.node.${NIL_UUID}.`)
}

/** The subject of the heartbeats of all nodes, which a server may receive. */
export function heartbeatSubject(region: string): string {
  return new Subjects(region).roster('*', 'beat')
}
