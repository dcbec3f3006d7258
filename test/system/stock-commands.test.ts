/**
 * What each stock `nomad` command asks, as it was recorded, put to a whole server and a whole agent that meet over a real
 * NATS server: the same requests in the same order, to the process that the command calls.
 */
import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { agentHere } from '../helpers/agent-here.ts'
import { workDirectory } from '../helpers/agent-process.ts'
import { startNatsServer } from '../helpers/nats-server.ts'
import { makeAllocation } from '../helpers/allocation.ts'
import { eventually } from '../helpers/eventually.ts'

const ALLOC = 'c7c62284-c32e-9109-57b2-7c21625c03c6'
const ENDED = 'd18ae08b-b58c-f166-89bc-36a5038d101d'
const FOLLOWS = /\/fs\/stream\/|follow=true|\/agent\/monitor/

interface Row {
  readonly name: string
  readonly command: string
  readonly requests: readonly { to: 'server' | 'client'; method: string; url: string; body?: string; status: number }[]
}

/** Where ours answer otherwise, and why (docs/compatibility.md). */
const OTHERWISE: readonly { readonly url: RegExp; readonly name?: RegExp; readonly status: number }[] = [
  // Health checks of services: there are none, and the command goes on without them.
  { url: /\/checks$/, status: 404 },
  // A path that leads out is the caller's mistake.
  { url: /stat\/.*path=\.\.%2F/, status: 400 },
  // A secret is refused with a status, not with a text for a file.
  { url: /cat\/.*secrets/, status: 403 },
]

interface Cluster {
  readonly urls: Readonly<Record<'server' | 'client', string>>
  readonly node: string
  readonly ended: string
}

async function startCluster(t: TestContext): Promise<Cluster> {
  const nats = await startNatsServer(t)
  const directory = workDirectory(t)
  const start = async (role: 'server' | 'client', more: string) => {
    const data = join(directory, role)
    mkdirSync(data, { recursive: true })
    const file = join(directory, `${role}.hcl`)
    const common = `name = "${role}"\ndata_dir = "${data}"\nports { http = 0 }\nacl { enabled = false }\n`
    writeFileSync(file, `${common}nats { servers = ["${nats.url}"] }\n${role} { enabled = true }\n${more}`)
    return agentHere(t, ['-config', file])
  }
  const server = await start('server', 'client { enabled = false }')
  const allocations = join(directory, 'client/alloc')
  mkdirSync(allocations, { recursive: true })
  const job = { JobID: 'one', Name: 'one.g[0]', TaskGroup: 'g' }
  const folder = makeAllocation(allocations, ALLOC, job)
  writeFileSync(join(folder, 'web/local/f.txt'), 'content\n')
  writeFileSync(join(folder, 'web/secrets/.nomad-mount'), '')
  writeFileSync(join(folder, 'alloc/logs/web.stdout.0'), 'a line of the log\n'.repeat(40))
  writeFileSync(join(folder, 'alloc/logs/web.stderr.0'), 'an error\n')
  const over = { State: 'dead', StartedAt: '2026-11-21T10:00:00Z', FinishedAt: '2026-11-21T10:01:00Z' }
  const ended = makeAllocation(allocations, ENDED, { JobID: 'two', ClientStatus: 'complete', Tasks: { web: over } })
  const client = await start('client', '')
  const self = (await (await fetch(`${client.url}/v1/agent/self`)).json()) as { stats: { client: { node_id: string } } }
  await eventually(async () => {
    const answer = await fetch(`${server.url}/v1/allocations`)
    return ((await answer.json()) as unknown[]).length === 2
  }, 'the server knows both')
  return { urls: { server: server.url, client: client.url }, node: self.stats.client.node_id, ended }
}

/** Sends one request; a stream is left once something of it has come. */
async function send(url: string, request: Row['requests'][number]): Promise<{ status: number; text: string }> {
  const { method, body } = request
  const abort = new AbortController()
  const answer = await fetch(url, { method, signal: abort.signal, ...(body === undefined ? {} : { body }) })
  if (!FOLLOWS.test(url) || answer.status !== 200) return { status: answer.status, text: await answer.text() }
  const reader = answer.body?.getReader()
  const first = await reader?.read()
  abort.abort()
  return { status: answer.status, text: Buffer.from(first?.value ?? []).toString() }
}

const rows = readFileSync(join(import.meta.dirname, '../../fixtures/nomad/commands.jsonl'), 'utf8')
  .trimEnd()
  .split('\n')
  .map((line) => JSON.parse(line) as Row)

test('every request of every recorded command gets the response that the command needs', async (t) => {
  const { urls, node, ended } = await startCluster(t)
  const filled = (text: string) =>
    text
      .replaceAll('<NODE8>', node.slice(0, 8))
      .replaceAll('<NODE>', node)
      .replaceAll('<ALLOC8>', ALLOC.slice(0, 8))
      .replaceAll('<ALLOC>', ALLOC)
  const wrong: string[] = []
  let sent = 0
  for (const { command, requests } of rows) {
    for (const request of requests) {
      const { method, url, to, body } = request
      const expected = OTHERWISE.find((one) => one.url.test(url))?.status ?? request.status
      const own = { ...request, ...(body === undefined ? {} : { body: filled(body) }) }
      const { status, text } = await send(`${urls[to]}${filled(url)}`, own)
      sent++
      if (status !== expected) wrong.push(`${command}: ${method} ${url} at the ${to}: ${status} ${text.slice(0, 200)}`)
      else wrong.push(...missing(url, status, text).map((what) => `${command}: ${url}: no ${what}`))
    }
  }
  assert.deepEqual(wrong, [])
  assert.ok(sent > 200)
  // A blocking query needs it at every endpoint.
  for (const url of Object.values(urls)) {
    for (const path of ['nodes', `node/${node}`, 'job/one']) {
      const { headers } = await fetch(`${url}/v1/${path}`)
      assert.ok(Number(headers.get('x-nomad-index')) > 0, `${url} ${path}`)
    }
  }
  // `system gc` was among them: what had ended is gone.
  await eventually(() => !exists(join(ended, 'alloc')))
})

function exists(path: string): boolean {
  try {
    readFileSync(path)
    return true
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EISDIR'
  }
}

function words(text: string): string[] {
  return text.split(/\s+/)
}

/** Fields whose absence makes the stock command crash or say nonsense, by endpoint; `[]` goes into a list. */
const NEEDED: readonly { readonly url: RegExp; readonly paths: readonly string[] }[] = [
  { url: /\/v1\/nodes(\?|$)/, paths: ['[].ID', '[].Status', '[].SchedulingEligibility', '[].Drivers', '[].Version'] },
  {
    url: /\/v1\/node\/[^/]+$/,
    paths: words(`HTTPAddr Status Events NodeResources.Cpu.CpuShares NodeResources.Memory.MemoryMB
      NodeResources.Disk.DiskMB ReservedResources.Cpu ReservedResources.Memory
      ReservedResources.Disk`),
  },
  {
    url: /\/v1\/node\/[^/]+\/allocations/,
    paths: ['[].Resources.CPU', '[].Resources.MemoryMB', '[].Resources.DiskMB', '[].Job.Version', '[].TaskGroup'],
  },
  { url: /\/v1\/allocations/, paths: ['[].ID', '[].Namespace', '[].NodeID', '[].TaskGroup'] },
  {
    url: /\/v1\/allocation\/[^/]+$/,
    paths: words(`NodeID TaskGroup Job.Version Job.TaskGroups.0.Tasks.0.Name Resources.DiskMB EvalID
      TaskResources.web.CPU TaskResources.web.MemoryMB Metrics AllocatedResources.Shared
      TaskStates.web.Events CreateTime ModifyTime`),
  },
  { url: /\/client\/stats/, paths: ['Memory.Total', 'CPU', 'DiskStats'] },
  { url: /allocation\/[^/]+\/stats/, paths: ['ResourceUsage.CpuStats', 'ResourceUsage.MemoryStats'] },
  { url: /\/agent\/self/, paths: ['stats.runtime', 'config.Region', 'config.Datacenter', 'member.Name'] },
  { url: /\/job\/[^/]+$/, paths: ['ID', 'Name', 'Type', 'Priority', 'Status', 'SubmitTime', 'TaskGroups', 'Stop'] },
  { url: /\/summary/, paths: ['JobID', 'Summary', 'Children'] },
  { url: /\/agent\/members/, paths: ['Members.0.Tags.rpc_addr', 'Members.0.Tags.port', 'ServerName'] },
]

function missing(url: string, status: number, text: string): string[] {
  const needed = NEEDED.find((one) => one.url.test(url.replace(/\?.*/, '')))
  if (!needed || status !== 200) return []
  const value: unknown = JSON.parse(text)
  return needed.paths.filter((path) => !has(value, path.split('.')))
}

function has(value: unknown, path: readonly string[]): boolean {
  const [first, ...rest] = path
  if (first === undefined) return value !== undefined && value !== null
  if (first === '[]') return Array.isArray(value) && value.every((one) => has(one, rest))
  if (typeof value !== 'object' || value === null) return false
  return has(Object.getOwnPropertyDescriptor(value, first)?.value, rest)
}
