/**
 * Descriptions of all metrics, by their dotted names. `scripts/reference.ts` writes the reference of metrics from them; the
 * program uses only their names, as a type: a metric without a description does not compile. Metrics of engines are checked by
 * a test that compares all of them with the output of a real server.
 */

export interface MetricDoc {
  readonly kind: 'gauge' | 'counter' | 'histogram' | 'summary'
  /** Names of the labels besides those of the host. */
  readonly labels?: readonly string[]
  readonly about: string
}

const gauge = (about: string, ...labels: readonly string[]) => ({ kind: 'gauge', about, labels }) as const
const counter = (about: string, ...labels: readonly string[]) => ({ kind: 'counter', about, labels }) as const
const histogram = (about: string, ...labels: readonly string[]) => ({ kind: 'histogram', about, labels }) as const
const summary = (about: string) => ({ kind: 'summary', about, labels: [] }) as const

const DISK_LABELS = ['disk', 'mountpoint'] as const
const TASK_LABELS = ['alloc_id', 'job', 'namespace', 'task', 'task_group'] as const

/** In the order of the reference. */
const DOCS = {
  'outpost.ready': gauge('1 if every check of `/v1/agent/ready` is ok, else 0'),
  'outpost.ready_check': gauge('one of these checks: 1 ok, 0 failing', 'check'),
  'outpost.build_info': gauge('always 1', 'version', 'commit', 'node'),
  'outpost.config_reloads': counter('reloads of the configuration: `done`, `refused`', 'result'),
  'outpost.certificate_days_left': gauge(
    'days until it expires, negative afterwards: `http` (the one in use, not the file), `nats`, `nats_server` (while connected), `secrets`, `cluster` (the replication link)',
    'certificate',
  ),
  'outpost.event_loop.delay_max_seconds': gauge('the largest timer delay of the last 10 to 20 s'),
  'outpost.event_loop.delay_seconds': summary('timer delays since the first request for metrics'),
  'outpost.event_loop.busy_ratio': gauge('fraction of the time since the start in which the event loop was busy'),
  'outpost.memory_bytes': gauge(
    '`heap_used` and `heap_reserved` of JavaScript, `external` for memory outside that heap, `buffers` for the buffers in `external`',
    'kind',
  ),
  'process.resident_memory_bytes': gauge('memory in RAM'),
  'process.cpu_seconds': counter('processor time'),
  'process.start_time_seconds': gauge('start time of the process'),
  'process.open_fds': gauge('open file descriptors'),
  'process.max_fds': gauge('limit of file descriptors'),

  'outpost.http.requests': counter('completed HTTP requests, by class of status', 'operation', 'status'),
  'outpost.http.requests_underway': gauge('HTTP requests in progress, including streams', 'operation'),
  'outpost.http.sent_bytes': counter('bytes of response bodies, including open streams', 'operation'),
  'outpost.http.request_duration_seconds': histogram(
    'from the head of a request to the end of its response, without follow streams',
    'operation',
  ),
  'nomad.nomad.agent.http.connections': gauge('open connections'),
  'nomad.nomad.agent.http.exceeded': counter('refused connections: too many from one address'),

  'outpost.followers': gauge('open streams that follow a log or a file', 'kind'),
  'outpost.follower_lag_bytes': gauge('bytes written and not yet sent, all followers', 'kind'),
  'outpost.follower_lag_max_bytes': gauge('the same for the slowest follower', 'kind'),
  'outpost.followed_files': gauge('files with followers'),
  'outpost.watched_directories': gauge('directories with followed files, by how the agent detects changes', 'mode'),
  'outpost.collections': counter(
    'allocation directories that were removed (`done`) or could not be removed (`failed`)',
    'result',
  ),
  'outpost.alloc_dir.size': gauge('size of the file system with the allocations, in bytes'),
  'outpost.alloc_dir.used': gauge('used bytes of it'),
  'outpost.alloc_dir.available': gauge('available bytes of it'),
  'outpost.alloc_dir.used_percent': gauge('usage of it, in percent'),
  'outpost.alloc_dir.inodes_percent': gauge('usage of its inodes, in percent'),
  'nomad.client.uptime': gauge('seconds since the start of the host'),
  'nomad.client.host.memory.total': gauge('memory of the host, in bytes'),
  'nomad.client.host.memory.available': gauge('available memory, in bytes'),
  'nomad.client.host.memory.used': gauge('used memory without caches, in bytes'),
  'nomad.client.host.memory.free': gauge('free memory, in bytes'),
  'nomad.client.host.cpu.user': gauge('user time of a core, in percent', 'cpu'),
  'nomad.client.host.cpu.system': gauge('system time of a core, in percent', 'cpu'),
  'nomad.client.host.cpu.idle': gauge('idle time of a core, in percent', 'cpu'),
  'nomad.client.host.cpu.total_percent': gauge('usage of a core, in percent', 'cpu'),
  'nomad.client.host.cpu.total_ticks': gauge('usage of a core, in MHz', 'cpu'),
  'nomad.client.host.cpu.total_ticks_consumed': gauge('usage of all cores, in MHz'),
  'nomad.client.host.disk.size': gauge('size of a file system, in bytes', ...DISK_LABELS),
  'nomad.client.host.disk.used': gauge('used bytes of a file system', ...DISK_LABELS),
  'nomad.client.host.disk.available': gauge('available bytes of a file system', ...DISK_LABELS),
  'nomad.client.host.disk.used_percent': gauge('usage of a file system, in percent', ...DISK_LABELS),
  'nomad.client.host.disk.inodes_percent': gauge('usage of the inodes of a file system, in percent', ...DISK_LABELS),
  'nomad.client.allocations.pending': gauge('pending allocations of this host'),
  'nomad.client.allocations.running': gauge('running allocations of this host'),
  'nomad.client.allocations.terminal': gauge('allocations of this host that have ended'),
  'nomad.client.tasks.pending': gauge('pending tasks of this host'),
  'nomad.client.tasks.running': gauge('running tasks of this host'),
  'nomad.client.tasks.dead': gauge('tasks of this host that have ended'),
  'nomad.client.allocs.memory.rss': gauge('resident memory of a running task, in bytes', ...TASK_LABELS),
  'nomad.client.allocs.memory.cache': gauge('page cache of a running task, in bytes', ...TASK_LABELS),
  'nomad.client.allocs.memory.swap': gauge('swap of a running task, in bytes', ...TASK_LABELS),
  'nomad.client.allocs.memory.mapped_file': gauge('mapped files of a running task, in bytes', ...TASK_LABELS),
  'nomad.client.allocs.memory.usage': gauge('memory that counts toward the limit, in bytes', ...TASK_LABELS),
  'nomad.client.allocs.memory.max_usage': gauge('maximum of this memory, in bytes', ...TASK_LABELS),
  'nomad.client.allocs.memory.kernel_usage': gauge('kernel memory of a running task, in bytes', ...TASK_LABELS),
  'nomad.client.allocs.memory.kernel_max_usage': gauge('maximum of the kernel memory, in bytes', ...TASK_LABELS),
  'nomad.client.allocs.cpu.total_percent': gauge('processor usage of a task, in percent of one core', ...TASK_LABELS),
  'nomad.client.allocs.cpu.system': gauge('system time of a task, in percent of one core', ...TASK_LABELS),
  'nomad.client.allocs.cpu.user': gauge('user time of a task, in percent of one core', ...TASK_LABELS),
  'nomad.client.allocs.cpu.throttled_time': gauge('time in which a task was throttled, in nanoseconds', ...TASK_LABELS),
  'nomad.client.allocs.cpu.throttled_periods': gauge('periods in which a task was throttled', ...TASK_LABELS),
  'nomad.client.allocs.cpu.total_ticks': gauge('processor usage of a task, in MHz', ...TASK_LABELS),
  'nomad.client.file_system.list': summary('duration of `fs/ls`, in milliseconds'),
  'nomad.client.file_system.stat': summary('duration of `fs/stat`, in milliseconds'),
  'nomad.client.file_system.stream': summary('duration of `fs/stream` without follow, in milliseconds'),
  'nomad.client.file_system.logs': summary('duration of `fs/logs` without follow, in milliseconds'),
  'nomad.client.node_meta.read': summary('duration of reads of metadata, in milliseconds'),
  'nomad.client.node_meta.apply': summary('duration of changes of metadata, in milliseconds'),
  'nomad.client.client_stats.stats': summary('duration of requests for statistics of the host, in milliseconds'),
  'nomad.client.allocations.stats': summary('duration of requests for statistics of an allocation, in milliseconds'),
  'nomad.client.allocations.garbage_collect': summary('duration of the collection of an allocation, in milliseconds'),
  'nomad.client.allocations.garbage_collect_all': summary('duration of the collection of all, in milliseconds'),

  'outpost.nats.connected': gauge('1 while connected to NATS'),
  'outpost.nats.reconnects': counter('connections to NATS after the first one'),
  'outpost.calls_in_flight': gauge(
    'calls between processes in progress: `forwarded` to others, `served` for others',
    'direction',
  ),
  'outpost.forwarded_bytes': counter('bytes of responses received from other processes'),
  'outpost.nodes': gauge(
    'nodes that this server knows: `ready`, `down` (heartbeats missed), `left` (stopped and not restarted), `disconnected` (this server is)',
    'status',
  ),
  'outpost.node_clock_skew_seconds': gauge(
    'clock of the node minus the clock of this server, for the 1,000 nodes with the largest difference. Nodes of older versions are omitted',
    'node_id',
    'name',
  ),
  'outpost.server_clock_skew_seconds': gauge(
    'clock of this host minus the clock of each server, from the announcements of the servers (once a minute, and after a connection to NATS). Above 30 s there is a warning in the log and in readiness',
    'server',
  ),
  'outpost.allocations': gauge('allocations that this server knows, of all nodes'),
  'outpost.node_messages': counter(
    'heartbeats and states of nodes: `taken`, `old` (repeated or overtaken), `superseded` (by a later run of the node), `refused` (by another key, or over a limit), `malformed` (or with a wrong signature)',
    'result',
  ),
  'outpost.roster_refused': counter(
    'messages of nodes that servers refused: `key` (another key for a known node), `claim` (an allocation of another node), `forged`, `malformed`, `newer`, `allocations` (more than 10,000 in a state), `bytes` (too large), `rate` (too many at once)',
    'reason',
  ),
  'outpost.node_beats_late': counter('heartbeats that arrived after more than 15 s without one from their node'),

  'outpost.secrets.initialized': gauge('1 after `operator init`'),
  'outpost.secrets.sealed': gauge(
    '1 while the core is sealed or not initialized; 0 on a DR secondary that holds the key of its primary',
  ),
  'outpost.secrets.active': gauge(
    '1 while this server serves requests for secrets: it is unsealed, not a secondary and not fenced',
  ),
  'outpost.secrets.cores_in_region': gauge(
    'initialized secrets cores with different cluster IDs in the region, including this server; with `nats {}` only. More than 1 is a mistake',
  ),
  'outpost.secrets.requests': counter(
    'requests to the secrets core. `verb`: `read`, `write`, `list`, `scan`, `patch`, `delete`, `help`. `status`: its class, `2xx` to `5xx`. `mount`: the path of one of 100 mounts, `other` for all further and disabled mounts, `none` without a mount',
    'mount',
    'verb',
    'status',
  ),
  'outpost.quota.exceeded': counter(
    'requests that a rate-limit quota refused. `name`: one of 100 rules, `other` for all further and removed rules',
    'name',
  ),
  'outpost.tokens': gauge(
    'stored service tokens. They are counted while the core is unsealed; counting uses at most 1 % of the time',
  ),
  'outpost.leases': gauge('stored leases, counted in the same way as tokens'),
  'outpost.leases_irrevocable': gauge('leases whose revocation failed six times; the server keeps retrying'),
  'outpost.lease.revocations': counter('attempts to revoke leases: `revoked`, `failed`', 'result'),
  'outpost.secrets_login.ttl_seconds': gauge(
    'seconds until the token of the agent’s login expires, 0 without a login; absent for a token that does not expire',
  ),
  'outpost.secrets_login.failures': counter(
    'failed attempts of the agent: `login`, `renewal`, `file` (writing the token for programs of the host)',
    'step',
  ),
  'outpost.cloud.credentials': counter(
    'issued AWS credentials, including shared ones. `role`: one of 100 roles of a mount, `other` for all further roles',
    'mount',
    'role',
  ),
  'outpost.cloud.shared_sessions': counter(
    'issued credentials that were a shared session of an earlier request (`cache_ttl`)',
    'mount',
    'role',
  ),
  'outpost.cloud.failures': counter(
    'credentials that could not be issued. `kind`: `refused` by AWS or the role, `outside` if AWS throttles or does not respond, `limited` if a caller has too many in creation, `given_up`, `fault`',
    'mount',
    'role',
    'kind',
  ),
  'outpost.cloud.revocations': counter(
    'removals of users with their lease: `revoked`, `failed`',
    'mount',
    'role',
    'result',
  ),
  'outpost.audit.lines': counter('lines that an audit device has recorded since the core was unsealed', 'device'),
  'outpost.audit.failures': counter('lines that the device did not record', 'device'),
  'outpost.audit.chain.breaks': counter('changes of the device’s file by another program', 'device'),
  'outpost.audit.disk_full': gauge(
    '1 while the disk of the file of the device is full: lines use the reserve, then they fail',
    'device',
  ),
  'outpost.audit.files.lost': counter('files that were truncated to nothing or removed', 'device'),

  'outpost.store.commit_seconds': histogram(
    'duration of a transaction of the store with its disk sync; one transaction holds all commits that waited for it',
  ),
  'outpost.store.commits': counter('commits that became durable'),
  'outpost.store.failures': counter(
    'commits that were refused or failed: `full` (507: no space on the disk), `failed` (error of the disk), `busy` (more than 256 MiB are queued, or a restore is running), `displaced`, `fenced`, `replica` (this server is not the primary), `closed`. A commit that was queued behind a failed commit is counted with the reason of that commit',
    'reason',
  ),
  'outpost.store.bytes': gauge('size of the database with its write-ahead log'),
  'outpost.store.log_bytes': gauge('size of the log of changes in the database'),
  'outpost.store.disk_free_bytes': gauge('free space where the database is, at most 2 s old'),
  'outpost.store.displaced': gauge(
    '1 while writes are refused because a file of the database was moved, replaced or truncated while it was open, else 0',
  ),
  'outpost.store.foreign_changes': gauge(
    'entries found since the core was unsealed that another program changed, removed or put back: refused reads of such entries, and missing entries',
  ),
  'outpost.snapshot.last_success_timestamp_seconds': gauge(
    'time of the last complete snapshot, 0 for never; its age is `time()` minus this value. Kept across restarts, and the same on all servers of a highly available core; absent on a DR secondary, which saves no snapshots',
  ),
  'outpost.snapshot.scheduled.interval_seconds': gauge('configured interval of scheduled snapshots'),
  'outpost.snapshot.scheduled.last_success_timestamp_seconds': gauge(
    'time of the newest scheduled snapshot, 0 for none; only with `server { snapshot }`',
  ),
  'outpost.snapshot.scheduled.bytes': gauge('size of the last scheduled snapshot of this process'),
  'outpost.snapshot.scheduled.duration_seconds': gauge('duration of that snapshot with its verification'),
  'outpost.snapshot.scheduled.failures': counter('failed attempts to save a scheduled snapshot or to remove old ones'),

  'outpost.ha.active': gauge(
    '1 while this server is the active one; present only with `server { ha }` and while this server is unsealed, like all metrics of this table',
  ),
  'outpost.ha.has_active': gauge('1 while this server knows an active server, itself included'),
  'outpost.ha.lag_entries': gauge('rows of the log that this server is behind the active one'),
  'outpost.ha.unapplied_messages': gauge('messages of the commit stream that this server knows and has not applied'),
  'outpost.ha.members': gauge(
    'servers of the cluster: `active`, `standby`, `sealed`, `uninitialized`, `lost` (no report for 10 s). A server that was removed is not counted',
    'role',
  ),
  'outpost.ha.missing_replicas': gauge(
    'NATS servers that do not store the commit stream at present: the loss of another one stops the cluster; readiness names them',
  ),
  'outpost.ha.takeovers': counter('times that this server became active since its start'),
  'outpost.ha.trouble': gauge('1 while this server can neither serve nor take over; readiness has the reason'),

  'outpost.replication.role': gauge(
    '1 for the role of the cluster in replication for disaster recovery: `disabled`, `primary`, `secondary` or `fenced` (a primary that serves no requests; `outpost_replication_fence_reason` has the reason)',
    'role',
  ),
  'outpost.replication.connected': gauge(
    'secondaries that are connected to this primary; on a secondary 1 while it is connected to its primary',
  ),
  'outpost.replication.lag_entries': gauge(
    'changes that the slowest secondary has not acknowledged; on a secondary, changes of its primary that it has not applied',
  ),
  'outpost.replication.lag_seconds': gauge(
    'seconds since the slowest secondary, or this one, was last in sync; 0 while it is in sync. It grows while a secondary is disconnected, also without commits. Absent, like `lag_entries`, on a secondary that has received nothing from its primary since its start',
  ),
  'outpost.replication.expected': gauge(
    'secondaries that this primary expects: those that have joined and were not revoked',
  ),
  'outpost.replication.secondary_connected': gauge(
    '1 while this expected secondary is connected, else 0. A replaced primary has no series: it expects no secondary',
    'secondary',
  ),
  'outpost.replication.secondary_clock_skew_seconds': gauge(
    'clock of this secondary minus the clock of this primary',
    'secondary',
  ),
  'outpost.replication.secondary_lag_seconds': gauge('seconds since this secondary was last in sync', 'secondary'),
  'outpost.replication.sync_degraded': gauge(
    '1 while a primary with `sync = true` commits without a disconnected secondary, else 0',
  ),
  'outpost.replication.notice_owed': gauge(
    '1 while the primary that this one has replaced has not acknowledged the notice of the promotion and may serve stale data, else 0',
  ),
  'outpost.replication.fenced': gauge(
    '1 while this primary serves no requests, because another cluster was promoted or no secondary sent a message for `fence_after`',
  ),
  'outpost.replication.fence_reason': gauge(
    '1 for the reason of the fence: `isolated` (no message of a secondary for `fence_after`) or `replaced` (another cluster was promoted)',
    'reason',
  ),
  'outpost.replication.epoch': gauge('increases with each promotion'),
  'outpost.replication.unauthenticated': gauge(
    'connected secondaries without a valid proof of membership, such as sealed ones; synchronous commits do not wait for them',
  ),
  'outpost.replication.duplicate_connections': counter(
    'connections with the certificate of a secondary that was already connected: the key of its link may be stolen',
  ),
  'outpost.replication.rejected_proofs': counter('missing or invalid proofs of membership'),
} satisfies Record<string, MetricDoc>

export type MetricName = keyof typeof DOCS
export const METRIC_DOCS: Readonly<Record<MetricName, MetricDoc>> = DOCS
