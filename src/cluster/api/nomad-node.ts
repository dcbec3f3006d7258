/**
 * Nodes in the JSON format of stock clients: the stub of a list and the complete record. Keys are in alphabetical order, as the
 * compatible system writes them. Unsupported features (drains, volumes, plugins) have their empty values; fields that clients
 * dereference without a check (`NodeResources`, `ReservedResources`) are always present.
 */
import type { NodeRecord } from '../roster/roster-records.ts'

const MEGABYTE = 1024 * 1024

export interface NodeStubOptions {
  readonly resources: boolean
  readonly os: boolean
  /** Adds the time of the last change of the status, which stock lists do not have. */
  readonly status_time: boolean
}

/** Encoded stubs of each record, which is immutable, by combination of the options. */
const texts = new WeakMap<NodeRecord, (string | undefined)[]>()

/** As JSON. */
function nodeStubText(record: NodeRecord, options: NodeStubOptions): string {
  const form = (options.status_time ? 4 : 0) + (options.resources ? 2 : 0) + (options.os ? 1 : 0)
  let forms = texts.get(record)
  if (!forms) texts.set(record, (forms = []))
  return (forms[form] ??= JSON.stringify(nodeStub(record, options)))
}

/** Of a ready node whose heartbeat is late. */
export function heartbeatFact(lateMs: number | undefined): { readonly SecondsSinceHeartbeat?: number } {
  return lateMs === undefined ? {} : { SecondsSinceHeartbeat: Math.round(lateMs / 1000) }
}

/** A node in a list, as JSON. `lateMs` is not a part of the record, whose text is kept. */
export function listedNodeText(record: NodeRecord, options: NodeStubOptions, lateMs: number | undefined): string {
  const text = nodeStubText(record, options)
  if (lateMs === undefined) return text
  return `${text.slice(0, -1)},${JSON.stringify(heartbeatFact(lateMs)).slice(1)}`
}

function nodeStub(
  record: NodeRecord,
  { resources, os, status_time: hasTime }: NodeStubOptions,
): Record<string, unknown> {
  const { node } = record
  return {
    Address: hostOf(node.httpAddress),
    ...(os ? { Attributes: { 'os.name': node.attributes['os.name'] ?? '' } } : {}),
    CreateIndex: record.createIndex,
    Datacenter: node.datacenter,
    Drain: false,
    Drivers: driversOf(record),
    HostVolumes: {},
    ID: node.id,
    LastDrain: null,
    ModifyIndex: record.modifyIndex,
    Name: node.name,
    NodeClass: node.nodeClass,
    NodePool: node.nodePool,
    ...(resources ? { NodeResources: resourcesOf(record), ReservedResources: RESERVED } : {}),
    SchedulingEligibility: 'eligible',
    Status: record.status,
    StatusDescription: record.status === 'ready' ? '' : record.statusText,
    ...(hasTime ? { StatusUpdatedAt: Math.floor(record.statusAtMs / 1000) } : {}),
    Version: node.version,
  }
}

/** The complete record. */
export function nodeValue(record: NodeRecord): Record<string, unknown> {
  const { node } = record
  return {
    Attributes: node.attributes,
    CSIControllerPlugins: {},
    CSINodePlugins: {},
    CgroupParent: '',
    ComputedClass: '',
    CreateIndex: record.createIndex,
    Datacenter: node.datacenter,
    Drain: false,
    DrainStrategy: null,
    Drivers: driversOf(record),
    Events: record.events.map(({ message, atMs, index }) => ({
      CreateIndex: index,
      Details: null,
      Message: message,
      Subsystem: 'Cluster',
      Timestamp: timeText(atMs),
    })),
    GCVolumesOnNodeGC: false,
    HTTPAddr: node.httpAddress,
    HostNetworks: null,
    HostVolumes: {},
    ID: node.id,
    LastAllocUpdateIndex: 0,
    LastDrain: null,
    LastMissedHeartbeatIndex: record.status === 'down' ? record.modifyIndex : 0,
    Links: {},
    Meta: node.meta,
    ModifyIndex: record.modifyIndex,
    Name: node.name,
    NodeClass: node.nodeClass,
    NodeMaxAllocs: 0,
    NodePool: node.nodePool,
    NodeResources: resourcesOf(record),
    ReservedResources: RESERVED,
    SchedulingEligibility: 'eligible',
    SecretID: '',
    Status: record.status,
    StatusDescription: record.status === 'ready' ? '' : record.statusText,
    StatusUpdatedAt: Math.floor(record.statusAtMs / 1000),
    TLSEnabled: node.tls,
  }
}

/** Fields for filter expressions. Expensive ones are computed on access. */
export function filteredNode(record: NodeRecord): Record<string, unknown> {
  const { node, status, statusText } = record
  return {
    get Address() {
      return hostOf(node.httpAddress)
    },
    Attributes: node.attributes,
    CreateIndex: record.createIndex,
    Datacenter: node.datacenter,
    Drain: false,
    get Drivers() {
      return driversOf(record)
    },
    HTTPAddr: node.httpAddress,
    HostVolumes: NONE,
    ID: node.id,
    Links: NONE,
    Meta: node.meta,
    ModifyIndex: record.modifyIndex,
    Name: node.name,
    NodeClass: node.nodeClass,
    NodePool: node.nodePool,
    get NodeResources() {
      return resourcesOf(record)
    },
    ReservedResources: RESERVED,
    SchedulingEligibility: 'eligible',
    Status: status,
    StatusDescription: status === 'ready' ? '' : statusText,
    StatusUpdatedAt: Math.floor(record.statusAtMs / 1000),
    TLSEnabled: node.tls,
    Version: node.version,
  }
}

const NONE = {}

export const NODE_FILTER_FIELDS: ReadonlySet<string> = new Set(
  (
    'Address Attributes CreateIndex Datacenter Drain Drivers HTTPAddr HostVolumes ID Links Meta ' +
    'ModifyIndex Name NodeClass NodePool NodeResources ReservedResources SchedulingEligibility ' +
    'Status StatusDescription StatusUpdatedAt TLSEnabled Version'
  ).split(' '),
)

function hostOf(address: string): string {
  return address.replace(/:\d+$/, '').replace(/^\[(.*)\]$/, '$1')
}

/** RFC 3339, without fractions for a full second. */
export function timeText(ms: number): string {
  return new Date(ms).toISOString().replace('.000Z', 'Z')
}

function driversOf({ node, statusAtMs }: NodeRecord): Record<string, unknown> {
  const drivers: Record<string, unknown> = {}
  for (const [name, value] of Object.entries(node.attributes)) {
    const driver = /^driver\.([^.]+)$/.exec(name)?.[1]
    if (driver === undefined || !['1', 'true'].includes(value)) continue
    drivers[driver] = {
      Attributes: { [name]: 'true' },
      Detected: true,
      HealthDescription: 'Healthy',
      Healthy: true,
      UpdateTime: timeText(statusAtMs),
    }
  }
  return drivers
}

function resourcesOf({ node }: NodeRecord): unknown {
  const { cpuMhz, cores, memoryBytes, diskBytes } = node.resources
  const reportedBytes = Number(node.attributes['unique.storage.bytestotal'] ?? 0) || 0
  const disk = diskBytes || Math.min(Math.max(reportedBytes, 0), Number.MAX_SAFE_INTEGER)
  return {
    Cpu: {
      CpuShares: Math.round(cpuMhz),
      ReservableCpuCores: Array.from({ length: Math.min(cores, 4096) }, (_, core) => core),
      TotalCpuCores: cores,
    },
    Devices: null,
    Disk: { DiskMB: Math.floor(disk / MEGABYTE) },
    MaxDynamicPort: 0,
    Memory: { MemoryMB: Math.floor(memoryBytes / MEGABYTE) },
    MinDynamicPort: 0,
    Networks: null,
    NodeNetworks: null,
    Processors: { Topology: null },
  }
}

const RESERVED = {
  Cpu: { CpuShares: 0, ReservedCpuCores: null },
  Disk: { DiskMB: 0 },
  Memory: { MemoryMB: 0 },
  Networks: { ReservedHostPorts: '' },
}
