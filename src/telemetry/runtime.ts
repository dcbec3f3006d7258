/** `/v1/agent/runtime`: the state of the JavaScript runtime and of the process, to analyze a process that is slow or uses more and more memory. */
import { readlinkSync } from 'node:fs'
import { getHeapSpaceStatistics, getHeapStatistics } from 'node:v8'
import { buildCommit } from '../platform/build-commit.ts'
import { Refusal } from '../platform/errors.ts'
import { handle } from '../platform/operation.ts'
import { queryText, schema } from '../platform/schema.ts'
import type { AgentFacts } from './agent-self.ts'
import { requireOwnTarget } from './monitor.ts'
import { type LoopDelay, namesIn } from './process-metrics.ts'

interface RuntimeParts {
  readonly facts: Pick<AgentFacts, 'version' | 'name'>
  readonly nodeId: string
  readonly loopDelay: () => LoopDelay
}

export const agentRuntime = handle(
  {
    name: 'agent.runtime',
    summary: 'Event loop delay, heap, handles and descriptors of this process',
    http: ['GET /v1/agent/runtime'],
    target: 'node',
    input: schema({
      node_id: queryText({ description: 'Node ID; default: this process', fallback: undefined }),
    }),
    output: 'json',
    errorFormat: 'plain',
    // A server without a host has a runtime as well.
    locate: ({ node_id: nodeId }) => (nodeId === undefined ? undefined : { nodeId }),
    authorize(_input, identity) {
      if (!identity.allowsAgent('read')) throw new Refusal('permission_denied', 'Permission denied')
    },
  },
  (parts: RuntimeParts) => ({
    find: ({ node_id: nodeId }) => requireOwnTarget(nodeId, parts.nodeId),
    run: async () => runtimeOf(parts),
  }),
)

function runtimeOf({ facts, loopDelay, nodeId }: RuntimeParts): Record<string, unknown> {
  const memory = process.memoryUsage()
  const cpu = process.cpuUsage()
  const heap = getHeapStatistics()
  return {
    At: new Date().toISOString(),
    Name: facts.name,
    NodeID: nodeId,
    Version: facts.version,
    Commit: buildCommit(),
    Runtime: process.version,
    PID: process.pid,
    UptimeSeconds: Math.floor(process.uptime()),
    CPUSeconds: { User: cpu.user / 1e6, System: cpu.system / 1e6 },
    EventLoop: { BusyRatio: performance.eventLoopUtilization().utilization, Delay: loopDelay() },
    MemoryBytes: {
      Resident: memory.rss,
      HeapUsed: memory.heapUsed,
      HeapReserved: memory.heapTotal,
      External: memory.external,
      Buffers: memory.arrayBuffers,
    },
    Heap: {
      LimitBytes: heap.heap_size_limit,
      AvailableBytes: heap.total_available_size,
      MallocedBytes: heap.malloced_memory,
      NativeContexts: heap.number_of_native_contexts,
      // Each keeps the objects of a discarded context alive.
      DetachedContexts: heap.number_of_detached_contexts,
      Spaces: getHeapSpaceStatistics().map((space) => ({
        Name: space.space_name,
        UsedBytes: space.space_used_size,
        ReservedBytes: space.space_size,
      })),
    },
    Handles: countOf(process.getActiveResourcesInfo()),
    Descriptors: countOf(namesIn('/proc/self/fd').map(descriptorKind)),
    Threads: namesIn('/proc/self/task').length,
  }
}

function countOf(kinds: readonly string[]): Record<string, number> {
  const counts = [...Map.groupBy(kinds, (kind) => kind)].map(([kind, all]) => [kind, all.length] as const)
  return Object.fromEntries(counts.sort(([a], [b]) => (a < b ? -1 : 1)))
}

/** `socket`, `pipe`, `anon_inode:[eventpoll]`, `file`. Not the path: it may be the name of a secret or of a customer. */
function descriptorKind(name: string): string {
  try {
    const target = readlinkSync(`/proc/self/fd/${name}`)
    if (target.startsWith('/')) return target.startsWith('/dev/') ? 'device' : 'file'
    return target.startsWith('anon_inode:') ? target : (target.split(':')[0] ?? 'other')
  } catch {
    return 'closed'
  }
}
