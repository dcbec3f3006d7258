/** The random runs of following once more where the kernel gives no file watches: everything is then found by polling. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { resolve } from 'node:path'
import { test } from 'node:test'

const HOST_TESTS = resolve(import.meta.dirname, '../host/logs')

test('random runs without file watches deliver every byte once', { timeout: 240_000 }, async () => {
  const files = ['tail-stream-property.test.ts', 'logs-property.test.ts'].map((name) => `${HOST_TESTS}/${name}`)
  const script = 'echo 0 > /proc/sys/user/max_inotify_watches && exec "$@"'
  // The runner refuses to be run by another one, unless it does not know.
  const env: NodeJS.ProcessEnv = { ...process.env, TAIL_RUNS: process.env['TAIL_RUNS'] ?? '15' }
  delete env['NODE_TEST_CONTEXT']
  const child = spawn('unshare', ['-Ur', 'sh', '-c', script, 'sh', process.execPath, '--test', ...files], { env })
  let output = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => (output += text))
  child.stderr.setEncoding('utf8').on('data', (text: string) => (output += text))
  const code = await new Promise((done) => child.once('close', done))
  assert.equal(code, 0, output)
  assert.match(output, /pass 2\b/)
})
