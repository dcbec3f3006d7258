/** `sys/host-info`, `sys/metrics` and `sys/in-flight-req`. */
import { statfs } from 'node:fs/promises'
import os from 'node:os'
import { path, type Path, Rejection, type Reply } from '../../engines/framework/engine.ts'
import { text } from '../../engines/framework/fields.ts'
import { messageOf } from '../../platform/errors.ts'
import type { WithOptions, WithClock } from './core-parts.ts'
import { processorFacts } from './processor-facts.ts'

export interface SystemHostParts extends WithClock, WithOptions<'serverInfo'> {
  readonly inFlight: { list(): Record<string, unknown> }
}

export function hostPaths(core: SystemHostParts): Path[] {
  return [
    path({
      pattern: 'host-info',
      summary: 'Read the processors, memory and file systems of this machine',
      fields: {},
      read: () => hostInfo(core),
    }),
    path({
      pattern: 'metrics',
      summary: 'Read the metrics of this process',
      fields: { format: text('`prometheus` for the text format, otherwise JSON', { fallback: '' }) },
      read: ({ format }) => metrics(core, format),
    }),
    path({
      pattern: 'in-flight-req',
      summary: 'List the requests in flight',
      fields: {},
      read: () => ({ bare: core.inFlight.list() }),
    }),
  ]
}

async function metrics({ options: { serverInfo } }: SystemHostParts, format: string): Promise<Reply> {
  if (format !== '' && format !== 'json' && format !== 'prometheus') {
    throw new Rejection(400, `metric response format "${format.slice(0, 64)}" unknown`)
  }
  if (!serverInfo?.metrics) throw new Rejection(400, 'this process has no metrics')
  if (format !== 'prometheus') return { bare: serverInfo.metrics.json() }
  const body = await serverInfo.metrics.text()
  if (body === undefined) throw new Rejection(400, 'prometheus is not enabled')
  return { text: { body, contentType: 'text/plain; version=0.0.4; charset=utf-8' } }
}

async function hostInfo(core: SystemHostParts): Promise<Reply> {
  const [{ disk, warnings }, processors] = await Promise.all([
    disks(core.options.serverInfo?.directories ?? ['/']),
    processorFacts(),
  ])
  const data = {
    timestamp: new Date(core.now()).toISOString(),
    cpu: processors,
    cpu_times: os.cpus().map(({ times }, at) => coreTimes(times, at)),
    disk,
    host: hostFacts(core.now()),
    memory: memoryFacts(),
  }
  return { data, ...(warnings.length > 0 ? { warnings } : {}) }
}

/** In seconds */
function coreTimes({ idle, irq, nice, sys, user }: os.CpuInfo['times'], at: number): Record<string, unknown> {
  const rest = { iowait: 0, softirq: 0, steal: 0, guest: 0, guestNice: 0 }
  const [perUser, perSystem] = [user / 1000, sys / 1000]
  return {
    cpu: `cpu${at}`,
    user: perUser,
    system: perSystem,
    idle: idle / 1000,
    nice: nice / 1000,
    irq: irq / 1000,
    ...rest,
  }
}

function hostFacts(nowMs: number): Record<string, unknown> {
  const uptime = Math.floor(os.uptime())
  return {
    hostname: os.hostname(),
    uptime,
    bootTime: Math.floor(nowMs / 1000) - uptime,
    procs: 0,
    os: os.platform(),
    platform: os.platform(),
    platformFamily: os.type(),
    platformVersion: os.version(),
    kernelVersion: os.release(),
    kernelArch: os.machine(),
    virtualizationSystem: '',
    virtualizationRole: '',
    hostid: '',
  }
}

function memoryFacts(): Record<string, unknown> {
  const [total, available] = [os.totalmem(), os.freemem()]
  const used = total - available
  return { total, available, used, usedPercent: (used / total) * 100, free: available }
}

/** A file system that cannot be read becomes a warning. */
async function disks(directories: readonly string[]): Promise<{ disk: object[]; warnings: string[] }> {
  const disk: object[] = []
  const warnings: string[] = []
  for (const directory of directories) {
    try {
      const { bavail, bfree, blocks, bsize, ffree, files, type } = await statfs(directory)
      const used = (blocks - bfree) * bsize
      disk.push({
        path: directory,
        fstype: `0x${type.toString(16)}`,
        total: blocks * bsize,
        free: bavail * bsize,
        used,
        usedPercent: percent(used, used + bavail * bsize),
        inodesTotal: files,
        inodesUsed: files - ffree,
        inodesFree: ffree,
        inodesUsedPercent: percent(files - ffree, files),
      })
    } catch (error) {
      warnings.push(`unable to collect disk information of ${directory}: ${messageOf(error)}`)
    }
  }
  return { disk, warnings }
}

function percent(part: number, whole: number): number {
  return whole === 0 ? 0 : (part / whole) * 100
}
