/** Descriptions of the settings of the process: addresses, log, access control, TLS, limits, telemetry. */
import type { ProcessSettingPath, SettingDoc } from './setting-doc.ts'

export const PROCESS_SETTINGS: Readonly<Record<ProcessSettingPath, SettingDoc>> = {
  region: {
    about:
      'Region of the agents and servers of a cluster. It is part of the NATS subjects. Letters, digits, `-` and `_`.',
    default: '"global"',
    example: '"eu"',
    reload: false,
  },
  datacenter: {
    about: 'Datacenter of the host, shown in its node data.',
    default: '"dc1"',
    example: '"fra1"',
    reload: false,
  },
  name: { about: 'Name of the node.', defaultText: 'the host name', example: '"worker-17"', reload: false },
  data_dir: {
    about: 'Directory of state, allocations and, on a server, secrets. Required.',
    dev: 'a temporary directory',
    example: '"/var/lib/outpost"',
    reload: false,
  },
  bind_addr: {
    about: 'Address to listen on. An address beyond loopback without TLS logs a warning.',
    default: '"127.0.0.1"',
    example: '"0.0.0.0"',
    reload: false,
  },
  'ports.http': {
    about: 'Port of the HTTP API. 0 selects a free port; `<data_dir>/http.addr` contains the URL.',
    default: '4646',
    example: '8080',
    reload: false,
  },
  'ports.cluster': {
    about:
      'Port of a DR primary for its secondaries. It is not open without replication. 0 selects a free port; `<data_dir>/cluster.addr` contains the address.',
    default: '4647',
    example: '8081',
    reload: false,
  },
  'addresses.http': {
    about: 'Listen address of the HTTP API.',
    defaultText: '`bind_addr`',
    example: '"10.0.0.17"',
    reload: false,
  },
  'addresses.cluster': {
    about: 'Listen address of the cluster port.',
    defaultText: '`bind_addr`',
    example: '"10.0.0.17"',
    reload: false,
  },
  'advertise.http': {
    about: 'Address of the HTTP API for other hosts: host or host:port.',
    defaultText: 'the listen address',
    example: '"worker-17.example.com:4646"',
    reload: false,
  },
  'advertise.cluster': {
    about:
      'Address of the cluster port for other hosts: host or host:port. Activation tokens for DR secondaries contain it.',
    defaultText: 'the listen address',
    example: '"s1.example.com:4647"',
    reload: false,
  },
  api_addr: {
    about:
      'URL of the HTTP API of this server for clients and other servers, as in Vault. `sys/leader` shows the URL of the active server.',
    defaultText: 'the address of `advertise.http`',
    example: '"https://s1.example.com:4646"',
    reload: false,
  },
  log_level: {
    about: 'Minimum level of log lines.',
    default: '"info"',
    example: '"debug"',
    reload: true,
  },
  log_json: {
    about: 'Whether log lines and the line on standard output are JSON.',
    defaultText: 'plain text on a terminal, else JSON',
    example: 'true',
    reload: true,
  },
  log_paths: {
    about:
      'How paths in the access log show names that callers choose, such as those of secrets: `hashed` as an HMAC with a key of this process, `full` unchanged. Tokens are never logged.',
    default: '"hashed"',
    example: '"full"',
    reload: true,
  },
  log_file: {
    about: 'Path of the log file. A path that ends in `/` names a directory; the file in it is `outpost.log`.',
    defaultText: 'standard error',
    example: '"/var/log/outpost.log"',
    reload: true,
  },
  log_rotate_bytes: {
    about: 'Size in bytes at which the log file is rotated. 0 means no limit.',
    default: '0',
    example: '104857600',
    reload: true,
  },
  log_rotate_duration: {
    about: 'Age at which the log file is rotated.',
    default: '"24h"',
    example: '"168h"',
    reload: true,
  },
  log_rotate_max_files: {
    about: 'Number of rotated files that are kept. 0 keeps all, a negative number none.',
    default: '0',
    example: '14',
    reload: true,
  },
  enable_debug: {
    about: 'Accepted for compatibility with Nomad, without effect.',
    default: 'false',
    example: 'true',
    reload: false,
  },
  http_api_response_headers: {
    about: 'Additional headers of all HTTP responses.',
    example: '{ Strict-Transport-Security = "max-age=31536000" }',
    reload: false,
  },
  http_allowed_hosts: {
    about:
      'Additional names of this host, without a port. Without TLS, the `Host` header of a request on loopback must have a known name, so that a web page cannot use DNS rebinding. Known names are `localhost`, loopback addresses, `name`, `advertise.http` and `bind_addr`.',
    default: '[]',
    example: '["secrets.example.com"]',
    reload: true,
  },

  'acl.enabled': {
    about: 'Whether requests about hosts and allocations need a token. The secrets core always requires a token.',
    default: 'true',
    dev: 'false',
    example: 'false',
    reload: true,
  },
  'acl.token_ttl': {
    about:
      'How long an agent uses the cached policies of a token while no server responds. While a server responds, cached policies are at most 5 s old. The cache of a token ends with the token, and when the secrets core is sealed. `0s` disables the cache.',
    default: '"30s"',
    example: '"5m"',
    reload: true,
  },
  'acl.policy_ttl': {
    about: 'Accepted for compatibility with Nomad, without effect.',
    default: '"30s"',
    example: '"1m"',
    reload: true,
  },
  'acl.role_ttl': {
    about: 'Accepted for compatibility with Nomad, without effect.',
    default: '"30s"',
    example: '"1m"',
    reload: true,
  },
  'acl.anonymous.policy': {
    about: 'Policy of requests without a token, in HCL or JSON.',
    defaultText: 'no rights',
    example: '"node { policy = \\"read\\" }"',
    reload: true,
  },
  'acl.token.sha256': {
    about:
      'SHA-256 of the token, in hexadecimal: `printf %s "$TOKEN" | sha256sum`. The label of the block is the name of the token.',
    example: '"5c62e091b8c0565f1bafad0dad5934276143ae2ccef7a5381e8ada5b1a8d26d2"',
    reload: true,
  },
  'acl.token.policy': {
    about: 'Policy of the token, in HCL or JSON.',
    example: '"node { policy = \\"read\\" }"',
    reload: true,
  },

  'tls.http': {
    about: 'Serves HTTPS instead of HTTP. Requires `cert_file` and `key_file`.',
    default: 'false',
    example: 'true',
    reload: false,
  },
  'tls.cert_file': {
    about: 'PEM file of the certificate of this host, with intermediates. A reload reads the file again.',
    example: '"/etc/outpost/host.crt"',
    reload: true,
  },
  'tls.key_file': {
    about: 'PEM file of the key of the certificate. A reload reads the file again.',
    example: '"/etc/outpost/host.key"',
    reload: true,
  },
  'tls.ca_file': {
    about: 'PEM file of the CA certificates that verify client certificates.',
    example: '"/etc/outpost/ca.crt"',
    reload: true,
  },
  'tls.verify_https_client': {
    about: 'Refuses clients without a certificate of a CA in `ca_file`. Requires `http` and `ca_file`.',
    default: 'false',
    example: 'true',
    reload: true,
  },
  'tls.tls_min_version': {
    about: 'Minimum version of TLS.',
    default: '"tls12"',
    example: '"tls13"',
    reload: true,
  },

  'ui.enabled': {
    about: 'Serves the web interface at `/ui/`.',
    defaultText: '`true` on a loopback address or with TLS, else `false`',
    example: 'false',
    reload: false,
  },

  'limits.http_max_conns_per_client': {
    about:
      'Maximum number of open connections from one client address. 0 means no limit. At the limit, the connection that was idle longest is closed for a new one. If all have a request or a stream in progress, the new one is refused with 429.',
    default: '1024',
    example: '100',
    reload: true,
  },
  'limits.http_max_followers': {
    about: 'Maximum number of open follow streams of this agent. 0 means no limit.',
    default: '2000',
    example: '500',
    reload: true,
  },
  'limits.http_max_header_bytes': {
    about: 'Maximum size of the headers of a request, in bytes.',
    default: '16384',
    example: '32768',
    reload: false,
  },
  'limits.http_max_body_bytes': {
    about: 'Maximum size of the body of a request, in bytes.',
    default: '33554432',
    example: '1048576',
    reload: true,
  },
  'limits.http_head_timeout': {
    about: 'Maximum time from the first byte of a request to the end of its headers.',
    default: '"10s"',
    example: '"5s"',
    reload: true,
  },
  'limits.http_request_timeout': {
    about:
      'Maximum time for a whole request. It does not apply to streams, blocking queries, and restores of snapshots.',
    default: '"90s"',
    example: '"30s"',
    reload: true,
  },
  'limits.http_idle_timeout': {
    about: 'Time after which an idle connection is closed.',
    default: '"120s"',
    example: '"60s"',
    reload: true,
  },
  'limits.http_stall_timeout': {
    about: 'Time after which a connection is closed if the client does not read the response.',
    default: '"5m"',
    example: '"1m"',
    reload: true,
  },
  'limits.https_handshake_timeout': {
    about: 'Time for the TLS handshake.',
    default: '"5s"',
    example: '"10s"',
    reload: false,
  },

  'telemetry.collection_interval': {
    about: 'Sampling interval of the statistics of the host and its tasks.',
    default: '"1s"',
    example: '"10s"',
    reload: false,
  },
  'telemetry.prometheus_metrics': {
    about: 'Whether `/v1/metrics` offers the Prometheus format.',
    default: 'true',
    example: 'false',
    reload: false,
  },
  'telemetry.publish_node_metrics': {
    about: 'Whether metrics of the host are published.',
    default: 'true',
    example: 'false',
    reload: false,
  },
  'telemetry.publish_allocation_metrics': {
    about: 'Whether metrics of each running task are published.',
    default: 'true',
    example: 'false',
    reload: false,
  },
  'telemetry.disable_hostname': {
    about: 'Omits the label `host`.',
    default: 'false',
    example: 'true',
    reload: false,
  },
  'telemetry.prefix_filter': {
    about:
      'Prefixes of metrics to drop (`-PREFIX`) or keep (`+PREFIX`), with the dotted names of the JSON form. The longest matching prefix decides.',
    default: '[]',
    example: '["-outpost.secrets.requests"]',
    reload: false,
  },
  'telemetry.filter_default': {
    about: 'Whether metrics without a matching prefix are kept.',
    default: 'true',
    example: 'false',
    reload: false,
  },
}
