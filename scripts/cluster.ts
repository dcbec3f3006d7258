/** `npm run cluster`: runs a demonstration cluster on this machine until Ctrl-C. */
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type LocalCluster, startLocalCluster } from './local-cluster.ts'

const SERVERS = ['s1', 's2']
const AGENTS = ['w1', 'w2', 'w3']

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

const directory = mkdtempSync(join(tmpdir(), 'outpost-cluster-'))
const asked = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => asked.abort())
process.stdout.write('==> starting NATS, 2 servers and 3 agents\n')
try {
  const cluster = await startLocalCluster({
    directory,
    servers: SERVERS,
    agents: AGENTS,
    onEnd: (name, how) => process.stderr.write(`${name} has ended (${how}), see ${directory}/${name}/log\n`),
    signal: asked.signal,
  })
  process.stdout.write(banner(cluster, directory))
  if (!asked.signal.aborted) await once(asked.signal, 'abort')
  process.stdout.write('\n==> stopping\n')
  await cluster.stop()
  rmSync(directory, { recursive: true, force: true })
} catch (error) {
  if (asked.signal.aborted) rmSync(directory, { recursive: true, force: true })
  else {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\nThe logs are in ${directory}\n`)
    process.exitCode = 1
  }
}
