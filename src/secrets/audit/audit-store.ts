/**
 * Stores audit devices. `core/audit/<uuid>` has the options and the key of a device; it is replicated and in snapshots.
 * `local/audit/<uuid>` has the state of this server's chain (`chain-state.ts`); it is neither, because each server has its own files
 * and chains. A device records from the time its entry is durable until its removal is durable.
 */
import { randomBytes, randomUUID } from 'node:crypto'
import { setImmediate as turn } from 'node:timers/promises'
import * as v from 'valibot'
import type { Storage } from '../../storage/barrier/storage.ts'
import { Rejection } from '../../engines/framework/engine.ts'
import { Fault, messageOf } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import { Mutex } from '../../platform/mutex.ts'
import { textRecord } from '../../engines/framework/records.ts'
import { type AuditTrail, deviceLine } from './audit.ts'
import { AuditDevice } from './audit-device.ts'
import { checkOptions, DEVICE_TYPES, fileOf, settingsOf, sinkOf } from './audit-options.ts'
import { CHAIN_START, ChainKey } from './audit-chain.ts'
import { chainHeadSchema, ChainStates } from './chain-state.ts'
import { DeviceChain } from './device-chain.ts'

const PREFIX = 'core/audit/'
const KEY_BYTES = 32
const DEVICES_MAX = 16
/** Interval of storing heads. Lines since the last time can be removed undetected while the server is stopped. */
const HEAD_SAVE_INTERVAL_MS = 60_000
/** Interval of comparing files with chains and of retrying failed devices */
const PROBE_INTERVAL_MS = 5000
/** Lines that `verify` checks per time slice */
const VERIFIED_AT_ONCE = 500

const recordSchema = v.object({
  uuid: v.string(),
  path: v.string(),
  type: v.picklist(DEVICE_TYPES),
  description: v.string(),
  options: textRecord,
  local: v.boolean(),
  key: v.string(),
  /** The head of versions without MACs; later versions write the number 0. */
  head: chainHeadSchema,
  /** Its lines have MACs: a file whose last line has none is not trusted. */
  isKeyed: v.optional(v.boolean(), false),
})

export type DeviceRecord = v.InferOutput<typeof recordSchema>

type DeviceRequest = Pick<DeviceRecord, 'path' | 'type' | 'description' | 'local' | 'options'>

export interface AuditStoreOptions {
  readonly storage: Storage
  readonly trail: AuditTrail
  readonly logger: Logger
  /** Directories that audit files must be in; any directory by default. */
  readonly directories?: readonly string[] | undefined
  /** Devices are disabled: no file is opened, nothing is sent, and no request is recorded. */
  readonly isIdle?: boolean
}

export class AuditStore {
  readonly #storage: Storage
  readonly #trail: AuditTrail
  readonly #logger: Logger
  readonly #directories: readonly string[] | undefined
  readonly #records = new Map<string, DeviceRecord>()
  readonly #states: ChainStates
  readonly #timers: readonly NodeJS.Timeout[]
  /** Serializes changes: none may write the entry of a device that another one has removed. */
  readonly #changes = new Mutex()

  /** Reads and enables the devices. Throws a Fault for a damaged entry. */
  constructor({ directories, isIdle, logger, storage, trail }: AuditStoreOptions) {
    this.#directories = directories
    this.#storage = storage
    this.#states = new ChainStates(storage)
    this.#trail = trail
    this.#logger = logger
    if (isIdle) {
      this.#timers = []
      return
    }
    for (const name of storage.list(PREFIX)) {
      const bytes = storage.get(PREFIX + name)
      if (bytes) this.#serve(parseRecord(bytes))
    }
    this.#trail.check()
    // New chains and breaks are stored immediately.
    void this.saveHeads()
    this.#timers = [
      setInterval(() => void this.saveHeads(), HEAD_SAVE_INTERVAL_MS).unref(),
      setInterval(() => void this.#trail.probe(), PROBE_INTERVAL_MS).unref(),
    ]
  }

  all(): DeviceRecord[] {
    return [...this.#records.values()]
  }

  /** Resolves when the device is enabled. Rejects with a Rejection (400) if it cannot record. */
  async enable(given: DeviceRequest): Promise<void> {
    await this.#changes.runExclusive(() => this.#enable(given))
  }

  async #enable(given: DeviceRequest): Promise<void> {
    if (this.#overlaps(given.path)) throw new Rejection(400, `path already in use`)
    if (this.#records.size >= DEVICES_MAX) throw new Rejection(400, `too many audit devices (limit ${DEVICES_MAX})`)
    checkOptions(given.type, given.options)
    this.#checkFile(given)
    const key = randomBytes(KEY_BYTES)
    const record = { ...given, uuid: randomUUID(), key: key.toString('base64'), head: CHAIN_START, isKeyed: true }
    const device = this.#deviceOf({ ...record, isKeyed: false })
    this.#records.set(record.path, record)
    try {
      // A device that cannot record is refused here, before it could fail requests of other callers.
      await device.record(deviceLine(record.path, Date.now()))
      await this.#states.save(record.uuid, device)
      await this.#save(record)
    } catch (error) {
      this.#records.delete(record.path)
      device.close()
      if (error instanceof Rejection) throw error
      throw new Rejection(400, `audit device write failed: ${messageOf(error)}`)
    }
    this.#trail.add(device)
    // Not only with the next probe: a disk that fills up in between would stop reads.
    await device.keepReserve()
    this.#logger.info('audit device enabled', { device: record.path, type: record.type })
  }

  /** Resolves when the removal is durable. Does nothing for an unknown device. */
  async disable(path: string): Promise<void> {
    await this.#changes.runExclusive(() => this.#disable(path))
  }

  async #disable(path: string): Promise<void> {
    const record = this.#records.get(path)
    if (!record) return
    const { sequence } = this.#trail.find(path)?.head ?? CHAIN_START
    await this.#storage.commit({ puts: [], deletes: [PREFIX + record.uuid] })
    this.#records.delete(path)
    this.#trail.find(path)?.removeReserve()
    this.#trail.remove(path)
    await this.#states.remove(record.uuid)
    this.#logger.info('audit device disabled', { device: path, head: sequence })
  }

  /** Clears the broken chain of a device. Resolves when that is durable. Rejects with a Rejection (400) for an unknown device. */
  async acknowledge(path: string): Promise<void> {
    await this.#changes.runExclusive(async () => {
      const [record, device] = [this.#records.get(path), this.#trail.find(path)]
      if (!record || !device) throw unknownDevice(path)
      device.acknowledge()
      await this.#states.save(record.uuid, device)
    })
  }

  /**
   * Resolves with the index of the first line with an invalid MAC, or -1. Each line has the chain ID, the SHA-256 of the text before
   * the MAC, and the MAC, separated by spaces. Rejects with a Rejection (400) for an unknown device and for malformed lines.
   */
  async verify(path: string, lines: readonly string[]): Promise<number> {
    const record = this.#records.get(path)
    if (!record) throw unknownDevice(path)
    const key = Buffer.from(record.key, 'base64')
    let chain: ChainKey | undefined
    try {
      for (const [at, line] of lines.entries()) {
        const [, id, digest, mac] = /^([0-9a-f]{16}) ([0-9a-f]{64}) ([0-9a-f]{64})$/.exec(line) ?? []
        if (id === undefined || digest === undefined || mac === undefined)
          throw new Rejection(400, `"lines", line ${at + 1}: expected CHAIN_ID SHA256 MAC in hexadecimal`)
        if (chain?.id !== id) {
          chain?.close()
          chain = new ChainKey(key, id)
        }
        if (!chain.isMac(digest, mac)) return at
        if (at % VERIFIED_AT_ONCE === VERIFIED_AT_ONCE - 1) await turn()
      }
      return -1
    } finally {
      chain?.close()
    }
  }

  /** Stores the heads of the chains. Never rejects. */
  async saveHeads(): Promise<void> {
    await this.#changes.runExclusive(() => this.#saveHeads())
  }

  async #saveHeads(): Promise<void> {
    try {
      for (const device of this.#trail.devices) {
        const record = this.#records.get(device.path)
        if (!record || device.isNew) continue
        await this.#states.save(record.uuid, device)
        if (!record.isKeyed) await this.#save({ ...record, isKeyed: true })
      }
    } catch (error) {
      this.#logger.warn('audit chain heads could not be stored, will retry', { error: messageOf(error) })
    }
  }

  close(): void {
    for (const timer of this.#timers) clearInterval(timer)
  }

  async #save(record: DeviceRecord): Promise<void> {
    const value = Buffer.from(JSON.stringify(record))
    await this.#storage.commit({ puts: [{ path: PREFIX + record.uuid, value }], deletes: [] })
    if (this.#records.has(record.path)) this.#records.set(record.path, record)
  }

  #serve(record: DeviceRecord): void {
    this.#records.set(record.path, record)
    this.#trail.add(this.#deviceOf(record))
  }

  #deviceOf(record: DeviceRecord): AuditDevice {
    const key = Buffer.from(record.key, 'base64')
    const { broken, ...chain } = this.#states.read(record)
    const sink = sinkOf(record.type, record.options, this.#trail.elapsed)
    const settings = settingsOf(record.options)
    return new AuditDevice(record.path, { sink, key, settings, chain: new DeviceChain(key, chain), broken })
  }

  /** Throws a Rejection for a file outside the permitted directories, and for the file of another device. */
  #checkFile({ options, type }: DeviceRequest): void {
    const file = fileOf(type, options)
    const directories = this.#directories
    if (file && directories && !directories.some((each) => file.startsWith(`${each}/`))) {
      throw new Rejection(
        400,
        `audit files must be below ${directories.join(' or ')}: to permit others, set server { audit_dirs = [...] } in the configuration`,
      )
    }
    const other = file && this.all().find((each) => fileOf(each.type, each.options) === file)
    if (other) throw new Rejection(400, `the audit device ${other.path} writes to this file: use another file`)
  }

  /** True if the path equals, contains or is contained in the path of a device. */
  #overlaps(path: string): boolean {
    return [...this.#records.keys()].some((each) => each.startsWith(path) || path.startsWith(each))
  }
}

function unknownDevice(path: string): Rejection {
  return new Rejection(400, `unknown audit device "${path.slice(0, -1)}"`)
}

function parseRecord(bytes: Buffer): DeviceRecord {
  const result = v.safeParse(v.pipe(v.string(), v.parseJson(), recordSchema), bytes.toString('utf8'))
  if (!result.success) throw new Fault('the entry of an audit device is damaged')
  return result.output
}
