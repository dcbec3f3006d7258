/**
 * Rules that concern several settings. A rule judges only settings that could be read, so an invalid setting causes one fault, and not a
 * second one that reports it as missing.
 */
import { isIP } from 'node:net'
import { type Config, isLoopback, unencryptedServers } from './config.ts'
import { type FaultList, type LabelledBlock, locationPrefix, type Setting, type SettingLocation } from './fields.ts'
import { nearestName } from './nearest-name.ts'
import type { RawConfig } from './schema.ts'
import { isBucketPath } from './snapshot-path.ts'

/** A fault in the text of a policy; line and column count from 1 in that text. */
export interface PolicyTextFault {
  readonly line: number
  readonly column: number
  readonly message: string
}

export interface RuleOptions {
  readonly dev: boolean
  readonly faults: FaultList
  readonly warnings: string[]
  readonly checkPolicy: (text: string) => readonly PolicyTextFault[]
}

/** Listens on all addresses, and is the address of none. */
const WILDCARD = /^(?:0\.0\.0\.0|\[?::\]?)(?::\d+)?$/
const SEAL_TYPES = ['shamir', 'static'] as const
const STATIC_SEAL_KEYS = ['current_key_id', 'current_key', 'previous_key_id', 'previous_key', 'disabled']
/** A source of a static key; a text without a scheme is the key itself. */
const KEY_SCHEME = /^([a-z]+):\/\//
const KEY_SCHEMES = ['file', 'env', 'credential']

type RawBlock<K extends keyof RawConfig> = NonNullable<RawConfig[K]>
export type RawSeal = LabelledBlock<ReadonlyMap<string, Setting<string>>>
export type SealType = (typeof SEAL_TYPES)[number]

/** Checks the raw settings, before the defaults. `config` is complete and only used for rules about effective values. */
export function checkRules(raw: RawConfig, config: Config, options: RuleOptions): void {
  const { faults } = options
  checkRoles(raw, options)
  checkPorts(raw, config, faults)
  checkTokens(raw.acl?.token ?? [], options)
  if (raw.acl?.anonymous?.policy) checkPolicyText('acl.anonymous', raw.acl.anonymous.policy, options)
  if (raw.tls) checkTls(raw.tls, faults)
  const parallel = raw.client?.gc_parallel_destroys
  if (parallel && parallel.value <= 0) {
    options.warnings.push(`${locationPrefix(parallel.where)}client.gc_parallel_destroys must be at least 1: using 1`)
  }
  checkSeals(raw.server?.seal ?? [], faults)
  if (raw.server?.snapshot) checkSnapshot(raw.server.snapshot, config, faults)
  if (raw.server?.ha) checkHa(raw, raw.server.ha, config, options)
  if (raw.nats) checkNats(raw.nats, faults)
  if (raw.secrets) checkLogin(raw.secrets, faults)
  checkExposure(raw, config, options)
  if (raw.secrets) checkLoginRole(raw.secrets, config, options)
}

/** True when one of these settings, or a block around it, was given but could not be read. */
function isUnread(faults: FaultList, ...paths: readonly string[]): boolean {
  return paths.some((path) => faults.unread.has(path) || faults.unread.has(path.split('.')[0] ?? ''))
}

/** Two settings that must be given together. */
function checkPair(
  [onePath, one]: readonly [string, Setting<string> | undefined],
  [otherPath, other]: readonly [string, Setting<string> | undefined],
  faults: FaultList,
): void {
  const given = one ?? other
  if (given && !(one && other) && !isUnread(faults, onePath, otherPath)) {
    faults.add(given.where, `${onePath} and ${otherPath} must be set together`)
  }
}

function checkRoles(raw: RawConfig, { dev, faults }: RuleOptions): void {
  const role = [raw.client?.enabled, raw.server?.enabled].find((enabled) => enabled?.value === true)
  if (!dev && !role && !isUnread(faults, 'client.enabled', 'server.enabled')) {
    faults.add(undefined, 'Must specify either server, client or dev mode for the agent.')
  }
  const isMissing = !raw.data_dir && !isUnread(faults, 'data_dir')
  if (isMissing && (dev || role)) faults.add(role?.where, 'data_dir is required: it stores state and allocations')
}

function checkPorts({ ports }: RawConfig, config: Config, faults: FaultList): void {
  const { http, cluster } = config.ports
  if (http === cluster && http !== 0) {
    faults.add((ports?.cluster ?? ports?.http)?.where, `ports.http and ports.cluster are both ${http}`)
  }
}

function checkTokens(blocks: NonNullable<RawBlock<'acl'>['token']>, options: RuleOptions): void {
  const { faults } = options
  const [names, hashes] = [new Set<string>(), new Set<string>()]
  for (const { label, where, body } of blocks) {
    const title = `acl.token ${JSON.stringify(label)}`
    if (names.has(label)) faults.add(where, `${title} is defined twice`)
    names.add(label)
    const hash = body.sha256?.value.toLowerCase()
    if (hash === undefined && !isUnread(faults, 'acl.token.sha256')) faults.add(where, `${title} needs sha256`)
    if (hash !== undefined && hashes.has(hash))
      faults.add(body.sha256?.where, `${title}: another token has this sha256`)
    if (hash !== undefined) hashes.add(hash)
    if (!body.policy && !isUnread(faults, 'acl.token.policy')) faults.add(where, `${title} needs a policy`)
    if (body.policy) checkPolicyText(title, body.policy, options)
  }
}

/** The lines of a heredoc are lines of the file. For a quoted text, the message has the line inside it. */
function checkPolicyText(title: string, policy: Setting<string>, { checkPolicy, faults }: RuleOptions): void {
  const { where, value } = policy
  for (const { line, column, message } of checkPolicy(value)) {
    const { bodyAt } = where
    const at = bodyAt && { line: bodyAt.line + line - 1, column: bodyAt.column + column - 1 }
    const lineText = at || line === 1 ? '' : `line ${line} of `
    faults.add(at ? { ...where, at } : where, `${title}: ${lineText}policy: ${message}`)
  }
}

function checkTls(tls: RawBlock<'tls'>, faults: FaultList): void {
  const [isHttps, verifiesClient] = [tls.http?.value === true, tls.verify_https_client?.value === true]
  for (const key of ['cert_file', 'key_file'] as const) {
    if (isHttps && !tls[key] && !isUnread(faults, `tls.${key}`)) {
      faults.add(tls.http?.where, `tls.http needs tls.${key}`)
    }
  }
  if (verifiesClient && !tls.ca_file && !isUnread(faults, 'tls.ca_file')) {
    faults.add(tls.verify_https_client?.where, 'tls.verify_https_client needs tls.ca_file')
  }
  if (verifiesClient && !isHttps && !isUnread(faults, 'tls.http')) {
    faults.add(tls.verify_https_client?.where, 'tls.verify_https_client needs tls.http = true')
  }
}

export function sealTypeOf(label: string): SealType | undefined {
  return SEAL_TYPES.find((known) => known === label)
}

/** The seal of the last file counts; two seals in one file are a fault. */
function checkSeals(seals: readonly RawSeal[], faults: FaultList): void {
  const seal = seals.at(-1)
  if (!seal) return
  const rival = seals.find((other) => other !== seal && other.where.origin === seal.where.origin)
  if (rival)
    faults.add(seal.where, `server.seal is set twice, first at ${rival.where.at.line}:${rival.where.at.column}`)
  const type = sealTypeOf(seal.label)
  if (!type) faults.add(seal.where, `server.seal: expected one of ${SEAL_TYPES.join(', ')}`)
  else if (!rival) checkSeal(type, seal, faults)
}

function checkSeal(type: SealType, { body, where }: RawSeal, faults: FaultList): void {
  const known = type === 'static' ? STATIC_SEAL_KEYS : []
  for (const [name, setting] of body) {
    if (known.includes(name)) continue
    const near = nearestName(name, known)
    const hint = near ? `, did you mean "${near}"?` : ''
    faults.add(setting.where, `unknown key "${name}" in server.seal "${type}"${hint}`)
  }
  if (type !== 'static') return
  for (const name of ['current_key_id', 'current_key']) {
    if (!body.get(name)?.value) faults.add(body.get(name)?.where ?? where, `server.seal "static" needs ${name}`)
  }
  const [previousId, previous] = [body.get('previous_key_id'), body.get('previous_key')]
  const half = previousId ?? previous
  if (half && !(previousId && previous)) {
    faults.add(half.where, 'server.seal: previous_key_id and previous_key must be set together')
  } else if (previousId && previousId.value === body.get('current_key_id')?.value) {
    faults.add(previousId.where, 'server.seal: previous_key_id and current_key_id must differ')
  }
  const disabled = body.get('disabled')
  if (disabled && !['true', 'false'].includes(disabled.value)) {
    faults.add(disabled.where, 'server.seal.disabled: expected true or false')
  }
  for (const name of ['current_key', 'previous_key']) checkKeySource(name, body.get(name), faults)
}

/** A key in the configuration itself is not checked here: the fault would show it. */
function checkKeySource(name: string, setting: Setting<string> | undefined, faults: FaultList): void {
  const scheme = KEY_SCHEME.exec(setting?.value ?? '')?.[1]
  if (scheme === undefined || KEY_SCHEMES.includes(scheme)) return
  const sources = 'file:///path, env://NAME, credential://NAME or the key in hex or base64'
  faults.add(setting?.where, `server.seal.${name}: expected ${sources}`)
}

function checkNats(nats: RawBlock<'nats'>, faults: FaultList): void {
  if (nats.servers?.value.length === 0) {
    faults.add(nats.servers.where, 'nats.servers is empty: add a server, or remove the nats block to run standalone')
  }
  checkPair(['nats.user', nats.user], ['nats.password_file', nats.password_file], faults)
  checkPair(['nats.cert_file', nats.cert_file], ['nats.key_file', nats.key_file], faults)
  const credentials = [nats.credentials_file, nats.nkey_file, nats.user ?? nats.password_file, nats.token_file]
  const [, second] = credentials.filter((setting) => setting !== undefined)
  if (second) {
    faults.add(
      second.where,
      'nats: set only one of credentials_file, nkey_file, user with password_file, or token_file',
    )
  }
  const { server_keys: serverKeys, core_keys: coreKeys } = nats
  if (serverKeys?.value.length === 0) {
    faults.add(
      serverKeys.where,
      'nats.server_keys is empty: add the keys of the servers, or remove it to trust every server that NATS authenticates',
    )
  }
  const unknownKey = coreKeys?.value.find((key) => !serverKeys?.value.includes(key))
  if (coreKeys && unknownKey !== undefined && !isUnread(faults, 'nats.server_keys', 'nats.core_keys')) {
    faults.add(coreKeys.where, `nats.core_keys: ${unknownKey} is not in nats.server_keys, which names all servers`)
  }
}

/** Scheduled snapshots. A block without settings has no location. */
function checkSnapshot(
  snapshot: NonNullable<RawBlock<'server'>['snapshot']>,
  { server }: Config,
  faults: FaultList,
): void {
  const where = blockLocation(snapshot)
  const { endpoint, path, region } = snapshot
  if (!path && !isUnread(faults, 'server.snapshot.path')) {
    faults.add(where, 'server.snapshot needs path: an absolute directory or s3://bucket/prefix')
  }
  if (server.enabled && !server.secrets) {
    faults.add(where, 'server.snapshot is for the server with the secrets core, and server.secrets is false')
  }
  const setting = region ?? endpoint
  if (setting && path && !isBucketPath(path.value)) {
    faults.add(setting.where, 'server.snapshot: region and endpoint are for a path with s3://')
  }
}

/** High availability. */
function checkHa(
  raw: RawConfig,
  { enabled, replicas }: NonNullable<RawBlock<'server'>['ha']>,
  config: Config,
  { faults, warnings }: RuleOptions,
): void {
  if (replicas && replicas.value % 2 === 0) {
    const fewer = replicas.value - 1
    faults.add(
      replicas.where,
      `server.ha.replicas is ${replicas.value}, expected 1, 3 or 5: set ${fewer}, which tolerates the loss of the same number of NATS servers`,
    )
  }
  const { ha, secrets } = config.server
  if (!ha.enabled || !config.server.enabled) return
  const where = enabled?.where
  if (!raw.nats && !isUnread(faults, 'nats')) {
    faults.add(
      where,
      'server.ha needs nats, because its commits are in JetStream: add nats { servers = [...] }, or remove server.ha',
    )
  }
  if (!secrets) {
    faults.add(
      raw.server?.secrets?.where ?? where,
      'server.ha is for servers with the secrets core: remove server.secrets = false, or remove server.ha from this server',
    )
  }
  const host = config.apiAddr === undefined ? (config.advertise.http ?? config.addresses.http) : ''
  if (WILDCARD.test(host)) {
    warnings.push(
      `server.ha: clients and other servers cannot connect to the API address ${host}: set api_addr = "https://HOST:PORT" or advertise.http to an address of this host`,
    )
  }
}

/** The settings of `secrets { }`, with which an agent logs in to the secrets core. */
function checkLogin(secrets: RawBlock<'secrets'>, faults: FaultList): void {
  const where = blockLocation(secrets)
  if (!secrets.role_id && !secrets.role_id_file && !isUnread(faults, 'secrets.role_id', 'secrets.role_id_file')) {
    faults.add(where, 'secrets needs role_id or role_id_file')
  }
  if (secrets.role_id && secrets.role_id_file) {
    faults.add(secrets.role_id_file.where, 'secrets: set only one of role_id and role_id_file')
  }
  if (!secrets.secret_id_file && !isUnread(faults, 'secrets.secret_id_file')) {
    faults.add(where, 'secrets needs secret_id_file')
  }
  checkPair(['secrets.cert_file', secrets.cert_file], ['secrets.key_file', secrets.key_file], faults)
  const tlsFile = secrets.ca_file ?? secrets.cert_file ?? secrets.key_file
  if (tlsFile && !isUnread(faults, 'secrets.address') && !secrets.address?.value.startsWith('https:')) {
    faults.add(tlsFile.where, 'secrets: ca_file, cert_file and key_file are for an address with https://')
  }
}

/** Rules about the login of an agent, the roles of the process and the network. */
function checkLoginRole(raw: RawBlock<'secrets'>, config: Config, { faults, warnings }: RuleOptions): void {
  const { client, nats, secrets, server } = config
  const where = blockLocation(raw)
  if (!client.enabled) faults.add(where, 'secrets is for an agent: it needs client { enabled = true }')
  if (!secrets?.address && !nats && !server.enabled) {
    faults.add(where, 'secrets needs an address, or a nats block: without either, the agent has no server to log in to')
  }
  const url = secrets?.address && URL.parse(secrets.address.url)
  if (url?.protocol !== 'http:' || isLoopback(url.hostname)) return
  warnings.push(
    `secrets.address ${url.origin} without TLS: an attacker on the network path can read the secret ID and the token (use https://)`,
  )
}

/** The location of the first setting of a block. */
function blockLocation(block: Readonly<Record<string, Setting<unknown> | undefined>>): SettingLocation | undefined {
  return Object.values(block).find((setting) => setting !== undefined)?.where
}

/** What this configuration exposes to the network. */
function checkExposure(raw: RawConfig, config: Config, { faults, warnings }: RuleOptions): void {
  const address = config.addresses.http
  if (!isLoopback(address)) {
    const given = raw.addresses?.http ?? raw.bind_addr
    if (config.dev) return faults.add(given?.where, `-dev listens on loopback only, not on ${address}`)
    const host = isIP(address) === 6 ? `[${address}]` : address
    const listens = `${locationPrefix(given?.where)}the HTTP API listens on ${host}:${config.ports.http}`
    if (!config.tls.http) {
      warnings.push(`${listens} without TLS: an attacker on the network path can read tokens, logs and files`)
    }
    if (!config.acl.enabled) {
      warnings.push(`${listens} with acl.enabled = false: every client can read the logs and files of all allocations`)
    }
  }
  const unencrypted = config.nats ? unencryptedServers(config.nats) : []
  if (unencrypted.length > 0) {
    warnings.push(
      `${locationPrefix(raw.nats?.servers?.where)}nats.servers: ${unencrypted.join(', ')} without TLS: an attacker on the network path can read logs and files that hosts send, and credentials (use tls://, or set ca_file)`,
    )
  }
  const isAlone = config.client.enabled && !config.server.enabled && !config.nats
  if (isAlone && config.acl.enabled && config.acl.tokens.length === 0 && config.acl.anonymousPolicy === undefined) {
    warnings.push('this standalone agent has no acl.token: it will refuse every call that requires a token')
  }
}
