/** A server with secrets, and commands against it. */
import assert from 'node:assert/strict'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { OUTPOST, start } from '../cli/outpost-process.ts'
import { agentHere } from './agent-here.ts'
import { startAgent, workDirectory } from './agent-process.ts'
import { runHere, runsHere } from './command-here.ts'

/** The configuration of a server with secrets. */
export function writeServer(directory: string, more = '', clusterPort = 0): string {
  mkdirSync(join(directory, 'data'), { recursive: true })
  const file = join(directory, 'server.hcl')
  const ports = `ports {\n http = 0\n cluster = ${clusterPort}\n}`
  writeFileSync(file, `data_dir = "${directory}/data"\n${ports}\nserver {\n enabled = true\n ${more}\n}\n`)
  return file
}

/** Runs a command against a server, in this process if the effect is the same; `input` is its standard input. */
export function commandsAt({ url }: { readonly url: string }, home: string) {
  const env: NodeJS.ProcessEnv = { ...process.env, OUTPOST_ADDR: url, HOME: home }
  for (const name of ['OUTPOST_TOKEN', 'NOMAD_TOKEN', 'VAULT_TOKEN', 'VAULT_FORMAT']) delete env[name]
  return async (line: string, input = '', token = '', format = 'table') => {
    const more = { OUTPOST_TOKEN: token, OUTPOST_FORMAT: format }
    const args = line.split(' ')
    if (runsHere(args)) return await runHere(args, { ...env, ...more }, input)
    return await start(OUTPOST, args, { env: { ...env, ...more }, input }).finished
  }
}

export type Run = ReturnType<typeof commandsAt>

/** The JSON output of a command. */
export async function jsonOf(run: Run, line: string, token = '', input = ''): Promise<Record<string, unknown>> {
  const ran = await run(line, input, token, 'json')
  assert.equal(ran.code, 0, `${line}: ${ran.stderr}`)
  return JSON.parse(ran.stdout) as Record<string, unknown>
}

const SHARES = '-key-shares=3 -key-threshold=2'

/** An initialized and sealed server in this process. */
export async function freshServer(t: TestContext, args = SHARES) {
  const directory = workDirectory(t)
  const agent = await agentHere(t, ['-config', writeServer(directory)])
  return { directory, agent, ...(await initialised(agent, directory, args)) }
}

/** As `freshServer`, in a separate process. */
export async function freshProcess(t: TestContext, args = SHARES) {
  const directory = workDirectory(t)
  const agent = await startAgent(t, ['-config', writeServer(directory)])
  return { directory, agent, ...(await initialised(agent, directory, args)) }
}

async function initialised(agent: { readonly url: string }, directory: string, args: string) {
  const run = commandsAt(agent, directory)
  const made = await jsonOf(run, `operator init ${args}`)
  const keys = made['unseal_keys_b64'] as string[]
  return { run, made, keys, token: String(made['root_token']) }
}
