/** A state directory has one agent: a second one reports the running process, and a killed one leaves no lock behind. */
import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { spawnAgent, startAgent, workDirectory, writeConfig } from '../helpers/agent-process.ts'
import { eventually } from '../helpers/eventually.ts'

test('a second agent on the same state does not start and names the running process', async (t) => {
  const directory = workDirectory(t)
  const config = writeConfig(directory, 'acl { enabled = false }')
  const first = await startAgent(t, ['-config', config])
  const state = readFileSync(join(directory, 'data/client/state.json'), 'utf8')
  const second = spawnAgent(t, ['-config', config])
  await eventually(() => second.child.exitCode === 1)
  await eventually(() => second.stderr().includes('another agent'))
  const [line] = second
    .stderr()
    .split('\n')
    .filter((text) => text !== '' && !text.startsWith('{'))
  assert.match(
    line ?? '',
    new RegExp(`another agent \\(process ${first.pid}, started [\\dT:.Z-]+\\) uses ${directory}/data/client: stop it`),
  )
  assert.equal((await fetch(`${first.url}/v1/agent/health`)).status, 200)
  assert.equal(readFileSync(join(directory, 'data/client/state.json'), 'utf8'), state)
  assert.equal(readFileSync(join(directory, 'data/http.addr'), 'utf8').trim(), first.url)
  assert.equal(statSync(join(directory, 'data/client/agent.lock')).mode & 0o777, 0o600)
})

test('a killed or stopped agent does not prevent a start', async (t) => {
  const directory = workDirectory(t)
  const config = writeConfig(directory, 'acl { enabled = false }')
  for (const signal of ['SIGKILL', 'SIGTERM', 'SIGKILL'] as const) {
    const agent = await startAgent(t, ['-config', config])
    agent.child.kill(signal)
    await agent.ended
  }
  // The process named in the file does not decide.
  writeFileSync(join(directory, 'data/client/agent.lock'), `process ${process.pid}, started 2026-11-21T10:00:00.000Z\n`)
  await startAgent(t, ['-config', config])
})

test('of many concurrent starts one succeeds', async (t) => {
  const directory = workDirectory(t)
  const config = writeConfig(directory, 'acl { enabled = false }')
  const agents = Array.from({ length: 4 }, () => spawnAgent(t, ['-config', config]))
  await eventually(() => agents.filter(({ child }) => child.exitCode !== null).length === agents.length - 1)
  const [winner] = agents.filter(({ child }) => child.exitCode === null)
  assert.ok(winner)
  await eventually(() => agents.every((agent) => agent === winner || agent.stderr().includes('another agent')))
})

test('where locks are not supported, the agent logs it and serves', async (t) => {
  const directory = workDirectory(t)
  const config = writeConfig(directory, 'acl { enabled = false }')
  const bin = join(directory, 'bin')
  mkdirSync(bin)
  const without = await startAgent(t, ['-config', config], { env: { PATH: bin } })
  await eventually(() =>
    /state directory is not locked against a second agent.*program flock not found/.test(without.stderr()),
  )
  without.child.kill()
  await without.ended
  writeFileSync(join(bin, 'flock'), '#!/bin/sh\necho "No locks available" >&2\nexit 1\n', { mode: 0o755 })
  const failing = await startAgent(t, ['-config', config], { env: { PATH: bin } })
  await eventually(() => failing.stderr().includes('flock: No locks available'))
})
