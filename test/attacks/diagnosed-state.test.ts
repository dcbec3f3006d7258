/**
 * `outpost operator diagnose` runs as root on files that the user of the service owns. That user puts pipes, links, and the address of
 * a server without an end in their place: the diagnosis must not wait, and its advice must not make root change other files.
 */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { dirname, join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { OUTPOST, start } from '../cli/outpost-process.ts'
import { workDirectory } from '../helpers/agent-process.ts'

interface Finding {
  readonly check: string
  readonly status: string
  readonly text: string
  readonly next?: string
}

function hostIn(directory: string): string {
  const config = join(directory, 'host.hcl')
  const lines = [
    `data_dir = "${directory}/data"\nports { http = 0 }`,
    'client { enabled = true }\nserver { enabled = true }',
    'nats { servers = ["nats://127.0.0.1:1"] }',
  ]
  writeFileSync(config, lines.join('\n'))
  for (const name of ['server', 'client']) mkdirSync(join(directory, 'data', name), { recursive: true, mode: 0o700 })
  return config
}

async function diagnose(t: TestContext, config: string): Promise<readonly Finding[]> {
  const args = ['operator', 'diagnose', '-json', '-skip', 'clock', '-config', config]
  const command = start(OUTPOST, args)
  t.after(() => command.child.kill('SIGKILL'))
  const { code, stderr, stdout } = await command.finished
  assert.ok(code === 1 || code === 2, `exit code ${code}: ${stderr}`)
  return (JSON.parse(stdout) as { findings: Finding[] }).findings
}

function putPipe(path: string): void {
  mkdirSync(dirname(path), { recursive: true })
  execFileSync('mkfifo', [path])
}

for (const name of ['http.addr', 'client/state.json', 'server/secrets.db.lock', 'server/roster.db']) {
  test(`${name} is a pipe: the diagnosis ends`, { timeout: 120_000 }, async (t) => {
    const directory = workDirectory(t)
    const config = hostIn(directory)
    const path = join(directory, 'data', name)
    putPipe(path)
    if (name.endsWith('.lock')) writeFileSync(path.replace('.lock', ''), '', { mode: 0o600 })
    const findings = await diagnose(t, config)
    if (!name.includes('.db')) return
    assert.ok(
      findings.some(({ text, status }) => status === 'failure' && text === `${path} is not a regular file`),
      JSON.stringify(findings),
    )
  })
}

async function endlessServer(t: TestContext): Promise<string> {
  const server = createServer((_request, response) => {
    const piece = Buffer.alloc(1 << 16, 'a')
    const more = () => {
      while (response.write(piece));
    }
    response.on('drain', more)
    more()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

test('a process that answers without an end is not the service', { timeout: 120_000 }, async (t) => {
  const directory = workDirectory(t)
  const config = hostIn(directory)
  writeFileSync(join(directory, 'data/http.addr'), await endlessServer(t))
  const findings = await diagnose(t, config)
  assert.ok(findings.some(({ check, status }) => check === 'service' && status === 'skipped'))
})

test('advice names no command that changes the target of a link or runs the name of a file', async (t) => {
  const directory = workDirectory(t)
  const config = hostIn(directory)
  const precious = join(directory, 'precious')
  writeFileSync(precious, 'precious', { mode: 0o644 })
  symlinkSync(precious, join(directory, 'data/client/state.json'))
  const isRoot = process.geteuid?.() === 0
  const foreign = join(directory, `data/client/x; touch $(id -un)'s`)
  writeFileSync(foreign, '')
  if (isRoot) execFileSync('chown', ['12345', foreign])
  const findings = await diagnose(t, config)
  const commands = findings.flatMap(({ next = '' }) => (/^ch(?:own|mod) /.test(next) ? [next] : []))
  for (const command of commands.filter((each) => each.startsWith('chmod'))) {
    assert.ok(!command.includes('state.json'), command)
  }
  assert.ok(findings.some(({ check, text }) => check === 'files/links' && text.includes('state.json')))
  if (!isRoot) return
  // Run as an operator would: the file is a link by then.
  const [chown = ''] = commands.filter((each) => each.startsWith('chown'))
  execFileSync('rm', [foreign])
  symlinkSync(precious, foreign)
  execFileSync('sh', ['-c', chown.replace(/^chown -h \S+/, 'chown -h 12345')], { cwd: directory })
  assert.notEqual(statSync(precious).uid, 12345)
  assert.equal(readFileSync(precious, 'utf8'), 'precious')
})
