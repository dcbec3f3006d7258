/**
 * The audit trail: what was asked of the secrets core, and what came of it, in lines that somebody keeps.
 *
 * Each request has two lines (`audit-record.ts`): one before anything is done for it and one before it is answered. They go
 * to every device (`audit-device.ts`): a file, a socket. A device sees texts as HMACs under a key of its own.
 *
 * Promises. While there is a device, a request that no device has recorded changes nothing and is told nothing: it ends
 * with 500. A request that was answered has both lines in at least one device, also when the process is killed at any
 * moment after the answer. Lines of a device are numbered and chained (`audit-chain.ts`); the number goes on over
 * rotations, restarts and seals. No token, key or value is in a line, unless the operator asked for raw lines.
 *
 * Assumes that the files are this process's alone, and that a rotation renames them. Bytes of another program in a file never
 * become part of the chain (`device-chain.ts`): the break is logged, counted, stated by the next line, and fails readiness
 * until an operator acknowledges it. Requests are recorded and served meanwhile.
 *
 * What can go wrong. A device takes nothing (a full disk, a receiver that does not read): requests go on as long as another
 * device records them, the failure is logged once a minute and counted, and readiness tells it. The process is killed
 * after the first line: the request may have been done and has no second line, as it was never answered. The process is
 * killed after a rotation and before its first line in the new file: the newest line is looked for in files beside it whose
 * names begin alike. Where the old file is compressed or gone by then, the verification names a gap between the two files.
 */
import { errnoOf, Fault, messageOf } from '../../platform/errors.ts'
import { type Logger, LogOnce } from '../../platform/log.ts'
import type { ChainHead } from './audit-chain.ts'
import type { AuditDevice } from './audit-device.ts'
import type { FileFinding } from './audit-file.ts'
import type { ChainBreak } from './device-chain.ts'
import { type AuditedAnswer, type AuditedRequest, requestLine, responseLine, type Shown } from './audit-record.ts'

const TOLD_EVERY_MS = 60_000

/** No device has recorded a line. The caller is told which devices there are and why. */
export class AuditFault extends Fault {}

/** Headers of requests that lines show, by their name in lower case, and whether as an HMAC. */
export type AuditedHeaders = Readonly<Record<string, { readonly hmac: boolean }>>

export interface AuditTrailOptions {
  readonly logger: Logger
  readonly now: () => number
  readonly headers: () => AuditedHeaders
}

/** How a device stands, for figures and readiness. */
export interface DeviceState {
  readonly path: string
  readonly head: ChainHead
  /** Lines that it has recorded, and lines that it has not, since the core was opened. */
  readonly lines: number
  readonly failures: number
  /** Why it did not record its last line; undefined where it did. */
  readonly fault: string | undefined
  /** The error code of that fault, as callers see it: no path of this host. */
  readonly faultCode: string | undefined
  /** Names the chain that this server writes. */
  readonly chainId: string
  /** The newest break of its chain that no operator has acknowledged. */
  readonly broken: ChainBreak | undefined
  /** Breaks of its chain, and files that were truncated to nothing or removed, since the core was opened. */
  readonly breaks: number
  readonly lostFiles: number
}

export class AuditTrail {
  readonly #options: AuditTrailOptions
  readonly #devices = new Map<string, AuditDevice>()
  readonly #faults = new Map<string, string>()
  /** The same for callers, who need not know where files are. */
  readonly #codes = new Map<string, string>()
  readonly #failures = new LogOnce({ everyMs: TOLD_EVERY_MS })
  /** Devices whose last fault is in the log. */
  readonly #loggedFaults = new Set<string>()
  /** Requests with their first line and without their second. */
  #underWay = 0
  #isClosing = false

  constructor(options: AuditTrailOptions) {
    this.#options = options
  }

  /** False: nobody wants to know, and nothing has to be made. */
  get isOn(): boolean {
    return this.#devices.size > 0
  }

  get headers(): AuditedHeaders {
    return this.#options.headers()
  }

  get devices(): readonly AuditDevice[] {
    return [...this.#devices.values()]
  }

  get states(): DeviceState[] {
    return this.devices.map((device) => {
      const { breaks, brokenChain: broken, chainId, failures, head, lines, lostFiles, path } = device
      const [fault, faultCode] = [this.#faults.get(path), this.#codes.get(path)]
      return { path, head, lines, failures, chainId, broken, breaks, lostFiles, fault, faultCode }
    })
  }

  find(path: string): AuditDevice | undefined {
    return this.#devices.get(path)
  }

  add(device: AuditDevice): void {
    this.#devices.set(device.path, device)
    device.onFinding = (finding) => this.#found(device.path, finding)
  }

  remove(path: string): void {
    this.#devices.get(path)?.close()
    this.#devices.delete(path)
    this.#faults.delete(path)
    this.#codes.delete(path)
    this.#loggedFaults.delete(path)
  }

  /** Records what is asked. Rejects with a Fault where no device has. */
  async request(request: AuditedRequest): Promise<void> {
    await this.#record((shown) => requestLine(request, shown))
  }

  /** Records what came of it. Rejects with a Fault where no device has. */
  async response(request: AuditedRequest, answer: AuditedAnswer): Promise<void> {
    const nowMs = this.#options.now()
    await this.#record((shown) => responseLine(request, answer, nowMs, shown))
  }

  /** Opens files and connections again. A renamed file is followed at once: it may be compressed and removed soon. */
  reopen(): void {
    this.#each((device) => device.reopen())
  }

  /** Compares files with their chains. Never throws: a file that cannot be written to is a failure of its device. */
  check(): void {
    this.#each((device) => device.check())
  }

  #each(look: (device: AuditDevice) => void): void {
    for (const device of this.#devices.values()) {
      try {
        look(device)
      } catch (error) {
        this.#failed(device.path, error)
      }
    }
  }

  /**
   * Compares files with their chains, and writes a line where that found a break or the last line was not recorded.
   * Restores the reserves.
   */
  async probe(): Promise<void> {
    this.check()
    const failing = this.devices.filter(({ hasPendingBreak, path }) => hasPendingBreak || this.#faults.has(path))
    await Promise.all(failing.map((device) => this.#attempt(device, deviceLine(device.path, this.#options.now()))))
    await Promise.all(this.devices.map((device) => device.keepReserve()))
  }

  /** Counts in a request that is to have both lines. */
  enter(): void {
    this.#underWay++
  }

  leave(): void {
    this.#underWay--
    if (this.#isClosing && this.#underWay === 0) this.#closeAll()
  }

  /** Lets go of files and keys once each request that is under way has its second line: that of the seal itself, too. */
  close(): void {
    this.#isClosing = true
    if (this.#underWay === 0) this.#closeAll()
  }

  #closeAll(): void {
    for (const path of this.#devices.keys()) this.remove(path)
  }

  /** Resolves when the first device has recorded it; the others go on. At once where the last device is disabled by then. */
  async #record(lineFor: (shown: Shown) => string): Promise<void> {
    const { devices } = this
    const [first] = devices
    if (!first) return
    // Most servers have one device.
    const isRecorded =
      devices.length === 1 ? await this.#attempt(first, lineFor(first.shown)) : await this.#recordAtAny(lineFor)
    if (isRecorded) return
    const faults = [...this.#codes].map(([path, code]) => `${path} ${code}`)
    throw new AuditFault(`no audit device has recorded the request: ${faults.join(', ')}`)
  }

  async #recordAtAny(lineFor: (shown: Shown) => string): Promise<boolean> {
    const attempts = this.devices.map(async (device) => {
      if (!(await this.#attempt(device, lineFor(device.shown)))) throw new AuditFault(device.path)
    })
    return Promise.any(attempts).then(
      () => true,
      () => false,
    )
  }

  /** Whether the device has recorded the line. Never rejects. */
  async #attempt(device: AuditDevice, line: string): Promise<boolean> {
    try {
      await device.record(line)
      if (this.#faults.delete(device.path)) this.#recovered(device.path)
      return true
    } catch (error) {
      this.#failed(device.path, error)
      return false
    }
  }

  /** Logged once for each failure in the log: a device that fails and records in turn writes two lines a minute. */
  #recovered(path: string): void {
    this.#codes.delete(path)
    if (this.#loggedFaults.delete(path)) this.#options.logger.info('audit device recovered', { device: path })
  }

  #found(device: string, finding: FileFinding): void {
    const { logger } = this.#options
    if (finding.kind === 'break') {
      const { expected, file, found } = finding.broken
      const last = found ? { found_line: found.sequence, found_hash: found.hash } : { found_line: 'of another program' }
      const wanted = { expected_line: expected.sequence, expected_hash: expected.hash }
      logger.error('audit file was changed by another program', { device, file, ...wanted, ...last })
      return
    }
    const message =
      finding.kind === 'emptied' ? 'audit file was truncated by another program' : 'audit file was removed'
    logger.warn(message, { device, file: finding.file, lines_up_to: finding.head.sequence })
  }

  #failed(path: string, error: unknown): void {
    // It may be disabled by now.
    if (!this.#devices.has(path)) return
    this.#faults.set(path, messageOf(error))
    this.#codes.set(path, errnoOf(error) ?? 'failed')
    if (this.#failures.due(path) === 0) return
    this.#loggedFaults.add(path)
    this.#options.logger.error('audit device write failed', { device: path, error: messageOf(error) })
  }
}

/** A line about the device itself, which tells that it can record. */
export function deviceLine(path: string, nowMs: number): string {
  return JSON.stringify({ time: new Date(nowMs).toISOString(), type: 'device', path })
}
