/** A tail that must survive: full speed, rotation, a crowd, readers that stop; and an agent that ends under it. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { appendFileSync, writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { test } from 'node:test'
import { TailClient } from '../helpers/tail-client.ts'
import { type ChildAgent, startChildAgent } from '../helpers/child-agent.ts'
import { LineChecker } from '../helpers/line-checker.ts'
import { eventually } from '../helpers/eventually.ts'

const MIB = 2 ** 20
/** Of one log at full speed: some rotations of 10 MiB each. */
const LOG_MIB = Number(process.env['OUTPOST_TAIL_MIB'] ?? 24)
/** With a crowd: enough that the others can be as far ahead as they shall. */
const CROWD_MIB = Math.max(24, LOG_MIB / 2)
const CROWD = Number(process.env['OUTPOST_CROWD'] ?? 8)
/** How far others get while one follower does not read: more than sockets and windows hold, less than the writer keeps. */
const AHEAD_BYTES = 12 * MIB

interface Reader {
  readonly client: TailClient
  readonly lines: LineChecker
}

function follow(agent: ChildAgent, framed: boolean): Reader {
  const lines = new LineChecker()
  const client = new TailClient(agent.logsUrl({ follow: true, origin: 'start', offset: 0, plain: !framed }), {
    framed,
    onData: (data) => lines.push(data),
  })
  return { client, lines }
}

/** Writes `bytes` in another process while `readers` follow; resolves when all have all of it. */
async function writeAndFollow(agent: ChildAgent, bytes: number, readers: readonly Reader[]): Promise<void> {
  const fileBytes = 10 * MIB
  const script = resolve(import.meta.dirname, '../helpers/rotating-writer.ts')
  const writer = spawn(process.execPath, [script, agent.logs, String(bytes), String(fileBytes), '4'], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  writer.stdin.on('error', () => undefined)
  let output = ''
  writer.stdout.setEncoding('utf8').on('data', (text: string) => (output += text))
  const report = setInterval(() => {
    // A file is a little larger than its limit, so this says rather too little than too much.
    const slowest = Math.min(...readers.map(({ client }) => client.bytes))
    writer.stdin.write(`${Math.floor(slowest / (fileBytes + 70_000))}\n`)
  }, 5)
  try {
    const done = () => output !== '' && readers.every(({ client }) => client.bytes >= Number(output.split(' ')[0]))
    const failed = () => readers.find(({ client, lines }) => lines.fault !== undefined || client.ended !== undefined)
    await eventually(() => done() || failed() !== undefined || writer.exitCode === 1, 'all was read', 180_000)
  } finally {
    clearInterval(report)
    writer.kill()
  }
  const total = Number(output.split(' ')[0])
  for (const { client, lines } of readers) {
    assert.equal(lines.fault, undefined)
    assert.deepEqual([client.ended, client.bytes], [undefined, total])
    assert.deepEqual(client.events, [])
    client.destroy()
  }
}

test(`${LOG_MIB} MiB at full speed across rotations arrive completely, framed and plain`, {
  timeout: 240_000,
}, async (t) => {
  const agent = await startChildAgent(t)
  writeFileSync(agent.log(0), '')
  const readers = [true, false].map((framed) => follow(agent, framed))
  for (const { client } of readers) await client.open()
  await writeAndFollow(agent, LOG_MIB * MIB, readers)
})

test(`with ${CROWD} more followers they arrive completely, and one that stops reading delays no other`, {
  timeout: 280_000,
}, async (t) => {
  const agent = await startChildAgent(t)
  writeFileSync(agent.log(0), '')
  const readers = Array.from({ length: CROWD + 1 }, (_, index) => follow(agent, index % 2 === 0))
  for (const { client } of readers) await client.open()
  const [stopping] = readers
  const others = readers.slice(1)
  let state: 'reads' | 'is paused' | 'reads again' = 'reads'
  const pauser = setInterval(() => {
    const bytes = stopping?.client.bytes ?? 0
    if (state === 'reads' && bytes >= 5 * MIB) {
      stopping?.client.pause()
      state = 'is paused'
    } else if (state === 'is paused' && others.every(({ client }) => client.bytes >= bytes + AHEAD_BYTES)) {
      stopping?.client.resume()
      state = 'reads again'
    }
  }, 5)
  try {
    await writeAndFollow(agent, CROWD_MIB * MIB, readers)
  } finally {
    clearInterval(pauser)
  }
  assert.equal(state, 'reads again')
  await eventually(() => agent.descriptors('allocation') === 0)
})

test('SIGTERM breaks follows, lets a response in progress complete, and exits with 0', {
  timeout: 240_000,
}, async (t) => {
  const agent = await startChildAgent(t)
  writeFileSync(agent.log(0), 'line\n')
  const big = 24 * MIB
  writeFileSync(agent.log(1), Buffer.alloc(big, 97))
  const follows = [true, false].map((framed) => follow(agent, framed))
  for (const { client } of follows) await client.until(() => client.bytes > 0)
  const once = new TailClient(agent.logsUrl({ origin: 'start', offset: 5, plain: true }), {
    framed: false,
    onData: () => undefined,
  })
  await once.until(({ bytes }) => bytes > 0)
  once.pause()
  agent.child.kill('SIGTERM')
  for (const { client } of follows) {
    await client.until(() => client.ended !== undefined)
    assert.equal(client.ended, 'broken')
  }
  once.resume()
  await once.until(() => once.ended !== undefined)
  assert.deepEqual([once.ended, once.bytes], ['clean', big])
  await eventually(() => agent.child.exitCode !== null)
  assert.equal(agent.child.exitCode, 0)
})

test('without file watches follows work across rotations, and one warning is logged', {
  timeout: 280_000,
}, async (t) => {
  const agent = await startChildAgent(t, { without: 'inotify' })
  writeFileSync(agent.log(0), 'zero\n')
  const url = agent.logsUrl({ follow: true, origin: 'start', offset: 0 })
  const clients = [new TailClient(url), new TailClient(url)]
  for (const client of clients) await client.until(() => client.text === 'zero\n')
  let expected = 'zero\n'
  for (let index = 0; index < 6; index++) {
    appendFileSync(agent.log(index), `more ${index}\n`)
    writeFileSync(agent.log(index + 1), `file ${index + 1}\n`)
    expected += `more ${index}\nfile ${index + 1}\n`
    for (const client of clients) {
      await client.until(() => client.text.length >= expected.length)
      assert.equal(client.text, expected)
    }
  }
  const warnings = agent
    .stderr()
    .split('\n')
    .filter((line) => line.includes('inotify watch limit reached, polling instead'))
  assert.equal(warnings.length, 1, agent.stderr())
  assert.match(warnings[0] ?? '', /ENOSPC/)
  for (const client of clients) client.destroy()
})
