/**
 * The audit trail: records the requests to the secrets core and their responses as lines of audit devices.
 *
 * Each request has two lines (`audit-record.ts`): one before it is executed and one before it is answered. Both are written to
 * every device (`audit-device.ts`), which is a file or a socket. Strings in a line are HMACs under the device's key.
 *
 * Promises:
 * - If devices are enabled, a request that none of them has recorded changes nothing and reveals nothing: it ends with 500.
 * - An answered request has both lines in at least one device, even if the process is killed at any time after the answer.
 * - The lines of a device are numbered and chained (`audit-chain.ts`). The chain continues over rotations, restarts and seals.
 * - No line has a token, a key or a value, unless the operator has enabled raw lines.
 *
 * Assumes that no other program writes the files and that a rotation renames them. Bytes of another program never become part of
 * the chain (`device-chain.ts`): the break is logged, counted, recorded by the next line, and fails readiness until an operator
 * acknowledges it. Requests are recorded and served meanwhile.
 *
 * Failure modes:
 * - A device fails (a full disk, a receiver that does not read, `audit-socket.ts`): requests continue as long as another device records them. The
 *   failure is counted, logged (`device-health.ts`), and shown by readiness.
 * - The process is killed after the first line: the request may have been executed and has no second line.
 * - The process is killed between a rotation and its first line in the new file: the newest line is searched in files of the same
 *   directory whose names start with the name of the file. If the old file was compressed or deleted, `outpost audit verify`
 *   reports a gap between the two files.
 */
import { Fault, messageOf } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import type { ChainHead } from './audit-chain.ts'
import type { AuditDevice } from './audit-device.ts'
import type { FileFinding } from './audit-file.ts'
import type { ChainBreak } from './device-chain.ts'
import { type DeviceFailure, DeviceHealth } from './device-health.ts'
import { type AuditedAnswer, type AuditedRequest, requestLine, responseLine, type LineFormat } from './audit-record.ts'
import { setTimeout as sleep } from 'node:timers/promises'

/** No device has recorded a line. The message names each device and its reason. */
export class AuditFault extends Fault {}

/** Request headers to record, by name in lower case, and whether as an HMAC. */
export type AuditedHeaders = Readonly<Record<string, { readonly hmac: boolean }>>

export interface AuditTrailOptions {
  readonly logger: Logger
  readonly now: () => number
  /** Monotonic milliseconds. */
  readonly elapsed: () => number
  readonly headers: () => AuditedHeaders
}

/** The state of a device for metrics and readiness. */
export interface DeviceState {
  readonly path: string
  readonly head: ChainHead
  /** Recorded lines and failed lines since the core was activated. */
  readonly lines: number
  readonly failures: number
  /** The disk of its file is full: lines use the reserve, then they fail. */
  readonly isDiskFull: boolean
  /** The error of the last line; undefined if it was recorded. */
  readonly fault: string | undefined
  /** The last failure, until the device has recovered. */
  readonly failure: DeviceFailure | undefined
  /** ID of the chain that this server writes. */
  readonly chainId: string
  /** The newest unacknowledged break of the chain. */
  readonly broken: ChainBreak | undefined
  /** Breaks of the chain, and files that were emptied or removed, since the core was activated. */
  readonly breaks: number
  readonly lostFiles: number
}

export class AuditTrail {
  readonly #options: AuditTrailOptions
  readonly #devices = new Map<string, AuditDevice>()
  readonly #health = new Map<string, DeviceHealth>()
  /** Devices whose disk was logged as full. */
  readonly #fullDisks = new Set<string>()
  /** Requests without their second line. */
  #openRequests = 0
  #isClosing = false
  /** Lines are refused: the devices belong to another activity of the core. */
  #isEnded = false
  readonly #closing: Promise<void>[] = []

  constructor(options: AuditTrailOptions) {
    this.#options = options
  }

  /** False if no device is enabled: lines need not be formatted. */
  get isOn(): boolean {
    return this.#devices.size > 0
  }

  /** Monotonic milliseconds. */
  get elapsed(): () => number {
    return this.#options.elapsed
  }

  get headers(): AuditedHeaders {
    return this.#options.headers()
  }

  get devices(): readonly AuditDevice[] {
    return [...this.#devices.values()]
  }

  get states(): DeviceState[] {
    return this.devices.map((device) => {
      const { breaks, brokenChain: broken, chainId, failures, head, isDiskFull, lines, lostFiles, path } = device
      const failure = this.#health.get(path)?.failure
      const fault = failure?.isPast ? undefined : failure?.fault
      return { path, head, lines, failures, chainId, broken, breaks, lostFiles, isDiskFull, fault, failure }
    })
  }

  find(path: string): AuditDevice | undefined {
    return this.#devices.get(path)
  }

  add(device: AuditDevice): void {
    this.#devices.set(device.path, device)
    this.#health.set(device.path, new DeviceHealth(this.#options.elapsed))
    device.onFinding = (finding) => this.#logFinding(device.path, finding)
  }

  remove(path: string): void {
    this.#devices.get(path)?.close()
    this.#devices.delete(path)
    this.#health.delete(path)
    this.#fullDisks.delete(path)
  }

  /** Records a request. Rejects with a Fault if no device has recorded it. */
  async request(request: AuditedRequest): Promise<void> {
    await this.#record((format) => requestLine(request, format))
  }

  /** Records a response. Rejects with a Fault if no device has recorded it. */
  async response(request: AuditedRequest, answer: AuditedAnswer): Promise<void> {
    const nowMs = this.#options.now()
    await this.#record((format) => responseLine(request, answer, nowMs, format))
  }

  /** Reopens files and connections, immediately because a rotated file may soon be compressed and removed. */
  reopen(): void {
    this.#forEach((device) => device.reopen())
  }

  /** Compares files with their chains. Never throws: an error is a failure of the device. */
  check(): void {
    this.#forEach((device) => device.check())
  }

  #forEach(action: (device: AuditDevice) => void): void {
    for (const device of this.#devices.values()) {
      try {
        action(device)
      } catch (error) {
        this.#failed(device.path, error)
      }
    }
  }

  /**
   * Compares files with their chains, writes a line to devices with a break or that have not recovered, and restores the reserves.
   */
  async probe(): Promise<void> {
    this.check()
    const failing = this.devices.filter(
      ({ hasPendingBreak, path }) => hasPendingBreak || this.#health.get(path)?.failure,
    )
    await Promise.all(failing.map((device) => this.#attempt(device, deviceLine(device.path, this.#options.now()))))
    await Promise.all(this.devices.map((device) => device.keepReserve()))
    for (const device of this.devices) this.#reportDisk(device)
  }

  /** Writes a line to each device. Resolves to true when one has recorded it, to false if all fail; to true without devices. */
  async announce(): Promise<boolean> {
    if (!this.isOn) return true
    const nowMs = this.#options.now()
    return this.#attemptAtAny((device) => deviceLine(device.path, nowMs))
  }

  #reportDisk({ isDiskFull, path }: AuditDevice): void {
    const { logger } = this.#options
    if (isDiskFull && !this.#fullDisks.has(path)) {
      this.#fullDisks.add(path)
      logger.warn('disk of an audit file is full, lines use the reserve', { device: path })
    } else if (!isDiskFull && this.#fullDisks.delete(path)) {
      logger.info('disk of an audit file has space again', { device: path })
    }
  }

  /** Counts a request that needs both lines. */
  enter(): void {
    this.#openRequests++
  }

  leave(): void {
    this.#openRequests--
    if (this.#isClosing && this.#openRequests === 0) this.#closeAll()
  }

  /** Closes the devices when each open request has its second line, including the request that seals the core. */
  close(): void {
    this.#isClosing = true
    if (this.#openRequests === 0) this.#closeAll()
  }

  #closeAll(): void {
    for (const device of this.devices) this.#closing.push(device.closed)
    for (const path of this.#devices.keys()) this.remove(path)
  }

  /**
   * Closes the devices without waiting for open requests, before the next activity of the core opens the same files: two devices must not
   * write one chain. An open request is then not answered, because its second line is refused. Resolves when the queued lines are recorded.
   */
  async end(): Promise<void> {
    this.#isEnded = this.isOn
    this.#closeAll()
    await Promise.all(this.#closing)
  }

  /** Resolves when the first device has recorded the line, or when no device is enabled. */
  async #record(lineFor: (format: LineFormat) => string): Promise<void> {
    const { devices } = this
    const [first] = devices
    if (this.#isEnded)
      throw new AuditFault('the request began before the core was closed: its response is not recorded')
    if (!first) return
    // Most servers have one device, which needs no `Promise.any`.
    const isRecorded =
      devices.length === 1 ? await this.#attempt(first, lineFor(first.format)) : await this.#recordAtAny(lineFor)
    if (isRecorded) return
    const faults = this.states.flatMap(({ failure, path }) => (failure ? [`${path} ${failure.reason}`] : []))
    throw new AuditFault(`no audit device has recorded the request: ${faults.join(', ')}`)
  }

  async #recordAtAny(lineFor: (format: LineFormat) => string): Promise<boolean> {
    return this.#attemptAtAny((device) => lineFor(device.format))
  }

  async #attemptAtAny(lineFor: (device: AuditDevice) => string): Promise<boolean> {
    const attempts = this.devices.map(async (device) => {
      if (!(await this.#attempt(device, lineFor(device)))) throw new AuditFault(device.path)
    })
    return Promise.any(attempts).then(
      () => true,
      () => false,
    )
  }

  /** Resolves to whether the device has recorded the line. Never rejects. */
  async #attempt(device: AuditDevice, line: string): Promise<boolean> {
    try {
      await device.record(line)
      if (this.#health.get(device.path)?.succeed(device.distrustMs))
        this.#options.logger.info('audit device recovered', { device: device.path })
      return true
    } catch (error) {
      this.#failed(device.path, error)
      return false
    }
  }

  #logFinding(device: string, finding: FileFinding): void {
    const { logger } = this.#options
    if (finding.kind === 'break') {
      const { expected, file, found } = finding.broken
      const last = found
        ? { found_line: found.sequence, found_hash: found.hash }
        : { found_line: 'written by another program' }
      const expectation = { expected_line: expected.sequence, expected_hash: expected.hash }
      logger.error('audit file was changed by another program', { device, file, ...expectation, ...last })
      return
    }
    const message =
      finding.kind === 'emptied' ? 'audit file was truncated by another program' : 'audit file was removed'
    logger.warn(message, { device, file: finding.file, lines_up_to: finding.head.sequence })
  }

  #failed(path: string, error: unknown): void {
    // The device may have been disabled meanwhile.
    if (!this.#health.get(path)?.fail(error)) return
    this.#options.logger.error('audit device write failed', { device: path, error: messageOf(error) })
  }
}

/** A line that shows that the device can record. */
export function deviceLine(path: string, nowMs: number): string {
  return JSON.stringify({ time: new Date(nowMs).toISOString(), type: 'device', path })
}

// Between two activities of the core the devices of the last one are closed, and those of the next one must record.

/** Time for the queued lines of the last activity */
const END_MS = 1000
/** Time for the first line of the next one */
const START_MS = 2000

/** A device that does not respond must not prevent the activation. Never rejects. */
export async function endTrail(trail: AuditTrail | undefined): Promise<void> {
  if (trail) await Promise.race([trail.end(), sleep(END_MS, undefined, { ref: false })])
}

/** Rejects with a Fault if devices are enabled and none of them records a line. */
export async function requireRecording(trail: AuditTrail): Promise<void> {
  const late = sleep(START_MS, false, { ref: false })
  if (await Promise.race([trail.announce(), late])) return
  const reasons = trail.states.map(({ fault = 'no response', path }) => `${path} ${fault}`)
  throw new Fault(`no audit device of this server can record requests: ${reasons.join(', ')}`)
}
