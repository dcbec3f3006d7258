/** The running process of the configuration, if there is one. */
import { join } from 'node:path'
import type { DiagnosisFinding } from '../../cli/framework/services.ts'
import { fieldsOf } from '../../cli/output/json.ts'
import type { Config } from '../../config/config.ts'
import { readTextIfExists } from '../../platform/program-file.ts'
import { type DiagnosisContext, failure, passed, type RunningService, skipped, warning } from './finding.ts'
import { requestStatus } from './http-status.ts'

/** Requests the state from the address that the last process of this data directory wrote. */
export async function findService({ dataDir }: Pick<Config, 'dataDir'>): Promise<RunningService | undefined> {
  const url = urlIn(join(dataDir, 'http.addr'))
  if (url === undefined) return undefined
  const ready = await requestStatus(`${url}/v1/agent/ready`)
  const fields = fieldsOf(ready?.body)
  // Another program may use the port by now.
  if (!Array.isArray(fields.value('checks'))) return undefined
  const health = await requestStatus(`${url}/v1/sys/health`)
  const warnings = fields.value('warnings')
  return {
    url,
    version: fieldsOf(health?.body).text('outpost_version'),
    isReady: fields.boolean('ready'),
    checks: fields.list('checks').map((check) => ({
      name: check.text('name'),
      state: check.text('state'),
      reason: check.text('reason'),
    })),
    warnings: Array.isArray(warnings) ? warnings.map(String) : [],
  }
}

function urlIn(file: string): string | undefined {
  try {
    const text = (readTextIfExists(file) ?? '').trim()
    // The user of the service writes it, and root requests it.
    return /^https?:\/\/[\w.:[\]-]{1,255}$/.test(text) && URL.canParse(text) ? text : undefined
  } catch {
    return undefined
  }
}

/** Next step of the operator for a failing readiness check. */
const NEXT: Readonly<Record<string, string>> = {
  disk: 'free space in the data directory, or correct its owner and mode',
  nats: 'see the findings below nats',
  storage: 'follow the text; the log of the server has the paths',
  seal: 'unseal the server: outpost operator unseal',
  audit: 'free space or fix the receiver of the device; "audit device write failed" in the log has the cause',
  roster: 'wait for a heartbeat of the nodes (10 s); then see outpost node list -status down',
}

/** The reason may name the next step itself. */
function failingFinding(name: string, reason: string): DiagnosisFinding {
  const known = reason === 'not connected to NATS' ? NEXT['nats'] : NEXT[name]
  const [, text = reason, next = known ?? 'see the log of the service: outpost monitor'] =
    /^(.*?),? next: (.+)$/.exec(reason) ?? []
  return failure(`service/${name}`, text, next)
}

export function checkService({ service }: DiagnosisContext): DiagnosisFinding[] {
  if (!service) return [skipped('service', 'not running: checks of a running service are left out')]
  const failing = service.checks.filter(({ state }) => state !== 'ok')
  return [
    passed('service', `running at ${service.url}, ${service.isReady ? 'ready' : 'not ready'}`),
    ...failing.map(({ name, reason }) => failingFinding(name, reason)),
    ...service.warnings.map((text) => warning('service', text, 'see docs/troubleshooting.md')),
  ]
}
