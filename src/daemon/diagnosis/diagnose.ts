/**
 * `outpost operator diagnose`: checks of this host and of the services that its configuration names.
 *
 * A diagnosis leaves nothing behind: it writes a temporary file into data directories to measure the disk, and removes it. Databases are
 * opened read-only. Nothing is sent to NATS except its login and messages to subjects without a receiver, and a request for
 * the announcements of servers. Secrets are read where a start would read them, and never printed.
 */
import {
  DIAGNOSIS_GROUPS,
  type DiagnosisFinding,
  type DiagnosisGroup,
  type DiagnosisOptions,
} from '../../cli/framework/services.ts'
import { ConfigError, loadConfig } from '../../config/load.ts'
import { messageOf } from '../../platform/errors.ts'
import { checkPolicy } from '../../secrets/policies/policy.ts'
import { checkCertificates } from './certificates.ts'
import { checkClock } from './clock.ts'
import { checkDatabases } from './databases.ts'
import { checkDisk } from './disk.ts'
import { checkFiles } from './files.ts'
import { type DiagnosisCheck, type DiagnosisContext, failure, passed, skipped, warning } from './finding.ts'
import { checkNats } from './nats.ts'
import { checkPorts } from './ports.ts'
import { checkSeal } from './seal.ts'
import { checkService, findService } from './service.ts'
import { buildCommit } from '../../platform/build-commit.ts'

const CHECKS: Readonly<Record<DiagnosisGroup, DiagnosisCheck>> = {
  service: checkService,
  files: checkFiles,
  disk: checkDisk,
  ports: checkPorts,
  certificates: checkCertificates,
  nats: checkNats,
  clock: checkClock,
  database: checkDatabases,
  seal: checkSeal,
  versions: checkVersions,
}

export async function* diagnose(
  { config: configPaths, skip }: DiagnosisOptions,
  version: string,
): AsyncGenerator<DiagnosisFinding> {
  const context = yield* loadContext(configPaths, version)
  for (const group of DIAGNOSIS_GROUPS) {
    if (skip.includes(group)) yield skipped(group, 'skipped (-skip)')
    else if (!context) yield skipped(group, 'the configuration is invalid')
    else yield* await findingsOf(group, context)
  }
}

async function findingsOf(group: DiagnosisGroup, context: DiagnosisContext): Promise<DiagnosisFinding[]> {
  try {
    return await CHECKS[group](context)
  } catch (error) {
    // An error in one check must not hide the findings of the others.
    return [failure(group, `the check could not be completed: ${messageOf(error)}`, 'run it again as root')]
  }
}

async function* loadContext(
  paths: readonly string[],
  version: string,
): AsyncGenerator<DiagnosisFinding, DiagnosisContext | undefined> {
  try {
    const { config, warnings } = loadConfig({ paths, checkPolicy })
    const roles = [config.client.enabled ? 'agent' : '', config.server.enabled ? 'server' : ''].filter(Boolean)
    yield passed(
      'configuration',
      `valid: ${roles.join(' and ') || 'no role'} "${config.name}" in region ${config.region}`,
    )
    for (const text of warnings) yield warning('configuration', text, 'change the configuration')
    if (roles.length === 0) {
      yield failure('configuration/roles', 'neither client nor server is enabled', 'enable client {} or server {}')
    }
    return { config, configPaths: paths, version, service: await findService(config) }
  } catch (error) {
    if (!(error instanceof ConfigError)) {
      yield failure('configuration', `cannot be read: ${messageOf(error)}`, 'correct the path or its mode')
      return undefined
    }
    const faults = error.message.trim().split('\n')
    for (const fault of faults)
      yield failure('configuration', fault, 'correct the file, check it with outpost validate')
    return undefined
  }
}

const NODE_MAJOR_MIN = 24

/** Versions of the program, of the running process, and of the runtime. */
export function checkVersions({ service, version }: DiagnosisContext): DiagnosisFinding[] {
  const findings = [passed('versions/program', `outpost ${version}, commit ${buildCommit()}`)]
  const major = Number(process.versions.node.split('.')[0])
  const runtime = `Node ${process.version} on ${process.platform} ${process.arch}`
  const next = `install Node ${NODE_MAJOR_MIN}: npm ci, or the package`
  findings.push(
    major >= NODE_MAJOR_MIN ? passed('versions/runtime', runtime) : failure('versions/runtime', runtime, next),
  )
  if (service && service.version !== '' && service.version !== version) {
    const text = `the running service is outpost ${service.version}`
    findings.push(warning('versions/service', text, 'restart the service to run the installed version'))
  }
  return findings
}
