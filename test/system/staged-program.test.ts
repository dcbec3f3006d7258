/** What `systemd/install.sh` installs: a bundle with the packages that it loads, without sources and development packages. */
import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { once } from 'node:events'
import { test } from 'node:test'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

const ROOT = resolve(import.meta.dirname, '../..')

test('the installed program runs without sources and development packages, and shows its commit', async (t) => {
  const directory = temporaryDirectory(t)
  execFileSync(process.execPath, [join(ROOT, 'scripts/stage-program.ts'), directory])
  const development = Object.keys(
    (JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { devDependencies: object }).devDependencies,
  )
  const installed = readdirSync(join(directory, 'node_modules'))
  assert.deepEqual(
    installed.filter((name) => name.startsWith('.') || name.startsWith('@types')),
    [],
  )
  assert.deepEqual(
    development.filter((name) => existsSync(join(directory, 'node_modules', name))),
    [],
  )
  assert.equal(existsSync(join(directory, 'src')), false)
  for (const document of ['README.md', 'CHANGELOG.md', 'docs/releases.md']) {
    assert.ok(existsSync(join(directory, document)), document)
  }

  const outpost = join(directory, 'bin/outpost')
  const hasGit = existsSync(join(ROOT, '.git'))
  assert.match(
    execFileSync(outpost, ['version'], { encoding: 'utf8' }),
    hasGit ? /, commit [0-9a-f]{12}(-dirty)?\)$/m : /, commit unknown\)$/m,
  )
  const agent = spawn(outpost, ['agent', '-dev', '-http-port', '0', '-data-dir', join(directory, 'data')], {
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  let log = ''
  agent.stderr.setEncoding('utf8').on('data', (text: string) => (log += text))
  const exited = once(agent, 'exit')
  t.after(async () => {
    agent.kill('SIGTERM')
    await exited
  })
  while (!/\bstarted\b.*commit/.test(log)) {
    await Promise.race([
      once(agent.stderr, 'data'),
      exited.then(() => Promise.reject(new Error(`the agent has exited: ${log}`))),
    ])
  }
  const started = log.split('\n').find((line) => /\bstarted\b/.test(line)) ?? ''
  assert.match(started, hasGit ? /commit\W+[0-9a-f]{12}(-dirty)?\b/ : /commit\W+unknown/)
})
