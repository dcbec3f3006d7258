/** Versions of the program, of the running process, and of the runtime. */
import type { DiagnosisFinding } from '../../cli/framework/services.ts'
import { buildCommit } from '../../platform/build-commit.ts'
import { type DiagnosisContext, failure, passed, warning } from './finding.ts'

const NODE_MAJOR_MIN = 24

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
