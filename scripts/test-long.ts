/**
 * Long tests: more operations, kills and bytes than the suite has time for, one after another, with a new seed if they need one.
 * Together they take hours. NAME runs one of them, `-list` prints what each one proves.
 *
 *     node scripts/test-long.ts [-list] [NAME …]
 */
import { spawnSync } from 'node:child_process'
import { resolve } from 'node:path'

interface LongRun {
  /** Paths, or patterns of `node --test`. */
  readonly files: readonly string[]
  /** Runs in place of test files. */
  readonly script?: string
  readonly env: Readonly<Record<string, string>>
  readonly proves: string
}

const ROOT = resolve(import.meta.dirname, '..')

const RUNS: Readonly<Record<string, LongRun>> = {
  'kv-model': {
    files: ['test/engines/kv/model.test.ts'],
    env: { OUTPOST_MODEL_OPERATIONS: '100000' },
    proves: 'versioned secrets answer 100,000 random operations as a model of them does',
  },
  'kv-kills': {
    files: ['test/engines/kv/kill.test.ts'],
    env: { OUTPOST_MODEL_KILLS: '40' },
    proves: 'a killed process leaves every acknowledged change of secrets, and none in part',
  },
  'kv-races': {
    files: ['test/engines/kv/concurrency.test.ts', 'test/engines/kv/contention.test.ts'],
    env: { OUTPOST_RACE_ROUNDS: '1000', OUTPOST_CONTENTION_ROUNDS: '10' },
    proves: 'of 100 writers with one cas exactly one wins, a thousand times',
  },
  'kv-fuzz': {
    files: ['test/engines/kv/fuzz.test.ts'],
    env: { OUTPOST_FUZZ_REQUESTS: '50000' },
    proves: 'no request to versioned secrets, however malformed, is answered with a fault',
  },
  guesses: {
    files: ['test/auth/userpass.test.ts', 'test/secrets/logins/user-lockout.test.ts'],
    env: { OUTPOST_GUESSES: '100', OUTPOST_LOCKED_NAMES: '60000' },
    proves:
      '10,000 wrong passwords at once try no name more often than its lock allows; 60,000 locked names lock no other name',
  },
  'kv-watchers': {
    files: ['test/engines/kv/watch-stream.test.ts'],
    env: { OUTPOST_WATCH_WRITES: '1000', OUTPOST_WATCH_STREAMS: '1000' },
    proves: 'watchers that reconnect at random receive each of 2,000 changes once, in order; 1,000 concurrent streams',
  },
  'kv-many': {
    files: ['test/engines/kv/hostile.test.ts'],
    env: { OUTPOST_MANY_SECRETS: '10000' },
    proves: 'a folder of 10,000 secrets and a secret of 10,000 versions are as good as small ones',
  },
  'store-kills': {
    files: ['test/storage/store/crash.test.ts', 'test/storage/seal/seal-crash.test.ts'],
    env: { CRASH_RUNS: '100', OUTPOST_SEED: String(Date.now() % 1e9) },
    proves: 'a killed process loses no acknowledged commit, and its last key shares open the barrier',
  },
  'dr-kills': {
    files: ['test/dr/kills.test.ts'],
    env: { OUTPOST_DR_KILLS: '50', OUTPOST_SEED: String(Date.now() % 1e9) },
    proves: 'of 100 primaries that are killed a synchronous one loses nothing, another at most the lag that it told',
  },
  'role-kills': {
    files: ['test/long/role-kills.test.ts'],
    env: { OUTPOST_ROLE_KILLS: '20', OUTPOST_SEED: String(Date.now() % 1e9) },
    proves: 'a server that is killed again and again in a promotion or demotion has the one role or the other',
  },
  'dr-demo': {
    files: ['test/long/dr-demo.test.ts'],
    env: {},
    proves: 'the demonstration of disaster recovery goes through each step that its document names',
  },
  'dr-switch-faults': {
    files: ['test/long/dr-switch-faults.test.ts'],
    env: {},
    proves: 'a planned change of roles with stopped, frozen or killed servers ends with one primary, and says which',
  },
  'link-cuts': {
    files: ['test/dr/link/link.test.ts'],
    env: { OUTPOST_LINK_CUTS: '180', OUTPOST_SEED: String(Date.now() % 1e9) },
    proves: 'a link to a secondary that is cut at any byte, again and again, loses nothing',
  },
  'barrier-kills': {
    files: ['test/storage/barrier/crash.test.ts'],
    env: { CRASH_OPERATIONS: '10000', OUTPOST_SEED: String(Date.now() % 1e9) },
    proves: 'the same for 10,000 mixed operations below HTTP',
  },
  'http-kills': {
    files: ['test/long/core-crash.test.ts'],
    env: { CRASH_REQUESTS: '10000', OUTPOST_SEED: String(Date.now() % 1e9) },
    proves: 'the same for 10,000 requests over HTTP to a whole server',
  },
  'audit-kills': {
    files: ['test/system/audit.test.ts'],
    env: { OUTPOST_AUDIT_KILLS: '20' },
    proves: 'a killed server has the audit lines of each answered request, and its chain continues',
  },
  'restore-kills': {
    files: ['test/storage/snapshot/snapshot.test.ts'],
    env: { KILLS: '60', OUTPOST_SEED: String(Date.now() % 1e9) },
    proves: 'a restore that is killed leaves the old state whole, or the new one',
  },
  damage: {
    files: ['test/storage/store/damage.test.ts'],
    env: { FLIPS: '2000' },
    proves: 'a bit that flips anywhere in a database is an error, never an answer',
  },
  streams: {
    files: [
      'test/host/logs/streams-model.test.ts',
      'test/host/logs/locate/log-position.test.ts',
      'test/host/logs/search/line-filter.test.ts',
    ],
    env: { MODEL_LOGS: '10000', POSITION_LOGS: '10000', FILTER_LOGS: '12000' },
    proves: 'streams begin, search and resume where a model of 10,000 random logs says',
  },
  matchers: {
    files: ['test/host/logs/search/line-matchers.test.ts'],
    env: { OUTPOST_MATCH_SCALE: '10' },
    proves: 'the slowest pattern on lines of 60,000 bytes holds up neither the event loop nor other searches',
  },
  tails: {
    files: ['test/host/logs/tail-stream-property.test.ts', 'test/host/logs/logs-property.test.ts'],
    env: { TAIL_RUNS: '3000' },
    proves: 'followers of logs that are rotated, truncated and removed at random lose and repeat nothing',
  },
  'fast-tails': {
    files: ['test/system/tail-survives.test.ts'],
    env: { OUTPOST_TAIL_MIB: '256', OUTPOST_CROWD: '20' },
    proves:
      'followers of a log that is written at full speed, and 20 more at once, get every byte once across rotations',
  },
  'many-followers': {
    files: ['test/system/tail-resources.test.ts'],
    env: { OUTPOST_FOLLOWERS: '1000', OUTPOST_UNREAD_MIB: '512' },
    proves: 'a thousand followers share one descriptor; clients that read nothing of 512 MiB use bounded memory',
  },
  'grep-resumes': {
    files: ['test/host/logs/search/grep-resume.test.ts'],
    env: { OUTPOST_GREP_RUNS: '300' },
    proves: 'of 300 searched logs that are cut off at random and resumed every selected line comes once',
  },
  smuggling: {
    files: ['test/attacks/request-smuggling.test.ts'],
    env: { OUTPOST_SPLITS: 'all' },
    proves: 'a verb that does not exist is refused wherever it is cut, behind every kind of request',
  },
  'alloc-signals': {
    files: ['test/cli/alloc-signals.test.ts'],
    env: { OUTPOST_SIGNAL_ROUNDS: '100' },
    proves: 'a signal at 100 random moments of the start of an allocation ends it',
  },
  'gc-races': {
    files: ['test/host/gc/gc.test.ts'],
    env: { OUTPOST_GC_RACE_MS: '30000', OUTPOST_GC_KILLS: '60' },
    proves:
      'no swap of names during a removal leads out of the directory that is removed, and a killed collection is finished',
  },
  'path-races': {
    files: ['test/host/files/beneath-race.test.ts'],
    env: { RACE_ATTEMPTS: '10000' },
    proves: 'no swap of names during a call leads out of an allocation or into its secrets',
  },
  'large-streams': {
    files: ['test/system/cluster-streams.test.ts'],
    env: { OUTPOST_STREAM_MIB: '1024', OUTPOST_FOLLOWERS: '1000' },
    proves: 'a gigabyte to readers who stop, and a thousand followers, cost a server and a node bounded memory',
  },
  resume: {
    files: ['test/system/resume.test.ts'],
    env: { RESUME_MIB: '256', RESUME_KILLS: '20', RESUME_FOLLOWERS: '100' },
    proves: 'a follower that resumes through 20 kills of the agent gets every byte once',
  },
  chaos: {
    files: ['test/long/cluster-chaos.test.ts'],
    env: { CHAOS_SECONDS: '120', CHAOS_LINES: '100', OUTPOST_TIMINGS: '{}', OUTPOST_SEED: String(Date.now() % 1e9) },
    proves: 'followers through servers lose nothing while processes and NATS are killed and frozen at random',
  },
  'live-flood': {
    files: ['test/long/live-flood.test.ts'],
    env: { OUTPOST_FLOOD_SECONDS: '30' },
    proves:
      'while a stolen worker key floods with the NATS permissions that are shipped, every honest call succeeds within ten seconds',
  },
  machines: {
    files: ['test/long/three-machines.test.ts'],
    env: {},
    proves:
      'on three machines under systemd a follower gets every line through kills, hangs, reloads, an upgrade and its rollback (needs root)',
  },
  ui: {
    files: ['test/long/ui/*.test.ts'],
    env: {},
    proves: 'each view of the web interface works in a real browser',
  },
  alerts: {
    files: ['test/long/alerts.test.ts'],
    env: {},
    proves: 'the alert rules fire in each state of real servers and in none of a healthy pair (needs promtool)',
  },
  dist: {
    files: ['test/long/packages.test.ts'],
    env: {},
    proves:
      'packages are reproducible and at most 60 MiB; the Debian package installs, upgrades, downgrades, is removed and purged by apt',
  },
  versions: {
    files: ['test/long/versions.test.ts'],
    env: {},
    proves: 'a server works with agents and servers of the version before and after it',
  },
  'cloud-faults': {
    files: ['test/engines/cloud/faults.test.ts'],
    env: { OUTPOST_CLOUD_FAULTS: '1000', OUTPOST_CLOUD_KILLS: '60', OUTPOST_SEED: String(Date.now() % 1e9) },
    proves: 'after 1,000 random faults of AWS and kills its users and keys are those of the leases',
  },
  'ha-rounds': {
    files: ['test/long/ha/rounds.test.ts'],
    env: { OUTPOST_HA_ROUNDS: '100', OUTPOST_SEED: String(Date.now() % 1e9) },
    proves:
      'in 100 rounds of kills, pauses, partitions, full disks and clock steps the history of 20 clients of a high availability cluster is linearizable (needs root)',
  },
  'ha-kills': {
    files: ['test/long/ha/kills.test.ts'],
    env: { OUTPOST_SEED: String(Date.now() % 1e9) },
    proves:
      'the history of 5 clients is linearizable while the active server is killed, and a killed NATS server is reported',
  },
  'ha-defects': {
    files: ['test/long/ha/workload.test.ts', 'test/long/ha/planted-defects.test.ts'],
    env: {},
    proves: 'the checker finds wrong answers, and planted defects of high availability (needs root)',
  },
  'http-fuzz': {
    files: ['test/http/fuzz.test.ts', 'test/http/list-verb.test.ts'],
    env: {
      OUTPOST_FUZZ_ROUNDS: '200',
      OUTPOST_VANISH_ROUNDS: '20',
      OUTPOST_SPLITS: 'all',
      OUTPOST_SEED: String(Date.now() % 1e9),
    },
    proves: 'requests cut anywhere are answered exactly; nonsense harms no other caller',
  },
  mutants: {
    files: [],
    script: 'scripts/mutants.ts',
    env: {},
    proves: 'for each promise of docs/guarantees.md and docs/security.md a planted defect fails its test',
  },
}

const [first, ...rest] = process.argv.slice(2)
const names = first === undefined ? Object.keys(RUNS) : [first, ...rest]
if (first === '-list') {
  for (const [name, { proves, env }] of Object.entries(RUNS)) {
    const settings = Object.entries(env).map(([key, value]) => `${key}=${value}`)
    print(`${name.padEnd(15)}${proves}\n${' '.repeat(15)}${settings.join(' ')}`)
  }
} else {
  const failed = names.filter((name) => !isGood(name))
  print(failed.length === 0 ? 'all passed' : `failed: ${failed.join(', ')}`)
  process.exitCode = failed.length === 0 ? 0 : 1
}

function isGood(name: string): boolean {
  const run = RUNS[name]
  if (!run) {
    print(`unknown long test "${name}", expected one of ${Object.keys(RUNS).join(', ')}`)
    return false
  }
  print(`\n${name}: ${run.proves}`)
  const args = run.script === undefined ? ['--test', '--test-concurrency=1', ...run.files] : [run.script]
  // Settings of the caller take precedence, so that a seed can be replayed.
  const env = { ...run.env, ...process.env }
  return spawnSync(process.execPath, args, { cwd: ROOT, stdio: 'inherit', env }).status === 0
}

function print(line: string): void {
  process.stdout.write(`${line}\n`)
}
