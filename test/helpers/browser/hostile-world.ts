/**
 * One process with everything that the web interface shows, where each text that someone else can choose tries to run a script: lines of a
 * log, names of an allocation and of files, metadata, names and values of secrets. A proxy in front of it can be cut.
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { agentHere } from '../agent-here.ts'
import { workDirectory } from '../agent-process.ts'
import { ALLOC, makeAllocation } from '../allocation.ts'
import { type CuttingProxy, cuttingProxy } from '../cutting-proxy.ts'
import { commandsAt, jsonOf } from '../secrets-server.ts'
import { clientOf, type SecretsAgent } from './secrets-page.ts'

/** Shown as text, or it runs. */
export const HOSTILE = '<img src=x onerror="window.hacked=1">'
export const HOSTILE_LINES = [
  HOSTILE,
  '<script>window.hacked=1</script>',
  '"><svg onload=window.hacked=1>',
  '\u001b]8;;javascript:window.hacked=1\u001b\\link\u001b]8;;\u001b\\',
  '{"level":"<img src=x onerror=window.hacked=1>","a":"</span><script>window.hacked=1</script>"}',
]

export interface HostileWorld extends SecretsAgent {
  readonly proxy: CuttingProxy
  readonly nodeId: string
  /** The log of the task `web` of the allocation, and of the task `long`. */
  readonly log: string
  readonly longLog: string
  /** May read hosts, jobs, logs and the secrets below `app/`. */
  readonly restricted: string
  readonly unseal: () => Promise<void>
}

const RESTRICTED = `node { policy = "read" }
namespace "default" { capabilities = ["list-jobs", "read-job", "read-logs"] }
path "secret/metadata/app/*" { capabilities = ["list", "read"] }
path "secret/data/app/*" { capabilities = ["read"] }`

export async function hostileWorld(t: TestContext): Promise<HostileWorld> {
  const directory = workDirectory(t)
  const allocation = makeAllocation(join(directory, 'data/alloc'), ALLOC, {
    Name: HOSTILE,
    JobID: HOSTILE,
    Tasks: Object.fromEntries(
      ['web', 'long'].map((task) => [task, { State: 'running', StartedAt: '2026-11-21T10:00:00Z' }]),
    ),
  })
  const log = join(allocation, 'alloc/logs/web.stdout.0')
  writeFileSync(log, `${HOSTILE_LINES.join('\n')}\nplain line\n`)
  mkdirSync(join(allocation, 'alloc/data/names'))
  writeFileSync(join(allocation, 'alloc/data/names', `${HOSTILE}\u202e.txt`), HOSTILE)
  const config = join(directory, 'agent.hcl')
  const blocks = [
    'server { enabled = true }',
    `client {\n enabled = true\n meta { note = ${JSON.stringify(HOSTILE)} }\n}`,
  ]
  writeFileSync(config, `name = "host-1"\ndata_dir = "${directory}/data"\nports { http = 0 }\n${blocks.join('\n')}\n`)
  const agent = await agentHere(t, ['-config', config, '-log-level', 'error'])
  const made = await jsonOf(commandsAt(agent, directory), 'operator init -key-shares=1 -key-threshold=1')
  const proxy = await cuttingProxy(t, agent.port)
  const client = clientOf(agent.url, String(made['root_token']))
  const unseal = async () => void (await client.call('PUT', 'sys/unseal', { key: String(made['unseal_keys_b64']) }))
  await unseal()
  await client.call('POST', 'sys/mounts/secret', { type: 'kv', options: { version: '2' } })
  for (const name of ['app/db', `app/${HOSTILE.replaceAll('/', '')}`]) {
    for (const value of [HOSTILE, `${HOSTILE} 2`]) {
      await client.call('POST', `secret/data/${name.split('/').map(encodeURIComponent).join('/')}`, {
        data: { [HOSTILE]: value, plain: 'the-value' },
      })
    }
  }
  const nodes = await fetch(`${agent.url}/v1/nodes`, { headers: { 'X-Nomad-Token': client.token } })
  const [{ ID: nodeId }] = (await nodes.json()) as [{ ID: string }]
  return {
    ...client,
    url: proxy.url,
    open: (test, path, token = client.token) => client.open(test, path, token, proxy.url),
    proxy,
    nodeId,
    log,
    longLog: log.replace('web', 'long'),
    restricted: await client.tokenWith(RESTRICTED),
    unseal,
  }
}
