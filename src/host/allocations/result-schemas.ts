/** JSON schemas of the host module's responses, for the OpenAPI document. */
import { COUNT, FLAG, NUMBER, TEXT, type JsonSchema, map, orNull, record } from '../../platform/operation.ts'

export const FILE_FACTS: JsonSchema = {
  ...record({
    FileMode: { ...TEXT, description: 'As ls -l shows it' },
    IsDir: FLAG,
    ModTime: { ...TEXT, format: 'date-time' },
    Name: TEXT,
    Size: { ...COUNT, description: 'Bytes' },
  }),
  description: 'ContentType is set in the response of fs/stat only',
}

export const FILE_LIST: JsonSchema = { type: 'array', items: FILE_FACTS }

const DISK = record({
  Available: COUNT,
  Device: TEXT,
  InodesUsedPercent: NUMBER,
  Mountpoint: TEXT,
  Size: COUNT,
  Used: COUNT,
  UsedPercent: NUMBER,
})

const CORE = record({ CPU: TEXT, Idle: NUMBER, System: NUMBER, TotalPercent: NUMBER, TotalTicks: NUMBER, User: NUMBER })

const HOST_STATS_FIELDS = {
  AllocDirStats: DISK,
  CPU: { type: 'array', items: CORE },
  CPUTicksConsumed: NUMBER,
  DeviceStats: { type: 'null' },
  DiskStats: orNull({ type: 'array', items: DISK }),
  Memory: record({ Available: COUNT, Free: COUNT, Total: COUNT, Used: COUNT }),
  Timestamp: { ...COUNT, description: 'Nanoseconds since 1970' },
  Uptime: { ...COUNT, description: 'Seconds' },
}

const NETWORK = record({ Interface: TEXT, ReceivedBytes: COUNT, SentBytes: COUNT })

/** Network counters are in the response if the caller asks for them. */
export const HOST_STATS: JsonSchema = {
  ...record(HOST_STATS_FIELDS),
  properties: { ...HOST_STATS_FIELDS, NetworkStats: { type: 'array', items: NETWORK } },
}

const MEASURED = orNull({ type: 'array', items: TEXT })

const USAGE = record({
  CpuStats: record({
    Measured: MEASURED,
    Percent: NUMBER,
    SystemMode: NUMBER,
    ThrottledPeriods: COUNT,
    ThrottledTime: COUNT,
    TotalTicks: NUMBER,
    UserMode: NUMBER,
  }),
  DeviceStats: orNull({ type: 'array' }),
  MemoryStats: record({
    Cache: COUNT,
    KernelMaxUsage: COUNT,
    KernelUsage: COUNT,
    MappedFile: COUNT,
    MaxUsage: COUNT,
    Measured: MEASURED,
    RSS: COUNT,
    Swap: COUNT,
    Usage: COUNT,
  }),
})

export const ALLOCATION_STATS: JsonSchema = record({
  ResourceUsage: USAGE,
  Tasks: map(record({ Pids: orNull(map(USAGE)), ResourceUsage: USAGE, Timestamp: COUNT })),
  Timestamp: COUNT,
})

export const METADATA: JsonSchema = record({ Dynamic: map(orNull(TEXT)), Meta: map(TEXT), Static: map(TEXT) })
