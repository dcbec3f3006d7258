/** What the tests of statistics share: copies of fixture trees, allocations made of nothing, a clock that is moved by hand. */
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import type { TestContext } from 'node:test'
import type { Allocation, AllocationTable, Task } from '../../../src/host/allocations/allocation.ts'
import type { SamplerOptions } from '../../../src/host/stats/sampler.ts'
import type { FilesystemSizes } from '../../../src/host/stats/host-disks.ts'

const FIXTURES = resolve(import.meta.dirname, '../../../fixtures/proc')

export class Tree {
  readonly path: string

  constructor(context: TestContext, fixture: string) {
    this.path = mkdtempSync(join(tmpdir(), 'outpost-stats-'))
    cpSync(join(FIXTURES, fixture), this.path, { recursive: true })
    context.after(() => rmSync(this.path, { recursive: true, force: true }))
  }

  get roots(): { procRoot: string; sysRoot: string } {
    return { procRoot: join(this.path, 'proc'), sysRoot: join(this.path, 'sys') }
  }

  write(file: string, text: string): void {
    const path = join(this.path, file)
    mkdirSync(dirname(path), { recursive: true })
    writeFileSync(path, text)
  }

  read(file: string): string {
    return readFileSync(join(this.path, file), 'latin1')
  }

  remove(path: string): void {
    rmSync(join(this.path, path), { recursive: true })
  }
}

/** A line of /proc/PID/stat; times and start in ticks, memory in pages. */
export function statLine(
  pid: number,
  facts: { parent?: number; user?: number; system?: number; childUser?: number; childSystem?: number; start: number },
  rssPages = 100,
): string {
  const { parent = 1, user = 0, system = 0, childUser = 0, childSystem = 0, start } = facts
  const times = `${user} ${system} ${childUser} ${childSystem}`
  return `${pid} (x) S ${parent} ${pid} ${pid} 0 -1 0 0 0 0 0 ${times} 20 0 1 0 ${start} 1000 ${rssPages} 0 0\n`
}

export function aTask(name: string, pids: readonly number[], more: Partial<Task> = {}): Task {
  const logs = { logsDisabled: false, maxFiles: 10, maxFileSizeMb: 10 }
  return { name, state: 'running', failed: false, startedAtMs: 1, finishedAtMs: undefined, pids, ...logs, ...more }
}

let count = 0

export function anAllocation(tasks: readonly Task[], more: Partial<Allocation> = {}): Allocation {
  const id = `00000000-0000-4000-8000-${String(++count).padStart(12, '0')}`
  return {
    id,
    name: 'web.api[0]',
    namespace: 'default',
    jobId: 'web',
    taskGroup: 'api',
    desiredStatus: 'run',
    clientStatus: 'running',
    createTimeMs: 0,
    tasks: new Map(tasks.map((task) => [task.name, task])),
    directory: '/nowhere',
    collected: false,
    ...more,
  }
}

export class FakeTable implements AllocationTable {
  readonly map = new Map<string, Allocation>()

  constructor(...allocations: Allocation[]) {
    for (const allocation of allocations) this.map.set(allocation.id, allocation)
  }

  get(id: string): Allocation | undefined {
    return this.map.get(id)
  }

  all(): IterableIterator<Allocation> {
    return this.map.values()
  }
}

export class HandClock {
  atMs = 1_000_000

  nowMs(): number {
    return 1_790_000_000_000 + this.atMs
  }

  monotonicMs(): number {
    return this.atMs
  }
}

export const SIZES: FilesystemSizes = { bsize: 4096, blocks: 1000, bfree: 400, bavail: 300, files: 200, ffree: 150 }

/** Options of a sampler that sees `tree` and no real disk. */
export function samplerOptions(tree: Tree, clock: HandClock, ...allocations: Allocation[]): SamplerOptions {
  const table = new FakeTable(...allocations)
  return {
    ...tree.roots,
    clock,
    allocations: table,
    allocDir: '/alloc',
    sampleIntervalMs: 1000,
    statfs: () => Promise.resolve(SIZES),
  }
}
