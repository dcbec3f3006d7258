/** The authorities that a server reads from files which a caller names, before it takes an activation token to a primary. */
import assert from 'node:assert/strict'
import { execFile, execFileSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { unwrapAt } from '../../src/daemon/modules/activation-unwrap.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

const TARGET = { address: 'https://127.0.0.1:1', caFile: '', caPath: '', caCert: '' }
/** Far above what a process takes to start on a busy machine. */
const PATIENCE_MS = 60_000

const from = (caPath = '') => unwrapAt('token', { ...TARGET, caPath })

test('a pipe as ca_file or in ca_path is refused without blocking', async (t) => {
  const directory = temporaryDirectory(t)
  execFileSync('mkfifo', [join(directory, 'pipe')])
  // In a separate process: opening a pipe without a writer would block this one, including the end of the test.
  const program = `
    import { unwrapAt } from ${JSON.stringify(join(import.meta.dirname, '../../src/daemon/modules/activation-unwrap.ts'))}
    for (const file of ${JSON.stringify([{ caFile: join(directory, 'pipe') }, { caPath: directory }])})
      await unwrapAt('token', { ...${JSON.stringify(TARGET)}, ...file }).catch(({ message }) => console.log(message))`
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', program], {
    timeout: PATIENCE_MS,
    killSignal: 'SIGKILL',
  })
  assert.equal(stdout.match(/pipe is not a certificate file/g)?.length, 2, stdout)
})

test('the number and size of files in ca_path are limited, and the error has the limit', async (t) => {
  const directory = temporaryDirectory(t)
  const [many, large, few] = ['many', 'large', 'few'].map((name) => join(directory, name))
  for (const path of [many, large, few]) mkdirSync(path ?? '')
  for (let at = 0; at < 1001; at++) writeFileSync(join(many ?? '', `${at}.pem`), '')
  for (let at = 0; at < 9; at++) writeFileSync(join(large ?? '', `${at}.pem`), 'x'.repeat(1 << 20))
  for (let at = 0; at < 400; at++) writeFileSync(join(few ?? '', `${at}.pem`), 'no certificate')
  await assert.rejects(() => from(many), /ca_path cannot be read: .*many has more than 1000 files: .*ca_file/)
  await assert.rejects(() => from(large), /ca_path cannot be read: .*large has more than 8 MiB: .*ca_file/)
  await assert.rejects(() => from(few), /no agent at/)
})
