/**
 * An attacker with write access to the data directory of an agent edits its state: metadata above the limits, which
 * servers would refuse, and sparse files larger than the memory. The start must fail and name the file. An address file
 * that others can write to would redirect their tokens.
 */
import assert from 'node:assert/strict'
import { readFileSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { agentHere } from '../helpers/agent-here.ts'
import { spawnAgent, startAgent, workDirectory, writeConfig } from '../helpers/agent-process.ts'

test('the state of a node with more metadata than allowed is refused', { timeout: 240_000 }, async (t) => {
  const directory = workDirectory(t)
  const config = writeConfig(directory, '')
  const first = await agentHere(t, ['-config', config])
  await first.stop()
  const file = join(directory, 'data/client/state.json')
  const good = JSON.parse(readFileSync(file, 'utf8')) as Record<string, unknown>
  const many = Object.fromEntries(Array.from({ length: 10_001 }, (_, at) => [`k${at}`, '']))
  for (const dynamicMeta of [many, { large: 'x'.repeat(513 << 10) }, { far: 'x'.repeat(5 << 20) }]) {
    const text = JSON.stringify({ ...good, dynamicMeta })
    writeFileSync(file, text)
    const damaged = /state\.json is damaged: ("dynamicMeta" is missing or wrong|it is larger than)/
    await assert.rejects(agentHere(t, ['-config', config]), damaged)
    assert.equal(readFileSync(file, 'utf8'), text, 'it stays as it is')
  }
  const most = Object.fromEntries(Array.from({ length: 10_000 }, (_, at) => [`k${at}`, '\u0001'.repeat(40)]))
  writeFileSync(file, JSON.stringify({ ...good, dynamicMeta: most }))
  const agent = await agentHere(t, ['-config', config])
  await agent.stop()
})

test('a state file larger than the limit is reported by name and not read', { timeout: 280_000 }, async (t) => {
  const directory = workDirectory(t)
  const config = writeConfig(directory, '')
  const first = await agentHere(t, ['-config', config])
  await first.stop()
  const file = join(directory, 'data/client/collected.json')
  writeFileSync(file, '')
  truncateSync(file, 2 ** 40)
  const why = /client\/collected\.json is larger than 67108864 bytes/
  const again = spawnAgent(t, ['-config', config])
  assert.equal(await again.ended, 1, again.stderr())
  assert.match(again.stderr(), why)
})

test('the address file is not writable by others, regardless of the umask', async (t) => {
  const directory = workDirectory(t)
  const config = writeConfig(directory, '')
  await startAgent(t, ['-config', config], { through: ['sh', '-c', 'umask 000; exec "$@"', 'sh'] })
  assert.equal(statSync(join(directory, 'data/http.addr')).mode & 0o777, 0o644)
})
