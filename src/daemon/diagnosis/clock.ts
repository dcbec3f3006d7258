/**
 * The clock of this host: synchronized, and compared with those of other hosts. A server receives the times of nodes in their
 * heartbeats; a NATS server reports its time on its monitoring port; an agent compares its clock with the server of its login.
 */
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import type { DiagnosisFinding } from '../../cli/framework/services.ts'
import { verifyNodeMessage } from '../../cluster/roster/node-messages.ts'
import { TIMINGS } from '../../cluster/nats/timings.ts'
import { CLOCK_SKEW_MS, SKEW_WARNING_MS } from '../../cluster/trust/clock-skews.ts'
import type { NatsConfig } from '../../config/config.ts'
import { skewText } from '../monitoring/clock-warning.ts'
import { type DiagnosisContext, failure, passed, skipped, warning } from './finding.ts'
import { requestStatus } from './service.ts'
import { heartbeatSubject } from './nats.ts'

const NATS_MONITORING_PORT = 8222
/** Longer than the interval of heartbeats: at least one of each node is received. */
const LISTEN_MS = TIMINGS.heartbeatMs * 1.25
/** `Date` has whole seconds. */
const HEADER_RESOLUTION_MS = 1000
const NODES_LISTED_MAX = 5
const NEXT = 'synchronize the clocks: timedatectl set-ntp true, or chrony'

interface MeasuredSkew {
  readonly name: string
  readonly skewMs: number
}

export async function checkClock(context: DiagnosisContext): Promise<DiagnosisFinding[]> {
  const { config, service } = context
  const [synchronized, ...measured] = await Promise.all([
    synchronizedFinding(),
    natsSkews(config.nats),
    loginSkews(config.secrets?.address?.url),
    // A running server reports skews itself, as warnings.
    config.server.enabled && config.nats && !service ? nodeSkews(config.nats, config.region) : [],
  ])
  const skews = measured.flat()
  const skewed = skews.filter(({ skewMs }) => Math.abs(skewMs) > SKEW_WARNING_MS)
  const findings = [synchronized]
  if (skews.length === 0)
    findings.push(
      skipped(
        'clock/skew',
        'no clock to compare with: no NATS monitoring port responded, and no node sent a heartbeat',
      ),
    )
  else if (skewed.length === 0) {
    const maxMs = Math.max(...skews.map(({ skewMs }) => Math.abs(skewMs)))
    findings.push(passed('clock/skew', `${skews.length} clocks compared, at most ${(maxMs / 1000).toFixed(1)} s apart`))
  }
  for (const { name, skewMs } of skewed.slice(0, NODES_LISTED_MAX)) {
    const text = skewText(name, skewMs, 'this host')
    findings.push(
      Math.abs(skewMs) > CLOCK_SKEW_MS ? failure('clock/skew', text, NEXT) : warning('clock/skew', text, NEXT),
    )
  }
  const more = skewed.length - NODES_LISTED_MAX
  if (more > 0) {
    findings.push(warning('clock/skew', `${more} more clocks differ`, NEXT))
  }
  return findings
}

function synchronizedFinding(): Promise<DiagnosisFinding> {
  if (existsSync('/run/systemd/timesync/synchronized')) {
    return Promise.resolve(passed('clock/synchronized', 'synchronized by systemd-timesyncd'))
  }
  return new Promise((resolve) => {
    execFile('timedatectl', ['show', '-p', 'NTPSynchronized', '--value'], { timeout: 3000 }, (error, stdout) => {
      const value = stdout.trim()
      if (error || value === '') resolve(skipped('clock/synchronized', 'unknown: this host has no timedatectl'))
      else if (value === 'yes') resolve(passed('clock/synchronized', 'synchronized with NTP'))
      else resolve(warning('clock/synchronized', 'the clock is not synchronized with NTP', NEXT))
    })
  })
}

async function natsSkews(nats: NatsConfig | undefined): Promise<MeasuredSkew[]> {
  const hosts = new Set((nats?.servers ?? []).flatMap((server) => hostOf(server) ?? []))
  const skews = await Promise.all(
    [...hosts].map((host) => headerSkew(`http://${host}:${NATS_MONITORING_PORT}/healthz`, `NATS ${host}`)),
  )
  return skews.flat()
}

function hostOf(server: string): string | undefined {
  return URL.parse(`http://${server.replace(/^[a-z]+:\/\//i, '')}`)?.hostname
}

async function loginSkews(url: string | undefined): Promise<MeasuredSkew[]> {
  return url === undefined ? [] : headerSkew(`${url.replace(/\/$/, '')}/v1/sys/health`, `the server ${url}`)
}

async function headerSkew(url: string, name: string): Promise<MeasuredSkew[]> {
  const response = await requestStatus(url)
  if (response?.serverTimeMs === undefined) return []
  const { receivedAtMs, sentAtMs, serverTimeMs } = response
  // The server read its clock between both times, so only a time outside of them is a skew.
  if (serverTimeMs > receivedAtMs) return [{ name, skewMs: serverTimeMs - receivedAtMs }]
  const behindMs = sentAtMs - (serverTimeMs + HEADER_RESOLUTION_MS)
  return [{ name, skewMs: behindMs > 0 ? -behindMs : 0 }]
}

/** Listens for one heartbeat of each node. */
async function nodeSkews(nats: NatsConfig, region: string): Promise<MeasuredSkew[]> {
  const { probeNats } = await import('../../cluster/nats/nats-probe.ts')
  const skews = new Map<string, MeasuredSkew>()
  const onMessage = (payload: Uint8Array, subject: string) => {
    const signed = verifyNodeMessage(payload, subject)
    if (typeof signed === 'string' || signed.message.sentAtMs === undefined) return
    const id = subject.split('.').at(-2) ?? ''
    skews.set(id, { name: `node ${id}`, skewMs: signed.message.sentAtMs - Date.now() })
  }
  for (const server of nats.servers) {
    try {
      await probeNats({
        ...nats,
        server,
        name: 'outpost diagnose',
        subjects: { publish: [], subscribe: [] },
        listen: { subject: heartbeatSubject(region), durationMs: LISTEN_MS, onMessage },
      })
      break
    } catch {
      // Reported by the check of NATS.
    }
  }
  return [...skews.values()]
}
