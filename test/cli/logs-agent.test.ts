import assert from 'node:assert/strict'
import { appendFileSync, mkdirSync, unlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { startAgent, workDirectory } from '../helpers/agent-process.ts'
import { writeManifest } from '../host/allocations/host-fixture.ts'
import { ALLOC_ID } from './fake-agent.ts'
import { OUTPOST, start } from './outpost-process.ts'
import { eventually } from '../helpers/eventually.ts'
import { quietPort } from '../helpers/quiet-port.ts'

test('an agent that is killed again and again while its log is written and rotated: every line, once', async (t) => {
  const directory = workDirectory(t)
  const port = await quietPort()
  const config = join(directory, 'agent.hcl')
  writeFileSync(
    config,
    `data_dir = "${directory}/data"\nports { http = ${port} }\nclient { enabled = true }\nacl { enabled = false }\n`,
  )
  const logs = join(directory, 'data/alloc', ALLOC_ID, 'alloc/logs')
  mkdirSync(logs, { recursive: true })
  writeManifest(join(directory, 'data/alloc'), ALLOC_ID, {
    ClientStatus: 'running',
    Tasks: { web: { State: 'running', StartedAt: new Date().toISOString() } },
  })
  const file = (index: number) => join(logs, `web.stdout.${index}`)
  writeFileSync(file(0), '')
  let written = 0
  let index = 0
  const write = (count: number) => {
    const lines = Array.from({ length: count }, () => `line ${written++}\n`).join('')
    appendFileSync(file(index), lines)
  }
  let agent = await startAgent(t, ['-config', config])
  const env = { ...process.env, OUTPOST_ADDR: agent.url }
  const following = start(OUTPOST, ['logs', '-f', '-stdout', ALLOC_ID, 'web'], { env })
  let seen = ''
  following.child.stdout?.on('data', (text: string) => (seen += text))
  write(1)
  await eventually(() => seen !== '', 'the first line')
  for (let round = 0; round < 3; round++) {
    for (let burst = 0; burst < 20; burst++) {
      write(50)
      if (burst % 7 === 6) writeFileSync(file(++index), '')
      if (burst === 10) agent.child.kill(round === 1 ? 'SIGTERM' : 'SIGKILL')
      await delay(10)
    }
    await agent.ended
    write(30)
    agent = await startAgent(t, ['-config', config])
  }
  write(1)
  await eventually(() => seen.endsWith(`line ${written - 1}\n`), 'the last line')
  unlinkSync(file(0))
  following.child.kill('SIGINT')
  const { code, stderr } = await following.finished
  assert.equal(code, 0)
  assert.equal(seen, Array.from({ length: written }, (_, line) => `line ${line}\n`).join(''))
  // Where the machine is slow, one outage may span two kills.
  const outages = stderr.split('resuming\n').length - 1
  assert.ok(outages >= 1 && outages <= 3, stderr)
  assert.equal(stderr.split('resumed\n').length - 1, outages, stderr)
})
