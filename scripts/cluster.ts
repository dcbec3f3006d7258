/**
 * `npm run cluster`: runs a demonstration cluster on this machine until Ctrl-C.
 *
 *     npm run cluster                    NATS, two servers, three agents
 *     npm run cluster -- --ha            three servers with one secrets core in high availability, three NATS nodes
 *     npm run cluster -- --ha --walk     the same, and a walk through failures with its times; ends by itself
 */
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { haWalk } from './ha-walk.ts'
import { type LocalCluster, startLocalCluster } from './local-cluster.ts'
import { LocalHaCluster } from './local-ha-cluster.ts'

const SERVERS = ['s1', 's2']
const AGENTS = ['w1', 'w2', 'w3']

const { values } = parseArgs({
  options: { ha: { type: 'boolean', default: false }, walk: { type: 'boolean', default: false } },
})

function banner({ agents, natsUrl, servers, token }: LocalCluster, directory: string): string {
  const [server] = servers
  const [first] = agents
  const last = agents.at(-1)
  const [url = '', taskOf = '', nodeId = ''] = [server?.url, last?.allocationId, first?.nodeId]
  const curl = `curl -H 'X-Nomad-Token: ${token}'`
  return [
    '',
    `    NATS    ${natsUrl}`,
    ...servers.map((each) => `    server  ${each.name}  ${each.url}`),
    ...agents.map(
      (each) => `    agent   ${each.name}  ${each.url}  node ${each.nodeId}  allocation ${each.allocationId}`,
    ),
    `    token   ${token}`,
    `    logs    ${directory}/NAME/log`,
    '',
    `    Through a server (${server?.name} here, any other as well): every node, the log of the task on ${last?.name}, metadata of ${first?.name}:`,
    '',
    `      ${curl} '${url}/v1/nodes?pretty'`,
    `      ${curl} -N '${url}/v1/client/fs/logs/${taskOf}?task=demo&type=stdout&follow=true&plain=true'`,
    `      ${curl} '${url}/v1/client/metadata?node_id=${nodeId}' -d '{"Meta":{"rack":"r7"}}'`,
    '',
    '    With commands, stock ones too:',
    '',
    `      export OUTPOST_ADDR=${url} OUTPOST_TOKEN=${token} NOMAD_ADDR=${url} NOMAD_TOKEN=${token}`,
    `      bin/outpost logs -f ${taskOf}`,
    '',
    '    Ctrl-C ends it all.',
    '==> cluster started',
    '',
  ].join('\n')
}

async function haBanner(cluster: LocalHaCluster): Promise<string> {
  const active = await cluster.activeServer()
  const standby = cluster.servers.find((server) => server !== active) ?? active
  return [
    '',
    ...cluster.nats.map(({ name, process, url }) => `    NATS    ${name}  ${url}  pid ${process.pid}`),
    ...cluster.servers.map((server) => {
      const role = server === active ? 'active' : 'standby'
      return `    server  ${server.name}  ${server.url}  pid ${server.process.pid}  ${role}`
    }),
    `    unseal key  ${cluster.unsealKey}`,
    `    root token  ${cluster.token}`,
    `    logs    ${cluster.directory}/NAME/log, configurations beside them`,
    '',
    `    A walk, through the standby ${standby.name}. In three terminals:`,
    '',
    `      export OUTPOST_ADDR=${standby.url} OUTPOST_TOKEN=${cluster.token}`,
    '      i=0; while bin/outpost kv put secret/walk/$((i=i+1)) n=$i >/dev/null; do date +"%T.%N  $i"; done',
    '',
    `      export OUTPOST_ADDR=${standby.url} OUTPOST_TOKEN=${cluster.token}`,
    '      bin/outpost kv watch secret/walk',
    '',
    `      kill -9 ${active.process.pid}                        # the active server; the loop pauses and continues`,
    `      OUTPOST_ADDR=${standby.url} OUTPOST_TOKEN=${cluster.token} bin/outpost operator members`,
    `      bin/outpost agent -config ${join(active.process.directory, 'server.hcl')} &   # it joins again as a standby`,
    `      OUTPOST_ADDR=${active.url} bin/outpost operator unseal ${cluster.unsealKey}`,
    `      OUTPOST_ADDR=${standby.url} OUTPOST_TOKEN=${cluster.token} bin/outpost operator step-down`,
    '',
    '    The same by itself, with times: npm run cluster -- --ha --walk',
    '    Ctrl-C ends it all.',
    '==> cluster started',
    '',
  ].join('\n')
}

interface RunningCluster {
  readonly text: string
  stop(): Promise<void>
}

async function startAgentsAndServers(directory: string, signal: AbortSignal): Promise<RunningCluster> {
  const cluster = await startLocalCluster({ directory, servers: SERVERS, agents: AGENTS, onEnd, signal })
  return { text: banner(cluster, directory), stop: () => cluster.stop() }
}

async function startHa(directory: string, signal: AbortSignal): Promise<RunningCluster> {
  const cluster = await LocalHaCluster.start({ directory, onEnd, signal })
  try {
    if (!values.walk) return { text: await haBanner(cluster), stop: () => cluster.stop() }
    await haWalk(cluster, print)
    asked.abort()
    return { text: '', stop: () => cluster.stop() }
  } catch (error) {
    await cluster.stop()
    throw error
  }
}

function onEnd(name: string, how: string): void {
  process.stderr.write(`${name} has ended (${how}), see ${directory}/${name}/log\n`)
}

function print(line: string): void {
  process.stdout.write(`${line}\n`)
}

const directory = mkdtempSync(join(tmpdir(), 'outpost-cluster-'))
const asked = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => asked.abort())
print(
  values.ha
    ? '==> starting three NATS nodes and three servers in high availability'
    : '==> starting NATS, 2 servers and 3 agents',
)
try {
  const cluster = await (values.ha ? startHa : startAgentsAndServers)(directory, asked.signal)
  print(cluster.text)
  if (!asked.signal.aborted) await once(asked.signal, 'abort')
  print('\n==> stopping')
  await cluster.stop()
  rmSync(directory, { recursive: true, force: true })
} catch (error) {
  if (asked.signal.aborted) rmSync(directory, { recursive: true, force: true })
  else {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\nThe logs are in ${directory}\n`)
    process.exitCode = 1
  }
}
