/** Runs commands of the documents as pasted into a shell. */
import assert from 'node:assert/strict'
import { readFileSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { type Finished, OUTPOST, ROOT, start } from '../cli/outpost-process.ts'

/** The shell blocks below a heading of a document, up to the next heading. */
export function shellBlocks(file: string, heading: string): string[] {
  const text = readFileSync(join(ROOT, file), 'utf8')
  const [, section] = text.split(`${heading}\n`)
  assert.ok(section, `${file} has no heading ${heading}`)
  const walk = section.split(/^#{2,3} /m)[0] ?? ''
  return [...walk.matchAll(/```sh\n([^]*?)```/g)].map(([, block]) => block ?? '')
}

/** Runs commands in `directory` with `outpost` in the PATH; the last process that they leave in the background is ended. */
export async function runShell(directory: string, port: number, script: string): Promise<Finished> {
  try {
    symlinkSync(OUTPOST, join(directory, 'outpost'))
  } catch {
    // A variable of an earlier run.
  }
  const env: NodeJS.ProcessEnv = {
    ...process.env,
    PATH: `${directory}:${process.env['PATH']}`,
    HOME: directory,
    OUTPOST_ADDR: `http://127.0.0.1:${port}`,
  }
  for (const name of ['OUTPOST_TOKEN', 'NOMAD_TOKEN', 'VAULT_TOKEN', 'VAULT_FORMAT', 'OUTPOST_FORMAT']) delete env[name]
  const program = `set -e\ntrap 'kill $! && wait' EXIT\n${script}`
  return await start('sh', ['-c', program], { env, cwd: directory }).finished
}
