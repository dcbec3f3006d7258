/** The listen addresses: used by the running service, or free. */
import type { DiagnosisFinding } from '../../cli/framework/services.ts'
import { errnoOf, messageOf } from '../../platform/errors.ts'
import { type DiagnosisContext, failure, passed, skipped } from './finding.ts'

export async function checkPorts({ config, service }: DiagnosisContext): Promise<DiagnosisFinding[]> {
  const { addresses, ports, server } = config
  const findings = [await httpFinding(addresses.http, ports.http, service?.url)]
  if (server.enabled && server.secrets)
    findings.push(await clusterFinding(addresses.cluster, ports.cluster, service !== undefined))
  return findings
}

async function httpFinding(host: string, port: number, url: string | undefined): Promise<DiagnosisFinding> {
  if (url !== undefined) return passed('ports/http', `the service listens at ${url}`)
  if (port === 0) return skipped('ports/http', 'ports.http = 0: any free port')
  return bindFinding('ports/http', 'ports.http', host, port)
}

/** Only a DR primary listens on it. */
async function clusterFinding(host: string, port: number, isRunning: boolean): Promise<DiagnosisFinding> {
  if (port === 0) return skipped('ports/cluster', 'ports.cluster = 0: any free port')
  if (isRunning) return skipped('ports/cluster', `the service may use port ${port}`)
  return bindFinding('ports/cluster', 'ports.cluster', host, port)
}

async function bindFinding(check: string, setting: string, host: string, port: number): Promise<DiagnosisFinding> {
  const error = await bindError(host, port)
  const where = `${host}:${port}`
  if (!error) return passed(check, `${where} is free`)
  switch (errnoOf(error)) {
    case 'EADDRINUSE':
      return failure(
        check,
        `${where} is used by another process`,
        `stop it (ss -ltnp sport = :${port}), or change ${setting}`,
      )
    case 'EADDRNOTAVAIL':
      return failure(check, `${host} is not an address of this host`, 'correct bind_addr or addresses')
    case 'EACCES':
      return failure(check, `this user may not listen on port ${port}`, `use a port from 1024 on, or run as root`)
    default:
      return failure(check, `cannot listen on ${where}: ${messageOf(error)}`, `correct ${setting} and bind_addr`)
  }
}

function bindError(host: string, port: number): Promise<Error | undefined> {
  const { createServer } = process.getBuiltinModule('node:net')
  return new Promise((resolve) => {
    const server = createServer()
    server.on('error', resolve)
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(undefined)))
  })
}
