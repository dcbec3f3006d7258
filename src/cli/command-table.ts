/** Every command, in the order in which help shows them. Each is loaded only when it is the one that runs. */
import type { TableRow } from './framework/command-shape.ts'
import { SECRETS_TABLE } from './command-table-secrets.ts'

export const TABLE: readonly TableRow[] = [
  {
    name: 'agent',
    summary: 'Run the agent, the server, or both',
    load: () => import('./commands/agent-options.ts'),
  },
  {
    name: 'alloc run',
    summary: 'Run a command as an allocation of this host',
    load: () => import('./commands/alloc/run.ts'),
  },
  {
    name: 'alloc list',
    summary: 'List allocations of a host or of all hosts of a server',
    load: () => import('./commands/alloc/list.ts'),
  },
  {
    name: 'alloc status',
    summary: 'Show one allocation of a host or of any host of a server',
    load: () => import('./commands/alloc/status.ts'),
  },
  { name: 'alloc stop', summary: 'Stop an allocation of this host', load: () => import('./commands/alloc/stop.ts') },
  {
    name: 'alloc stats',
    summary: 'Show what the tasks of an allocation use',
    load: () => import('./commands/alloc/stats.ts'),
  },
  {
    name: 'alloc gc',
    summary: 'Remove the directory of an allocation that has ended',
    load: () => import('./commands/alloc/gc.ts'),
  },
  {
    name: 'alloc write-log',
    summary: "Write standard input to a task's rotated log",
    load: () => import('./commands/alloc/write-log.ts'),
  },
  { name: 'logs', summary: "Print or follow a task's log", load: () => import('./commands/logs.ts') },
  { name: 'fs ls', summary: "List a directory of an allocation's files", load: () => import('./commands/fs/ls.ts') },
  {
    name: 'fs stat',
    summary: 'Show what is known of one file of an allocation',
    load: () => import('./commands/fs/stat.ts'),
  },
  { name: 'fs cat', summary: 'Print a file of an allocation', load: () => import('./commands/fs/cat.ts') },
  {
    name: 'fs tail',
    summary: 'Print the end of a file of an allocation, or follow it',
    load: () => import('./commands/fs/tail.ts'),
  },
  {
    name: 'node list',
    summary: 'List the hosts that a server knows',
    load: () => import('./commands/node/list.ts'),
  },
  {
    name: 'node status',
    summary: 'Show a host: identity, status, load, metadata, allocations',
    load: () => import('./commands/node/status.ts'),
  },
  {
    name: 'node stats',
    summary: 'Show what a host uses: memory, processors, disks',
    load: () => import('./commands/node/stats.ts'),
  },
  { name: 'node meta read', summary: "Show a node's metadata", load: () => import('./commands/node/meta-read.ts') },
  {
    name: 'node meta apply',
    summary: "Set and unset keys of a node's metadata",
    load: () => import('./commands/node/meta-apply.ts'),
  },
  {
    name: 'node gc',
    summary: 'Remove the directories of all allocations that have ended',
    load: () => import('./commands/node/gc.ts'),
  },
  {
    name: 'node purge',
    summary: 'Make a server forget a host with its key and its allocations',
    load: () => import('./commands/node/purge.ts'),
  },
  { name: 'job list', summary: 'List the jobs that allocations name', load: () => import('./commands/job/list.ts') },
  {
    name: 'job status',
    summary: 'Show a job and its allocations on all hosts',
    load: () => import('./commands/job/status.ts'),
  },
  {
    name: 'job logs',
    summary: 'Print or follow the logs of all allocations of a job',
    load: () => import('./commands/job/logs.ts'),
  },
  {
    name: 'server members',
    summary: 'Show the server that is addressed',
    load: () => import('./commands/server/members.ts'),
  },
  {
    name: 'cluster keys',
    summary: 'Make the keys of agents and servers, and what NATS is to permit them',
    load: () => import('./commands/cluster/keys.ts'),
  },
  ...SECRETS_TABLE,
  {
    name: 'completion',
    summary: 'Print the completion script of a shell',
    load: () => import('./commands/completion.ts'),
  },
  { name: 'validate', summary: 'Check configuration files', load: () => import('./commands/validate.ts') },
  { name: 'version', summary: 'Print the version', load: () => import('./commands/version.ts') },
]
