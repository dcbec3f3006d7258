/** An agent with allocations, and a policy for each of three tokens. */
import { createHash } from 'node:crypto'
import { realpathSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { agentHere } from '../helpers/agent-here.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

export const OPS = 'token-of-the-operator'
export const READER = 'token-of-a-reader'
/** May read hosts, and no jobs. */
export const HOST_READER = 'token-of-a-reader-of-hosts'

const POLICIES = {
  [OPS]: `node { policy = "write" }
agent { policy = "write" }
namespace "*" { policy = "write" }`,
  [READER]: `node { policy = "read" }
namespace "default" { capabilities = ["list-jobs", "read-job"] }`,
  [HOST_READER]: 'node { policy = "read" }',
}

export interface HostAgent {
  readonly url: string
  readonly allocDir: string
  /** Sends a request with the token of the operator. */
  ask(path: string, init?: RequestInit): Promise<Response>
}

const tokenBlock = ([token, policy]: readonly [string, string], at: number) =>
  `token "t${at}" {\n sha256 = "${createHash('sha256').update(token).digest('hex')}"\n policy = <<-EOT\n${policy}\nEOT\n}`

export async function startHost(
  t: Pick<TestContext, 'after'>,
  prepare: (allocDir: string) => void,
): Promise<HostAgent> {
  const directory = realpathSync(temporaryDirectory(t))
  const file = join(directory, 'agent.hcl')
  const allocDir = join(directory, 'data/alloc')
  prepare(allocDir)
  const tokens = Object.entries(POLICIES).map(tokenBlock).join('\n')
  const meta = 'meta {\n rack = "r1"\n "weird key" = "<img src=x onerror=alert(1)>"\n }'
  writeFileSync(
    file,
    `name = "web-host"\ndata_dir = "${directory}/data"\nports { http = 0 }\nclient {\n enabled = true\n ${meta}\n}\nacl {\n enabled = true\n${tokens}\n}\n`,
  )
  const { url } = await agentHere(t, ['-config', file, '-log-level', 'warn'])
  return {
    url,
    allocDir,
    ask: (path, init = {}) => fetch(url + path, { ...init, headers: { Authorization: `Bearer ${OPS}` } }),
  }
}
