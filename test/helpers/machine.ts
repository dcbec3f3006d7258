/** A separate machine booted by the real systemd (machine.sh), for tests of the installed service. */
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

/** Path of the shared directory inside the machine. */
const INSIDE = '/run/machine'
const ROOT = resolve(import.meta.dirname, '../..')

export interface Outcome {
  readonly status: number | null
  readonly stdout: string
  readonly stderr: string
}

export interface Machine {
  /** A directory of this host, and its path inside the machine. */
  readonly outside: string
  readonly inside: string
  /** The path of this Node inside the machine. */
  readonly node: string
  /** Process ID of its systemd on this host. */
  readonly pid: number
  /** Runs a command in the machine. */
  run(command: string, ...args: readonly string[]): Outcome
  /** As `run`, but throws unless the command succeeds; returns the trimmed output. */
  ok(command: string, ...args: readonly string[]): string
}

/** The reason why no machine can be booted here; undefined if it can. */
export function whyNoMachine(): string | undefined {
  if (process.getuid?.() !== 0) return 'needs root'
  if (!existsSync('/lib/systemd/systemd')) return 'needs systemd'
  const able = spawnSync('unshare', ['--pid', '--mount', '--uts', '--ipc', '--cgroup', '--net', '--fork', 'true'])
  return able.status === 0 ? undefined : 'needs the right to make namespaces'
}

export async function bootMachine(t: TestContext): Promise<Machine> {
  const outside = realpathSync(mkdtempSync(join(tmpdir(), 'outpost-machine-')))
  // Users of the machine must be able to enter it.
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
  return { outside, inside: INSIDE, node, pid: Number(stdout), run, ok }
}

function ip(...args: readonly string[]): void {
  execFileSync('ip', args, { stdio: ['ignore', 'ignore', 'inherit'] })
}

/** Connects machines to one network; their addresses are 10.77.0.1, 10.77.0.2 and so on. */
export function connectMachines(t: TestContext, machines: readonly Machine[]): void {
  const bridge = `opb${process.pid}`
  ip('link', 'add', bridge, 'type', 'bridge')
  // The pairs of a machine end with its network namespace.
  t.after(() => ip('link', 'delete', bridge))
  ip('link', 'set', bridge, 'up')
  for (const [index, machine] of machines.entries()) {
    const port = `opv${process.pid}n${index}`
    ip('link', 'add', port, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', String(machine.pid))
    ip('link', 'set', port, 'master', bridge, 'up')
    machine.ok('ip', 'addr', 'add', `10.77.0.${index + 1}/24`, 'dev', 'eth0')
    machine.ok('ip', 'link', 'set', 'eth0', 'up')
  }
}

/** The real directory of the packages. */
function modulesPath(): string {
  return realpathSync(join(ROOT, 'node_modules'))
}

/**
 * A checkout for a machine without development dependencies; the packages are links to a directory inside the machine.
 * If the test run has a bundle, the checkout has that instead of the sources, as in a release. Returns the entry file.
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
