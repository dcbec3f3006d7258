/** An agent that is killed and restarted with the same address and data. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, realpathSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { writeManifest } from '../host/allocations/host-fixture.ts'
import { ALLOC_ID, type Query, queryText } from './tail-host.ts'
import { eventually } from './eventually.ts'
import { OUTPOST } from './program.ts'
import { quietPort } from './quiet-port.ts'
import { temporaryDirectory } from './temporary-directory.ts'

export class RestartingAgent {
  readonly url: string
  readonly logs: string
  readonly #config: string
  #child: ChildProcess | undefined

  private constructor(dataDir: string, port: number) {
    this.url = `http://127.0.0.1:${port}`
    this.logs = join(dataDir, 'alloc', ALLOC_ID, 'alloc/logs')
    this.#config = join(dataDir, 'agent.hcl')
    mkdirSync(join(dataDir, 'alloc'))
    writeManifest(join(dataDir, 'alloc'), ALLOC_ID, {
      ClientStatus: 'running',
      Tasks: { web: { State: 'running', StartedAt: new Date().toISOString() } },
    })
    writeFileSync(
      this.#config,
      [
        `data_dir = "${dataDir}"`,
        `ports { http = ${port} }`,
        'client { enabled = true }',
        'acl { enabled = false }',
        'limits {\n http_max_conns_per_client = 0\n http_max_followers = 0\n}',
      ].join('\n'),
    )
  }

  static async start(t: TestContext): Promise<RestartingAgent> {
    const agent = new RestartingAgent(realpathSync(temporaryDirectory(t)), await quietPort())
    t.after(() => agent.kill())
    await agent.start()
    return agent
  }

  log(index: number): string {
    return join(this.logs, `web.stdout.${index}`)
  }

  logsUrl(query: Query): string {
    return `${this.url}/v1/client/fs/logs/${ALLOC_ID}?${queryText({ task: 'web', type: 'stdout', ...query })}`
  }

  async start(): Promise<void> {
    const child = spawn(OUTPOST, ['agent', '-config', this.#config, '-log-level', 'warn'])
    this.#child = child
    let output = ''
    child.stdout.setEncoding('utf8').on('data', (text: string) => (output += text))
    child.stderr.setEncoding('utf8').on('data', (text: string) => (output += text))
    await eventually(() => output.includes('agent started') || child.exitCode !== null)
    if (child.exitCode !== null) throw new Error(`the agent did not start: ${output}`)
  }

  /** SIGKILL, without shutdown and flush. */
  async kill(): Promise<void> {
    const child = this.#child
    if (!child || child.exitCode !== null || child.signalCode !== null) return
    const exited = once(child, 'exit')
    child.kill('SIGKILL')
    await exited
  }
}
