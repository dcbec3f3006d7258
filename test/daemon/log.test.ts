/** The last lines of the log are written, however the process ends. */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { closeSync, fstatSync, openSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

const SOURCES = join(import.meta.dirname, '../../src')
const LINES = 500

function program(end: string): string {
  return `
    import { ProcessLog } from ${JSON.stringify(join(SOURCES, 'daemon/setup/log.ts'))}
    import { createLogger } from ${JSON.stringify(join(SOURCES, 'platform/log.ts'))}
    const log = new ProcessLog({ logLevel: 'info', logJson: true })
    const logger = createLogger(log.sink)
    process.once('SIGTERM', async () => { await log.close(); process.exit(0) })
    for (let at = 0; at < ${LINES}; at++) logger.info('line ' + at)
    ${end}
  `
}

const ENDS = [
  { name: 'process.exit', end: 'process.exit(3)', code: 3 },
  { name: 'an uncaught error', end: 'queueMicrotask(() => { throw new Error("unexpected") })', code: 1 },
  { name: 'an unhandled rejection', end: 'void Promise.reject(new Error("unexpected"))', code: 1 },
  { name: 'SIGTERM', end: 'process.kill(process.pid, "SIGTERM"); setInterval(() => undefined, 1000)', code: 0 },
]

for (const { name, end, code } of ENDS) {
  test(`no line is lost and their order is kept when the process ends by ${name}`, () => {
    const ended = spawnSync(process.execPath, ['--input-type=module', '-e', program(end)], { encoding: 'utf8' })
    assert.equal(ended.status, code, ended.stderr.slice(-2000))
    const said = [...ended.stderr.matchAll(/"@message":"line (\d+)"/g)].map(([, at]) => Number(at))
    assert.deepEqual(
      said,
      Array.from({ length: LINES }, (_, at) => at),
    )
  })
}

test('a write to standard error after the log was closed is the last line', () => {
  // The only thread for asynchronous writes is busy while the log is closed.
  const end = `
    import { pbkdf2 } from 'node:crypto'
    import { writeSync } from 'node:fs'
    pbkdf2('a', 'b', 100_000, 64, 'sha512', () => undefined)
    logger.error('in progress')
    await log.close()
    writeSync(2, 'the cause\\n')
  `
  const env = { ...process.env, UV_THREADPOOL_SIZE: '1' }
  const ended = spawnSync(process.execPath, ['--input-type=module', '-e', program(end)], { encoding: 'utf8', env })
  assert.equal(ended.status, 0, ended.stderr.slice(-2000))
  assert.match(ended.stderr, /"@message":"in progress"}\nthe cause\n$/)
})

/** The form of the variable JOURNAL_STREAM. */
const streamOf = (fd: number) => `${fstatSync(fd).dev}:${fstatSync(fd).ino}`

test('lines to the journal start with their priority, and other lines do not', (t) => {
  const end = `
    logger.error('broken')
    logger.warn('odd')
    await log.close()
  `
  const file = join(temporaryDirectory(t), 'stderr')
  const linesWith = (journalOf: (fd: number) => string) => {
    const fd = openSync(file, 'w')
    const env = { ...process.env, JOURNAL_STREAM: journalOf(fd) }
    const ended = spawnSync(process.execPath, ['--input-type=module', '-e', program(end)], {
      env,
      stdio: ['ignore', 'ignore', fd],
    })
    closeSync(fd)
    assert.equal(ended.status, 0)
    return readFileSync(file, 'utf8').trimEnd().split('\n')
  }
  const prefixed = linesWith(streamOf)
  assert.match(prefixed[0] ?? '', /^<6>\{"@timestamp"/)
  assert.match(prefixed.at(-2) ?? '', /^<3>\{.*"broken"}$/)
  assert.match(prefixed.at(-1) ?? '', /^<4>\{.*"odd"}$/)
  const plain = linesWith((fd) => `${fstatSync(fd).dev}:${fstatSync(fd).ino + 1}`)
  assert.equal(plain.length, prefixed.length)
  assert.ok(plain.every((line) => line.startsWith('{"@timestamp"')))
})
