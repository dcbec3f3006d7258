/** A machine of its own, booted by the real systemd (machine.sh), for tests of the installed service. */
import { execFileSync, spawn, spawnSync } from 'node:child_process'
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  rmSync,
  symlinkSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import type { TestContext } from 'node:test'
import { eventually } from './eventually.ts'
import { OUTPOST } from './program.ts'

/** What the machine calls its directory of this host. */
const INSIDE = '/run/machine'
const ROOT = resolve(import.meta.dirname, '../..')

export interface Outcome {
  readonly status: number | null
  readonly stdout: string
  readonly stderr: string
}

export interface Machine {
  /** A directory of this host, and what the machine calls it. */
  readonly outside: string
  readonly inside: string
  /** Process ID of the first process, for nsenter. */
  readonly first: string
  /** The Node that runs this, as the machine finds it. */
  readonly node: string
  /** Runs a command in the machine. */
  run(command: string, ...args: readonly string[]): Outcome
  /** The same, and throws unless it succeeds; gives what was printed, trimmed. */
  ok(command: string, ...args: readonly string[]): string
}

/** Why no machine can be booted here; undefined where one can. */
export function whyNoMachine(): string | undefined {
  if (process.getuid?.() !== 0) return 'needs root'
  if (!existsSync('/lib/systemd/systemd')) return 'needs systemd'
  const able = spawnSync('unshare', ['--pid', '--mount', '--uts', '--ipc', '--cgroup', '--net', '--fork', 'true'])
  return able.status === 0 ? undefined : 'needs the right to make namespaces'
}

export async function bootMachine(t: TestContext): Promise<Machine> {
  const outside = realpathSync(mkdtempSync(join(tmpdir(), 'outpost-machine-')))
  // Users of the machine pass through it.
  chmodSync(outside, 0o755)
  const script = join(ROOT, 'test/helpers/machine.sh')
  const booter = spawn('sh', [script, outside, modulesPath()], { stdio: ['pipe', 'pipe', 'pipe'] })
  let stdout = ''
  let stderr = ''
  booter.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text))
  booter.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text))
  t.after(async () => {
    booter.stdin.end()
    if (booter.exitCode === null) await new Promise((done) => booter.once('exit', done))
    rmSync(outside, { recursive: true, force: true })
  })
  await eventually(() => {
    if (booter.exitCode !== null) throw new Error(`it does not boot: ${stderr}`)
    return stdout.endsWith('\n')
  })
  const enter = ['-t', stdout.trim(), '-m', '-u', '-i', '-n', '-p', '-C', '--']
  const env = { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', SYSTEMD_PAGER: '' }
  const run = (command: string, ...args: readonly string[]): Outcome =>
    spawnSync('nsenter', [...enter, command, ...args], { encoding: 'utf8', env, cwd: '/', timeout: 120_000 })
  const ok = (command: string, ...args: readonly string[]) => {
    const { status, stdout: out, stderr: err } = run(command, ...args)
    if (status !== 0) throw new Error(`${[command, ...args].join(' ')}: ended with ${status}: ${out}${err}`)
    return out.trim()
  }
  await eventually(() => /running|degraded/.test(run('systemctl', 'is-system-running').stdout))
  const node = process.execPath.replace(modulesPath(), `${INSIDE}/node_modules`)
  return { outside, inside: INSIDE, first: stdout.trim(), node, run, ok }
}

/** Where the packages really are. */
function modulesPath(): string {
  return realpathSync(join(ROOT, 'node_modules'))
}

/**
 * A checkout for a machine, without what only development needs; the packages are links that lead somewhere in there. Where
 * the run has a bundle it has that instead of the sources, as when it is shipped. Returns the file that an agent begins with.
 */
export function makeCheckout(directory: string): string {
  const copy = (root: string, part: string) => cpSync(join(root, part), join(directory, part), { recursive: true })
  for (const part of [
    'bin',
    'systemd',
    'recipes',
    'docs',
    'package.json',
    'agent.hcl.example',
    'README.md',
    'LICENSE',
  ]) {
    copy(ROOT, part)
  }
  const isBundled = OUTPOST !== join(ROOT, 'bin/outpost')
  copy(isBundled ? resolve(OUTPOST, '../..') : ROOT, isBundled ? 'dist' : 'src')
  mkdirSync(join(directory, 'node_modules'))
  for (const name of readdirSync(modulesPath())) {
    symlinkSync(`${INSIDE}/node_modules/${name}`, join(directory, 'node_modules', name))
  }
  return join(directory, isBundled ? 'dist/agent.js' : 'src/main.ts')
}

/** A self-signed certificate for 127.0.0.1 and its key, as `tls.crt` and `tls.key`. */
export function makeCertificate(directory: string): void {
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-keyout', join(directory, 'tls.key')]
  const name = ['-subj', '/CN=127.0.0.1', '-addext', 'subjectAltName=IP:127.0.0.1']
  const made = ['-nodes', '-days', '2', '-out', join(directory, 'tls.crt')]
  execFileSync('openssl', ['req', '-x509', ...key, ...name, ...made], { stdio: 'ignore' })
}
