/** A full disk, and another error of the disk: commits fail, and work again once the disk does. */
import assert from 'node:assert/strict'
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { checkDatabase } from '../../src/storage/store/database-check.ts'
import { eventually } from '../helpers/eventually.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

class Subject {
  readonly child: ChildProcess
  said = ''
  complaint = ''

  constructor(t: TestContext, path: string) {
    this.child = spawn(process.execPath, [join(import.meta.dirname, 'disk-writer.ts'), path])
    this.child.stdout?.on('data', (bytes: Buffer) => (this.said += bytes.toString()))
    this.child.stderr?.on('data', (bytes: Buffer) => (this.complaint += bytes.toString()))
    t.after(() => this.child.kill('SIGKILL'))
  }

  async hears(word: string): Promise<void> {
    await eventually(() => this.said.includes(word) || this.child.exitCode !== null)
    assert.ok(this.said.includes(word), this.complaint)
  }

  goOn(): void {
    this.child.stdin?.write('go on\n')
  }
}

test('a full disk refuses a commit and the queued ones, and commits work again once there is space', async (t) => {
  const small = join(temporaryDirectory(t), 'small')
  mkdirSync(small)
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=3m', 'tmpfs', small], { stdio: 'ignore' })
  } catch {
    return t.skip('needs the right to mount')
  }
  try {
    await onSmallDisk(t, small)
  } finally {
    execFileSync('umount', ['-l', small])
  }
})

async function onSmallDisk(t: TestContext, small: string): Promise<void> {
  const path = join(small, 'secrets.db')
  const subject = new Subject(t, path)
  await subject.hears('ready')
  execFileSync('sh', ['-c', `head -c 1500000 /dev/zero > ${small}/ballast`])
  subject.goOn()
  await subject.hears('refused full')
  rmSync(join(small, 'ballast'))
  subject.goOn()
  await subject.hears('recovered')
  assert.deepEqual(checkDatabase(path), [])
}

test('another error of the disk fails the commit, and the process continues', async (t) => {
  const path = join(temporaryDirectory(t), 'secrets.db')
  const subject = new Subject(t, path)
  await subject.hears('ready')
  // No file may grow beyond this: the system refuses the write itself, which is neither a full disk nor a mishap of SQLite.
  const limit = (bytes: string) => execFileSync('prlimit', ['--pid', String(subject.child.pid), `--fsize=${bytes}`])
  limit('1000000:unlimited')
  subject.goOn()
  await subject.hears('refused failed')
  limit('unlimited:unlimited')
  subject.goOn()
  await subject.hears('recovered')
  if (subject.child.exitCode === null) await once(subject.child, 'exit')
  assert.deepEqual(checkDatabase(path), [])
})
