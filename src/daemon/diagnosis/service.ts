/** The running process of the configuration, if there is one. */
import { join } from 'node:path'
import type { DiagnosisFinding } from '../../cli/framework/services.ts'
import { fieldsOf } from '../../cli/output/json.ts'
import type { Config } from '../../config/config.ts'
import { readTextIfExists } from '../../platform/program-file.ts'
import { type DiagnosisContext, failure, passed, type RunningService, skipped, warning } from './finding.ts'
import { parseJson } from '../../cli/client/http-client.ts'

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
  storage: 'follow the instructions in the text; the server log contains the paths',
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
  if (!service) return [skipped('service', 'not running: checks that need a running service are skipped')]
  const failing = service.checks.filter(({ state }) => state !== 'ok')
  return [
    passed('service', `running at ${service.url}, ${service.isReady ? 'ready' : 'not ready'}`),
    ...failing.map(({ name, reason }) => failingFinding(name, reason)),
    ...service.warnings.map((text) => warning('service', text, 'see docs/troubleshooting.md')),
  ]
}

const TIMEOUT_MS = 3000
/** Of the whole answer: the process at the address may not be outpost. */
const ANSWER_TIMEOUT_MS = 10_000
const BODY_BYTES_MAX = 1 << 20

export interface StatusAnswer {
  readonly status: number
  /** Parsed JSON; undefined for another body. */
  readonly body: unknown
  /** Time of the server, and the local times before the request and after its response. */
  readonly serverTimeMs: number | undefined
  readonly sentAtMs: number
  readonly receivedAtMs: number
}

/**
 * One GET of a status page; undefined without a response. Not the client of commands: the times of the request are measured. Certificates are not verified here: no secret is sent, and the check `certificates` reports their
 * faults.
 */
export async function requestStatus(url: string, timeoutMs = TIMEOUT_MS): Promise<StatusAnswer | undefined> {
  const isTls = url.startsWith('https:')
  const { get } = isTls ? process.getBuiltinModule('node:https') : process.getBuiltinModule('node:http')
  const sentAtMs = Date.now()
  const signal = AbortSignal.timeout(ANSWER_TIMEOUT_MS)
  const options = { timeout: timeoutMs, signal, ...(isTls ? { rejectUnauthorized: false } : {}) }
  return new Promise((resolve) => {
    const request = get(url, options, (response) => {
      const receivedAtMs = Date.now()
      const chunks: Buffer[] = []
      const serverTimeMs = Date.parse(response.headers.date ?? '')
      let bytes = 0
      response.on('data', (chunk: Buffer) => {
        bytes += chunk.length
        if (bytes <= BODY_BYTES_MAX) chunks.push(chunk)
        else request.destroy()
      })
      response.on('error', () => resolve(undefined)).on('close', () => resolve(undefined))
      response.on('end', () => {
        resolve({
          status: response.statusCode ?? 0,
          body: parseJson(Buffer.concat(chunks).toString('utf8')),
          serverTimeMs: Number.isNaN(serverTimeMs) ? undefined : serverTimeMs,
          sentAtMs,
          receivedAtMs,
        })
      })
    })
    request.on('timeout', () => request.destroy())
    request.on('error', () => resolve(undefined))
  })
}
