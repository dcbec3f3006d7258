/** The compile cache of Node is saved while the program runs, so that a killed agent restarts as quickly. */
import assert from 'node:assert/strict'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { startAgent, workDirectory, writeConfig } from '../helpers/agent-process.ts'
import { eventually } from '../helpers/eventually.ts'
import { OUTPOST } from '../helpers/program.ts'

test('a killed agent leaves its compile cache behind', async (t) => {
  const directory = workDirectory(t)
  const cache = join(directory, 'compiled')
  const agent = await startAgent(t, ['-config', writeConfig(directory, 'acl { enabled = false }')], {
    env: { NODE_COMPILE_CACHE: cache },
  })
  // Hundreds of modules of the sources; of a bundle of them an agent loads some twenty.
  const least = OUTPOST.includes('outpost-bundles') ? 18 : 100
  const filesOfProgram = () => readdirSync(cache, { recursive: true }).length
  await eventually(
    () => filesOfProgram() > least,
    () => `the cache is written: ${filesOfProgram()} files`,
  )
  agent.child.kill('SIGKILL')
  assert.equal(await agent.ended, 'SIGKILL')
  assert.ok(filesOfProgram() > least)
})
