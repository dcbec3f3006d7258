/**
 * Every command by group, in the order of the help, with the file that defines it. A file is loaded only for its commands, so a
 * command starts without the code of the others. Name, summary and options of a command are defined only in its file; a test
 * compares the names of both.
 *
 * The file of a command is named by its words: `operator snapshot save` is in `commands/operator/snapshot/save.ts`. Short commands
 * with the same first words share a file: `lease renew` is in `commands/lease.ts`.
 */
import type { Command } from './framework/define-command.ts'

export interface CommandFile {
  readonly names: readonly string[]
  readonly load: () => Promise<{ readonly command: Command } | { readonly commands: readonly Command[] }>
}

export interface CommandGroup {
  readonly name: string
  readonly summary: string
  /** First words that the help of the group shows in one line, with a summary. */
  readonly collapsed?: Readonly<Record<string, string>>
  readonly files: readonly CommandFile[]
}

type Load = CommandFile['load']

/** Commands in one file: `file('kv', 'get put', load)` has `kv get` and `kv put`. */
function file(prefix: string, lastWords: string, load: Load): CommandFile {
  return { names: lastWords.split(' ').map((word) => `${prefix} ${word}`.trim()), load }
}

/** Commands of one word, or of all the words of `name`. */
function single(name: string, load: Load): CommandFile {
  return { names: [name], load }
}

const alloc: Load = () => import('./commands/alloc.ts')
const cloud: Load = () => import('./commands/cloud.ts')
const kv: Load = () => import('./commands/kv.ts')
const node: Load = () => import('./commands/node.ts')
const operator: Load = () => import('./commands/operator.ts')
const dr: Load = () => import('./commands/operator/dr.ts')
const policy: Load = () => import('./commands/policy.ts')

export const COMMAND_GROUPS: readonly CommandGroup[] = [
  {
    name: 'hosts',
    summary: 'Allocations, task logs, files, jobs, nodes',
    files: [
      single('alloc run', () => import('./commands/alloc/run.ts')),
      file('alloc', 'list status', alloc),
      single('alloc stop', () => import('./commands/alloc/stop.ts')),
      file('alloc', 'stats gc', alloc),
      single('alloc write-log', () => import('./commands/alloc/write-log.ts')),
      single('logs', () => import('./commands/logs.ts')),
      file('fs', 'ls stat cat tail', () => import('./commands/fs.ts')),
      file('job', 'list status logs', () => import('./commands/job.ts')),
      file('node', 'list', node),
      single('node status', () => import('./commands/node/status.ts')),
      single('node stats', () => import('./commands/node/stats.ts')),
      file('node meta', 'read apply', () => import('./commands/node/meta.ts')),
      file('node', 'gc purge', node),
      single('top', () => import('./commands/top.ts')),
    ],
  },
  {
    name: 'cluster',
    summary: 'Servers, NATS keys, disaster recovery',
    files: [
      single('server members', () => import('./commands/server.ts')),
      single('cluster keys', () => import('./commands/cluster/keys.ts')),
      file('operator dr', 'status enable token', dr),
      single('operator dr join', () => import('./commands/operator/dr/join.ts')),
      single('operator dr switch', () => import('./commands/operator/dr/switch.ts')),
      file('operator dr', 'demote disable', dr),
      single('operator dr promote', () => import('./commands/operator/dr/promote.ts')),
      single('operator dr drill', () => import('./commands/operator/dr/drill.ts')),
      single('operator dr failover', () => import('./commands/operator/dr/failover.ts')),
    ],
  },
  {
    name: 'secrets',
    summary: 'Secrets, secrets engines, leases, commands that use secrets',
    collapsed: {
      'kv metadata': 'Manage the metadata of secrets',
      cloud: 'Manage AWS credentials, and the IAM users that the engine created',
      lease: 'Manage leases',
    },
    files: [
      single('exec', () => import('./commands/exec.ts')),
      file('kv', 'get put', kv),
      single('kv patch', () => import('./commands/kv/patch.ts')),
      file('kv', 'list delete undelete destroy rollback', kv),
      single('kv watch', () => import('./commands/kv/watch.ts')),
      file('kv', 'diff', kv),
      single('kv search', () => import('./commands/kv/search.ts')),
      file('kv', 'copy move', kv),
      single('kv transaction', () => import('./commands/kv/transaction.ts')),
      single('kv export', () => import('./commands/kv/export.ts')),
      single('kv import', () => import('./commands/kv/import.ts')),
      file('kv metadata', 'get put patch delete', () => import('./commands/kv/metadata.ts')),
      file('kv', 'enable-versioning', kv),
      single('read', () => import('./commands/read.ts')),
      single('write', () => import('./commands/write.ts')),
      single('patch', () => import('./commands/patch.ts')),
      single('list', () => import('./commands/list.ts')),
      single('delete', () => import('./commands/delete.ts')),
      single('unwrap', () => import('./commands/unwrap.ts')),
      file('secrets', 'list enable disable tune move', () => import('./commands/secrets.ts')),
      file('cloud', 'creds', cloud),
      file('cloud role', 'check', cloud),
      file('cloud root', 'rotate', cloud),
      single('cloud orphans', () => import('./commands/cloud/orphans.ts')),
      file('lease', 'lookup renew revoke list count tidy', () => import('./commands/lease.ts')),
    ],
  },
  {
    name: 'access',
    summary: 'Login, tokens, policies, auth methods, identities, MFA',
    collapsed: { 'mfa totp': 'Manage TOTP methods and TOTP secrets of entities' },
    files: [
      single('login', () => import('./commands/login.ts')),
      file('token', 'create lookup renew revoke capabilities', () => import('./commands/token.ts')),
      file('policy', 'list read write delete', policy),
      single('policy fmt', () => import('./commands/policy/fmt.ts')),
      single('policy check', () => import('./commands/policy/check.ts')),
      file('auth', 'list enable disable tune move', () => import('./commands/auth.ts')),
      file('entity', 'list read write delete', () => import('./commands/entity.ts')),
      file('group', 'list read write delete', () => import('./commands/group.ts')),
      file(
        'mfa totp',
        'list read write delete generate confirm admin-generate admin-confirm admin-destroy replace unlock status',
        () => import('./commands/mfa/totp.ts'),
      ),
    ],
  },
  {
    name: 'operations',
    summary: 'Status, diagnosis, seal, keys, snapshots, quotas, audit',
    files: [
      single('status', () => import('./commands/status.ts')),
      single('monitor', () => import('./commands/monitor.ts')),
      single('operator members', () => import('./commands/operator/members.ts')),
      single('operator members remove', () => import('./commands/operator/members/remove.ts')),
      single('operator diagnose', () => import('./commands/operator/diagnose.ts')),
      single('operator debug', () => import('./commands/operator/debug.ts')),
      single('operator usage', () => import('./commands/operator/usage.ts')),
      single('operator init', () => import('./commands/operator/init.ts')),
      file('operator', 'unseal seal step-down status', operator),
      single('operator rekey', () => import('./commands/operator/rekey.ts')),
      file('operator', 'rotate key-status', operator),
      single('operator generate-root', () => import('./commands/operator/generate-root.ts')),
      single('operator snapshot save', () => import('./commands/operator/snapshot/save.ts')),
      single('operator snapshot restore', () => import('./commands/operator/snapshot/restore.ts')),
      single('operator snapshot inspect', () => import('./commands/operator/snapshot/inspect.ts')),
      file('quota', 'list read write delete', () => import('./commands/quota.ts')),
      file('audit', 'list enable disable hash acknowledge', () => import('./commands/audit.ts')),
      single('audit verify', () => import('./commands/audit/verify.ts')),
    ],
  },
  {
    name: 'program',
    summary: 'The agent, configuration, shell completion, version',
    files: [
      single('agent', () => import('./commands/agent.ts')),
      single('validate', () => import('./commands/validate.ts')),
      single('completion', () => import('./commands/completion.ts')),
      single('version', () => import('./commands/version.ts')),
    ],
  },
]

/** What `outpost help` shows first. */
export const COMMON_COMMANDS: readonly string[] = [
  'agent',
  'alloc run',
  'alloc list',
  'logs',
  'node status',
  'status',
  'operator unseal',
  'login',
  'kv get',
  'kv put',
]

const FILES = new Map(
  COMMAND_GROUPS.flatMap(({ files }) => files.flatMap((each) => each.names.map((name) => [name, each]))),
)

/** Names of all commands, in the order of the help. */
export const COMMAND_NAMES: readonly string[] = [...FILES.keys()]

/** Undefined for an unknown name. Loads the file of the command. */
export async function loadCommand(name: string): Promise<Command | undefined> {
  const module = await FILES.get(name)?.load()
  if (!module) return undefined
  return ('commands' in module ? module.commands : [module.command]).find((command) => command.name === name)
}

/** Loads several commands, in the order of the names. */
export async function loadCommands(names: readonly string[]): Promise<Command[]> {
  const commands = await Promise.all(names.map(loadCommand))
  return commands.filter((command) => command !== undefined)
}
