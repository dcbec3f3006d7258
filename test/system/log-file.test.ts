/** The log file: put aside by size and age, moved and removed by others, on a disk that is full. */
import assert from 'node:assert/strict'
import {
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { LogFile } from '../../src/telemetry/log-file.ts'
import { createLogger, DescriptorOutput, LogSink } from '../../src/platform/log.ts'
import { agentHere } from '../helpers/agent-here.ts'
import { startAgent, workDirectory, writeConfig } from '../helpers/agent-process.ts'
import { ask } from '../helpers/raw-http.ts'
import { eventually } from '../helpers/eventually.ts'

const KEEP = { bytes: 0, durationMs: 86_400_000, maxFiles: 0 }

const forPeople = (path: string) => `acl { enabled = false }\nlog_file = "${path}"\nlog_json = false\n`

function linesOf(...files: readonly string[]): string[] {
  return files.flatMap((file) => readFileSync(file, 'utf8').split('\n').slice(0, -1))
}

test('a log file is rotated at its maximum size, in order, and the configured number is kept', async (t) => {
  const directory = workDirectory(t)
  const path = join(directory, 'agent.txt')
  for (const other of ['agent-1.txt', 'agent-1790000000000000000.log', 'agent-1790000000000000000x.txt']) {
    writeFileSync(join(directory, other), 'not ours')
  }
  const sink = new LogSink({ output: new LogFile(path, { ...KEEP, bytes: 4000, maxFiles: 3 }), level: 'info' })
  const logger = createLogger(sink)
  const aside = () => readdirSync(directory).filter((name) => /^agent-\d{19}\.txt$/.test(name))
  for (let round = 0; round < 8; round++) {
    for (let i = 0; i < 50; i++) logger.info(`line ${round * 50 + i}`)
    const last = `line ${round * 50 + 49}"`
    await eventually(() => readFileSync(path, 'utf8').includes(last), 'the round is written')
  }
  const kept = aside().sort()
  assert.equal(kept.length, 3)
  assert.equal(statSync(path).mode & 0o777, 0o640)
  const numbers = linesOf(...kept.map((name) => join(directory, name)), path).map((line) => {
    const { '@message': message } = JSON.parse(line) as { '@message': string }
    return Number(message.slice(5))
  })
  assert.equal(numbers.at(-1), 399)
  numbers.forEach((number, at) => assert.equal(number, (numbers[0] ?? 0) + at, 'in order, none missing'))
  assert.ok(readdirSync(directory).includes('agent-1790000000000000000x.txt'))
  assert.ok(readdirSync(directory).includes('agent-1790000000000000000.log'))
  sink.close()
})

test('rotated files keep their order while the clock stands still or is set back', async (t) => {
  const directory = workDirectory(t)
  const path = join(directory, 'agent.txt')
  t.mock.timers.enable({ apis: ['Date'], now: 1_800_000_000_000 })
  const file = new LogFile(path, { ...KEEP, bytes: 1, maxFiles: 0 })
  for (let at = 0; at < 40; at++) {
    if (at === 20) t.mock.timers.setTime(1_700_000_000_000)
    await new Promise<number>((resolve) => file.append(Buffer.from(`${at}\n`), resolve))
  }
  const rotated = readdirSync(directory).filter((name) => /^agent-\d{19}\.txt$/.test(name))
  assert.deepEqual(
    linesOf(...rotated.sort().map((name) => join(directory, name))),
    Array.from({ length: rotated.length }, (_, at) => String(at)),
  )
  assert.ok(rotated.length > 30, `${rotated.length} files`)
  file.close()
})

test('a log file is rotated at its maximum age, and a path with a trailing slash is a directory', async (t) => {
  const directory = join(workDirectory(t), 'made')
  const file = new LogFile(`${directory}/`, { ...KEEP, durationMs: 1, maxFiles: -1 })
  const sink = new LogSink({ output: file, level: 'info' })
  const logger = createLogger(sink)
  logger.info('first')
  await eventually(() => statSync(join(directory, 'outpost.log')).size > 0, 'it is written')
  logger.info('second')
  await eventually(() => readFileSync(join(directory, 'outpost.log'), 'utf8').includes('second'), 'it is written')
  assert.ok(!readFileSync(join(directory, 'outpost.log'), 'utf8').includes('first'))
  assert.deepEqual(readdirSync(directory), ['outpost.log'], 'none is kept')
  sink.close()
})

test('a device is written to and never rotated', async (t) => {
  const directory = workDirectory(t)
  const path = join(directory, 'null.log')
  symlinkSync('/dev/null', path)
  const file = new LogFile(path, { ...KEEP, bytes: 1, durationMs: 1 })
  t.after(() => file.close())
  for (let line = 0; line < 3; line += 1) {
    await new Promise<number>((done) => file.append(Buffer.from('a line\n'), done))
  }
  assert.deepEqual(readdirSync(directory), ['null.log'], 'nothing was put aside')
  assert.equal(statSync(path).isCharacterDevice(), true)
})

test('lines for a full disk are counted, and the count is logged once there is space', async (t) => {
  const path = join(workDirectory(t), 'log')
  const sink = new LogSink({ output: new DescriptorOutput(openSync('/dev/full', 'w')), level: 'info' })
  const logger = createLogger(sink)
  for (let i = 0; i < 30; i++) {
    logger.info('lost')
    if (i % 10 === 9) await new Promise((resolve) => setTimeout(resolve, 50))
  }
  sink.redirect(new LogFile(path, KEEP), true)
  await eventually(() => {
    logger.info('room again')
    return statSync(path).size > 0 && readFileSync(path, 'utf8').includes('log lines dropped')
  }, 'the count is logged')
  const told = linesOf(path).filter((line) => line.includes('log lines dropped'))
  const lost = told.map((line) => (JSON.parse(line) as { lines: number }).lines)
  assert.equal(
    lost.reduce((sum, lines) => sum + lines, 0),
    30,
  )
  assert.ok(!readFileSync(path, 'utf8').includes('"lost"'))
  sink.close()
})

test('a removed log directory is created again, and the agent continues', async (t) => {
  const directory = workDirectory(t)
  const file = join(directory, 'log/agent.log')
  const config = `acl { enabled = false }\nlog_file = "${file}"\n`
  const agent = await startAgent(t, ['-config', writeConfig(directory, config)])
  const health = () => ask(agent.port, 'GET', '/v1/client/metadata')
  const written = async () => {
    assert.equal((await health()).status, 200)
    try {
      return readFileSync(file, 'utf8').includes('/v1/client/metadata')
    } catch {
      return false
    }
  }
  await eventually(written, 'a line')
  rmSync(join(directory, 'log'), { recursive: true })
  await eventually(written, 'a line in a new file')
  rmSync(join(directory, 'log'), { recursive: true })
  writeFileSync(join(directory, 'log'), 'in the way')
  for (let i = 0; i < 20; i++) assert.equal((await health()).status, 200)
  assert.equal(agent.stderr(), '', 'nothing goes elsewhere')
  await new Promise((resolve) => setTimeout(resolve, 1200))
  await health()
  rmSync(join(directory, 'log'))
  await eventually(written, 'a line once there is a place')
})

test('after an external rename SIGHUP opens a new file, and the settings can be changed', async (t) => {
  const directory = workDirectory(t)
  const file = join(directory, 'agent.log')
  const agent = await startAgent(t, ['-config', writeConfig(directory, forPeople(file))])
  await eventually(() => readFileSync(file, 'utf8').includes('[INFO]  outpost: started'), 'lines for people')
  renameSync(file, `${file}.1`)
  utimesSync(`${file}.1`, 0, 0)
  agent.child.kill('SIGHUP')
  const begun = () => readdirSync(directory).includes('agent.log') && readFileSync(file, 'utf8')
  await eventually(() => (begun() || '').includes('configuration reloaded'), 'a new file')
  assert.ok(!readFileSync(`${file}.1`, 'utf8').includes('configuration reloaded'))
  const other = join(directory, 'other.log')
  writeConfig(directory, forPeople(other))
  const answer = await ask(agent.port, 'PUT', '/v1/agent/reload')
  assert.deepEqual(JSON.parse(answer.body.toString()), { NeedsRestart: [], Reloaded: ['log_file'] })
  await eventually(() => readFileSync(other, 'utf8').includes('agent.reload'), 'the other file')
  await eventually(() => !openFiles(agent.pid).includes(file), 'the first one is closed')
})

function openFiles(pid: number): string[] {
  return readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
    try {
      return [readlinkSync(`/proc/${pid}/fd/${fd}`)]
    } catch {
      return []
    }
  })
}

const jsonServer = (level: string) =>
  `log_json = true\nlog_level = "${level}"\nserver { enabled = true }\nacl { enabled = false }\n`

test('probes and scrapes are logged at debug, and with log_json = true all of stdout is JSON', async (t) => {
  const probes = ['agent/health', 'agent/ready', 'metrics', 'sys/health', 'metrics?format=prometheus']
  const requests = async (level: string) => {
    const agent = await agentHere(t, [
      '-config',
      writeConfig(workDirectory(t), `${jsonServer(level)}ports { cluster = 0 }`),
    ])
    const lines = agent
      .stdout()
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, string>)
    assert.deepEqual(
      lines.map((line) => [line['@message'], line['url']]),
      [['==> outpost agent started', agent.url]],
    )
    for (const path of [...probes, 'openapi.json']) await ask(agent.port, 'GET', `/v1/${path}`)
    const logged = () =>
      agent
        .stderr()
        .split('\n')
        .filter((line) => line.includes('"@message":"request"'))
    await eventually(() => logged().some((line) => line.includes('openapi.json')), 'another request is logged')
    return logged().map((line) => /"@level":"(\w+)".*"path":"([^"]*)"/.exec(line)?.slice(1).join(' '))
  }
  assert.deepEqual(await requests('info'), ['info /v1/openapi.json'])
  const shown = probes.map((path) => `debug /v1/${path.replace(/\?.*/, '')}`)
  assert.deepEqual(await requests('debug'), [...shown, 'info /v1/openapi.json'])
})
