/** Descriptions of the settings of the roles and of their connections: `client`, `server`, `nats`, `secrets`. */
import type { RoleSettingPath, SettingDoc } from './setting-doc.ts'

export const ROLE_SETTINGS: Readonly<Record<RoleSettingPath, SettingDoc>> = {
  'client.enabled': {
    about: 'Runs an agent, which serves the allocations of this host. Enable `client`, `server` or both.',
    default: 'false',
    dev: 'true',
    example: 'true',
    reload: false,
  },
  'client.node_id': {
    about: 'Node ID, a UUID.',
    defaultText: 'generated at the first start and stored in `state_dir`',
    example: '"6f1c0e5a-7f0b-4c0e-9d5c-2f3b8a4d1e77"',
    reload: false,
  },
  'client.alloc_dir': {
    about: 'Directory of the allocations.',
    defaultText: '`<data_dir>/alloc`',
    example: '"/srv/alloc"',
    reload: false,
  },
  'client.state_dir': {
    about: 'Directory of the state of the agent: node ID, node key, dynamic metadata.',
    defaultText: '`<data_dir>/client`',
    example: '"/srv/client"',
    reload: false,
  },
  'client.node_class': {
    about: 'Class of the node, shown in its node data.',
    default: '""',
    example: '"batch"',
    reload: false,
  },
  'client.node_pool': {
    about: 'Pool of the node, shown in its node data.',
    default: '"default"',
    example: '"gpu"',
    reload: false,
  },
  'client.meta': {
    about: 'Metadata of the node. Keys may contain dots. `outpost node meta apply` changes it at run time.',
    example: '{ rack = "r1" }',
    reload: false,
  },
  'client.gc_interval': {
    about: 'Interval of garbage collection.',
    default: '"1m"',
    dev: '"10m"',
    example: '"5m"',
    reload: false,
  },
  'client.gc_disk_usage_threshold': {
    about: 'Disk usage in percent above which ended allocations are garbage-collected.',
    default: '80',
    dev: '99',
    example: '90',
    reload: false,
  },
  'client.gc_inode_usage_threshold': {
    about: 'Inode usage in percent above which ended allocations are garbage-collected.',
    default: '70',
    dev: '99',
    example: '90',
    reload: false,
  },
  'client.gc_max_allocs': {
    about: 'Number of allocations, including running ones, above which ended allocations are garbage-collected.',
    default: '50',
    example: '200',
    reload: false,
  },
  'client.gc_parallel_destroys': {
    about: 'Number of allocations that are removed at the same time. At least 1.',
    default: '2',
    example: '4',
    reload: false,
  },

  'server.enabled': {
    about: 'Runs a server, which knows all hosts and can have the secrets core.',
    default: 'false',
    dev: 'true',
    example: 'true',
    reload: false,
  },
  'server.storage_path': {
    about: 'File of the secrets database.',
    defaultText: '`<data_dir>/server/secrets.db`',
    example: '"/srv/secrets.db"',
    reload: false,
  },
  'server.secrets': {
    about:
      'Whether this server has the secrets core. A region has one core. Set false on the other servers, which forward requests for secrets to it.',
    default: 'true',
    example: 'false',
    reload: false,
  },
  'server.seal': {
    about:
      'The label is `shamir` (operators unseal with key shares) or `static` (the server unseals itself with a key on this machine). A static seal has the settings below.',
    defaultText: '`seal "shamir" { }`',
    example: '"static" { current_key_id = "2026-11"  current_key = "credential://unseal" }',
    reload: false,
  },
  'server.audit_dirs': {
    about:
      'Directories for the files of audit devices. Audit lines contain text of callers: use these directories for nothing else.',
    defaultText: '`["<data_dir>/audit", "/var/log/outpost"]`',
    example: '["/srv/audit"]',
    reload: false,
  },
  'server.disable_unauthed_rekey_endpoints': {
    about:
      'Whether `sys/rekey/` requires a token with `sudo`. If false, every client can start and cancel attempts; completing one requires the key shares.',
    default: 'true',
    dev: 'false',
    example: 'false',
    reload: true,
  },
  'server.disable_unauthed_generate_root_endpoints': {
    about: 'Whether `sys/generate-root/` requires a token with `sudo`. Set it to false if the root token was lost.',
    default: 'true',
    dev: 'false',
    example: 'false',
    reload: true,
  },
  'server.replication.sync': {
    about:
      'Commits of a DR primary wait for its secondaries. If a secondary does not acknowledge within `sync_timeout`, commits continue without it, and status, health and metrics report `degraded` until it has caught up.',
    default: 'false',
    example: 'true',
    reload: false,
  },
  'server.replication.sync_timeout': {
    about: 'Longest time that a commit waits for a secondary.',
    default: '"5s"',
    example: '"2s"',
    reload: false,
  },
  'server.replication.fence_after': {
    about:
      'A DR primary that has received no message of a secondary for this time refuses requests (fenced). `0s` means never.',
    default: '"0s"',
    example: '"30s"',
    reload: false,
  },
  'server.replication.logshipper_buffer_length': {
    about: 'Maximum number of unacknowledged log rows in flight to a secondary.',
    default: '65536',
    example: '16384',
    reload: false,
  },
  'server.replication.logshipper_buffer_size': {
    about: 'Maximum number of unacknowledged log bytes in flight to a secondary.',
    default: '"256MB"',
    example: '"64MB"',
    reload: false,
  },
  'server.replication.bandwidth_limit': {
    about: 'Bytes per second to all secondaries together. `0` means no limit.',
    default: '"0"',
    example: '"10MB"',
    reload: false,
  },
  'server.ha.enabled': {
    about:
      'Enables high availability. All servers with this block share one secrets core, and one of them is active. Requires `nats` with JetStream and `sync_interval: always`. Initialize one server, and unseal all with its key shares.',
    default: 'false',
    example: 'true',
    reload: false,
  },
  'server.ha.replicas': {
    about:
      'Number of replicas of the commit stream: 1, 3 or 5, and not more than there are NATS servers. 3 tolerates the loss of one NATS server. Set the same value on each server.',
    default: '3',
    example: '5',
    reload: false,
  },
  'server.snapshot.interval': {
    about: 'Interval of scheduled snapshots, at least `1m`. Without the block `snapshot`, none are saved.',
    default: '"24h"',
    example: '"6h"',
    reload: false,
  },
  'server.snapshot.keep': {
    about: 'Number of scheduled snapshots that are kept; older ones are removed.',
    default: '7',
    example: '28',
    reload: false,
  },
  'server.snapshot.path': {
    about: 'Absolute directory of scheduled snapshots, or `s3://BUCKET/PREFIX`. Required in the block.',
    defaultText: 'none',
    example: '"/var/backups/outpost"',
    reload: false,
  },
  'server.snapshot.region': {
    about: 'Region of the bucket, for a `path` with `s3://`.',
    defaultText: "that of the AWS SDK's environment",
    example: '"eu-central-1"',
    reload: false,
  },
  'server.snapshot.endpoint': {
    about: 'URL of an S3-compatible store other than AWS, for a `path` with `s3://`.',
    defaultText: 'AWS',
    example: '"https://minio.example.com"',
    reload: false,
  },

  'nats.servers': {
    about:
      'URLs of NATS servers; one of them is enough. `tls://` requires TLS, as `ca_file` does. Without a `nats` block the process has no connection to other hosts.',
    default: '["nats://127.0.0.1:4222"]',
    example: '["tls://10.0.0.1:4222", "tls://10.0.0.2:4222"]',
    reload: false,
  },
  'nats.credentials_file': {
    about: 'Authentication with a credentials file. The files of this block are read at each attempt to connect.',
    example: '"/etc/outpost/agent.creds"',
    reload: false,
  },
  'nats.nkey_file': {
    about: 'Authentication with the seed of an NKEY. `outpost cluster keys` generates it.',
    example: '"/etc/outpost/cluster.nk"',
    reload: false,
  },
  'nats.user': {
    about: 'Authentication with a user name. Requires `password_file`.',
    example: '"outpost"',
    reload: false,
  },
  'nats.password_file': {
    about: 'File with the password of `user`.',
    example: '"/etc/outpost/nats.password"',
    reload: false,
  },
  'nats.token_file': {
    about: 'Authentication with the token in a file.',
    example: '"/etc/outpost/nats.token"',
    reload: false,
  },
  'nats.ca_file': {
    about: 'PEM file of the CA certificates of the NATS servers.',
    defaultText: 'the CA certificates of the system',
    example: '"/etc/outpost/nats-ca.crt"',
    reload: false,
  },
  'nats.cert_file': {
    about: 'PEM file of a client certificate for NATS. Requires `key_file`.',
    example: '"/etc/outpost/nats.crt"',
    reload: false,
  },
  'nats.key_file': {
    about: 'PEM file of the key of the client certificate. Requires `cert_file`.',
    example: '"/etc/outpost/nats.key"',
    reload: false,
  },
  'nats.server_keys': {
    about: 'Public keys of all servers. Messages signed with other keys are refused. `outpost cluster keys` writes it.',
    defaultText: 'the keys that are announced on the subject on which only servers may publish',
    example: '["UBTKRORWXFSSLTVAAU63E5OYNJTNQXOUJNQ6QWBCWWZFQLXFUELQMTBM"]',
    reload: true,
  },
  'nats.core_keys': {
    about: 'Public keys of the servers that have the secrets core, a part of `server_keys`.',
    defaultText: 'every server that announces a secrets core',
    example: '["UBTKRORWXFSSLTVAAU63E5OYNJTNQXOUJNQ6QWBCWWZFQLXFUELQMTBM"]',
    reload: true,
  },

  'secrets.role_id': {
    about:
      'Role ID of the agent. With a `secrets` block the agent logs in with AppRole and stores its token for programs of this host in `<state_dir>/secrets-login.json`, from which `outpost exec` reads it. Set `role_id` or `role_id_file`.',
    example: '"0e2c3c5c-6c4f-4b0f-9a3d-6f0f8f6d9a11"',
    reload: true,
  },
  'secrets.role_id_file': { about: 'File with the role ID.', example: '"/etc/outpost/role-id"', reload: true },
  'secrets.secret_id_file': {
    about: 'File with the secret ID (0600), owned by the user of the agent or by root. It is read at each login.',
    example: '"/etc/outpost/secret-id"',
    reload: true,
  },
  'secrets.secret_id_response_wrapping_path': {
    about:
      'If the file contains a wrapping token: the path of the request that created it. Wrapping tokens of other paths are refused.',
    example: '"auth/approle/role/web/secret-id"',
    reload: true,
  },
  'secrets.mount': {
    about: 'Path of the AppRole auth method.',
    default: '"approle"',
    example: '"teams/approle"',
    reload: true,
  },
  'secrets.address': {
    about: 'URL of the server. Required for an agent without NATS, and for a role that is bound to client addresses.',
    defaultText: 'any server, over NATS',
    example: '"https://10.0.0.1:4646"',
    reload: true,
  },
  'secrets.ca_file': {
    about: 'PEM file of the CA certificates of the server.',
    defaultText: 'the CA certificates of the system',
    example: '"/etc/outpost/ca.crt"',
    reload: true,
  },
  'secrets.cert_file': {
    about: 'PEM file of a client certificate for the server. Requires `key_file`.',
    example: '"/etc/outpost/host.crt"',
    reload: true,
  },
  'secrets.key_file': {
    about: 'PEM file of the key of the client certificate. Requires `cert_file`.',
    example: '"/etc/outpost/host.key"',
    reload: true,
  },
}
