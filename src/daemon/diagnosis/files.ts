/** Owners and modes of configuration, keys and state. */
import { lstatSync, readdirSync, type Stats, statSync } from 'node:fs'
import { basename, join } from 'node:path'
import type { DiagnosisFinding } from '../../cli/framework/services.ts'
import type { Config } from '../../config/config.ts'
import { errnoOf, messageOf } from '../../platform/errors.ts'
import { nameOfUser } from '../../platform/program-file.ts'
import { type DiagnosisContext, failure, passed, skipped, warning } from './finding.ts'

const OTHERS_WRITE = 0o002
const GROUP_WRITE = 0o020
const OTHERS_READ = 0o004
const OWNER_READ = 0o400
const GROUP_READ = 0o040
/** Credentials of systemd. */
const CREDENTIALS = '/run/credentials/'
/** File names in one finding. */
const LISTED_MAX = 5

export function checkFiles({ config, configPaths }: DiagnosisContext): DiagnosisFinding[] {
  return [...configFindings(configPaths), ...keyFindings(config), ...stateFindings(config)]
}

/** A user who can write the configuration can obtain root access to the secrets. */
function configFindings(paths: readonly string[]): DiagnosisFinding[] {
  const files = paths.flatMap((path) => [path, ...(statOf(path)?.isDirectory() ? entriesOf(path) : [])])
  const findings = files.flatMap((file) => {
    const mode = statOf(file)?.mode ?? 0
    if ((mode & OTHERS_WRITE) !== 0) {
      return [failure('files/configuration', `${file} is writable by all users`, `chmod o-w ${file}`)]
    }
    if ((mode & GROUP_WRITE) === 0) return []
    return [warning('files/configuration', `${file} is writable by its group`, `chmod g-w ${file}`)]
  })
  return findings.length > 0 ? findings : [passed('files/configuration', 'only their owner can write them')]
}

/** Files with a key, a password or a token, by the setting that names them. */
function secretFiles({ nats, secrets, server, tls }: Config): [setting: string, file: string][] {
  const sealKeys = ['current_key', 'previous_key'].flatMap((name): [string, string][] => {
    const source = server.seal.settings[name] ?? ''
    return source.startsWith('file://') ? [[`server.seal ${name}`, source.slice('file://'.length)]] : []
  })
  const all: [string, string | undefined][] = [
    ['tls.key_file', tls.keyFile],
    ['nats.credentials_file', nats?.credentialsFile],
    ['nats.nkey_file', nats?.nkeyFile],
    ['nats.password_file', nats?.passwordFile],
    ['nats.token_file', nats?.tokenFile],
    ['nats.key_file', nats?.keyFile],
    ['secrets.secret_id_file', secrets?.role.secretIdFile],
    ['secrets.key_file', secrets?.address?.keyFile],
    ...(server.enabled && server.secrets ? sealKeys : []),
  ]
  return all.filter((each): each is [string, string] => each[1] !== undefined && each[1] !== '')
}

/** The user of the service, which owns the data directory; undefined before its first start, and for root. */
interface ServiceUser {
  readonly uid: number
  readonly gid: number
  /** The unit of an agent has the capability to read any file, that of a server has none. */
  readonly readsAnyFile: boolean
}

function serviceUserOf({ client, dataDir }: Config): ServiceUser | undefined {
  const owner = statOf(dataDir)
  if (!owner || owner.uid === 0) return undefined
  return { uid: owner.uid, gid: owner.gid, readsAnyFile: client.enabled }
}

function keyFindings(config: Config): DiagnosisFinding[] {
  const files = secretFiles(config)
  const service = serviceUserOf(config)
  const findings = files.flatMap(([setting, file]) => keyFinding(setting, file, service))
  if (findings.length > 0) return findings
  return files.length === 0
    ? [skipped('files/keys', 'the configuration names no key file')]
    : [passed('files/keys', `${files.length} files with keys, private and readable by the service`)]
}

function keyFinding(setting: string, file: string, service: ServiceUser | undefined): DiagnosisFinding[] {
  let stats: Stats
  try {
    stats = statSync(file)
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') {
      return [warning('files/keys', `${setting}: ${file} cannot be checked: ${messageOf(error)}`, 'run as root')]
    }
    return [failure('files/keys', `${setting}: ${file} does not exist`, `create it, or correct ${setting}`)]
  }
  if (!stats.isFile()) return [failure('files/keys', `${setting}: ${file} is not a file`, `correct ${setting}`)]
  if (stats.size === 0)
    return [failure('files/keys', `${setting}: ${file} is empty`, `write it, or correct ${setting}`)]
  if ((stats.mode & OTHERS_READ) !== 0) {
    return [failure('files/keys', `${setting}: ${file} is readable by all users`, `chmod 0600 ${file}`)]
  }
  if ((stats.mode & GROUP_READ) === 0) return service ? ownerFindings(setting, file, stats, service) : []
  if (service?.gid === stats.gid) return []
  const text = `${setting}: ${file} is readable by its group (${stats.gid})`
  return [warning('files/keys', text, `chmod g-r ${file}, unless the service reads it as a member of that group`)]
}

/** For a file that its owner alone may read. */
function ownerFindings(setting: string, file: string, stats: Stats, service: ServiceUser): DiagnosisFinding[] {
  const isReadable = service.readsAnyFile || (stats.uid === service.uid && (stats.mode & OWNER_READ) !== 0)
  // Their access lists are not part of the mode.
  if (isReadable || file.startsWith(CREDENTIALS)) return []
  const text = `${setting}: ${file} belongs to ${nameOfUser(stats.uid)}, and ${nameOfUser(service.uid)}, the user of the service, cannot read it`
  const path = wordsOf([file])
  return [failure('files/keys', text, `chgrp ${service.gid} ${path} && chmod 0640 ${path}`)]
}

/** Files of the state that contain keys. */
const PRIVATE_NAMES = new Set([
  'state.json',
  'server.nk',
  'secrets.db',
  'secrets.db-wal',
  'secrets-login.json',
  'roster.db',
])

/** The service runs as the owner of the data directory, and its files must belong to the same user. */
function stateFindings({ client, dataDir, server }: Config): DiagnosisFinding[] {
  const top = statOf(dataDir)
  if (!top) {
    return [
      warning('files/state', `${dataDir} does not exist`, 'the first start creates it; otherwise correct data_dir'),
    ]
  }
  const directories = [
    ...(client.enabled ? [client.stateDir] : []),
    ...(server.enabled ? [join(dataDir, 'server')] : []),
  ].filter((directory) => statOf(directory) !== undefined)
  const files: string[] = []
  for (const directory of directories) {
    try {
      files.push(directory, ...readdirSync(directory).map((name) => join(directory, name)))
    } catch (error) {
      return [
        warning(
          'files/state',
          `${directory} cannot be read: ${messageOf(error)}`,
          'run as root or as the user of the service',
        ),
      ]
    }
  }
  const owner = nameOfUser(top.uid)
  const foreign = files.filter((file) => (statOf(file)?.uid ?? top.uid) !== top.uid)
  // The mode of a link means nothing, and chmod would change its target.
  const links = files.filter((file) => PRIVATE_NAMES.has(basename(file)) && statOf(file)?.isSymbolicLink() === true)
  const open = files.filter(
    (file) => PRIVATE_NAMES.has(basename(file)) && !links.includes(file) && ((statOf(file)?.mode ?? 0) & 0o077) !== 0,
  )
  const findings: DiagnosisFinding[] = []
  if ((top.mode & OTHERS_WRITE) !== 0) {
    findings.push(failure('files/state', `${dataDir} is writable by all users`, `chmod o-w ${dataDir}`))
  }
  if (foreign.length > 0) {
    const text = `${owner} owns ${dataDir}, but not ${listed(foreign)}`
    // -h: the owner of the directory may put a link in place of the file before the command runs.
    findings.push(failure('files/owner', text, `chown -h ${owner}: ${wordsOf(foreign.slice(0, LISTED_MAX))}`))
  }
  if (open.length > 0) {
    findings.push(failure('files/mode', `readable by other users: ${listed(open)}`, `chmod 0600 ${wordsOf(open)}`))
  }
  if (links.length > 0) {
    const next = 'replace each by its file, unless you created the link; check the mode of its target'
    findings.push(warning('files/links', `symbolic links: ${listed(links)}`, next))
  }
  if (findings.length > 0) return findings
  return [passed('files/state', `${files.length} files of ${owner} in ${dataDir}, with correct modes`)]
}

function listed(files: readonly string[]): string {
  const more = files.length - LISTED_MAX
  return `${files.slice(0, LISTED_MAX).join(', ')}${more > 0 ? ` and ${more} more` : ''}`
}

/** Words of a shell command. The user of the service chooses the names of its files. */
function wordsOf(files: readonly string[]): string {
  return files.map((file) => (/^[\w./:@+-]+$/.test(file) ? file : quoted(file))).join(' ')
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`
}

/** Paths of the entries; none if the directory cannot be read, which the check of the configuration reports. */
function entriesOf(directory: string): string[] {
  try {
    return readdirSync(directory).map((name) => join(directory, name))
  } catch {
    return []
  }
}

/** Undefined for a file that cannot be checked. */
function statOf(file: string): Stats | undefined {
  try {
    return lstatSync(file)
  } catch {
    return undefined
  }
}
