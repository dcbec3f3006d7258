/**
 * Writes the Grafana dashboard `deploy/grafana/outpost.json`. The panels are the table below; each links to the section of the
 * documentation that explains it, and `${docs}` is a variable of the dashboard.
 *
 *     node scripts/dashboard.ts
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'

const FILE = join(import.meta.dirname, '../deploy/grafana/outpost.json')
const COLUMNS = 24
const SELECTION = 'job="outpost",instance=~"$instance"'

interface Panel {
  readonly title: string
  /** Grafana's unit, such as `s`, `bytes`, `reqps`. */
  readonly unit: string
  /** Queries with their legends. `{}` stands for the selected instances. */
  readonly queries: Readonly<Record<string, string>>
  /** Page and section below `docs/`. */
  readonly docs: string
  /** A number with a color instead of a graph: red below, or above, this value. */
  readonly stat?: { readonly below: number } | { readonly above: number }
}

interface Row {
  readonly title: string
  readonly panels: readonly Panel[]
}

const TROUBLESHOOTING = 'troubleshooting.md'
const METRICS = 'reference/metrics.md#metrics-reference'

const ROWS: readonly Row[] = [
  {
    title: 'Health',
    panels: [
      {
        title: 'Responding processes',
        unit: 'none',
        queries: { up: 'sum(up{})' },
        docs: `${TROUBLESHOOTING}#outpostdown`,
        stat: { below: 1 },
      },
      {
        title: 'Failing readiness checks',
        unit: 'none',
        queries: { failing: 'sum(1 - outpost_ready_check{})' },
        docs: `${TROUBLESHOOTING}#outpostnotready`,
        stat: { above: 1 },
      },
      {
        title: 'Sealed servers',
        unit: 'none',
        queries: { sealed: 'sum(outpost_secrets_sealed{})' },
        docs: `${TROUBLESHOOTING}#outpostsealed`,
        stat: { above: 1 },
      },
      {
        title: 'Fenced primaries',
        unit: 'none',
        queries: { fenced: 'sum(outpost_replication_fenced{})' },
        docs: `${TROUBLESHOOTING}#outpostfenced`,
        stat: { above: 1 },
      },
      {
        title: 'Nodes down',
        unit: 'none',
        queries: { down: 'max(outpost_nodes{status="down",})' },
        docs: `${TROUBLESHOOTING}#outpostnodesdown`,
        stat: { above: 1 },
      },
      {
        title: 'Days until the first certificate expires',
        unit: 'd',
        queries: { days: 'min(outpost_certificate_days_left{})' },
        docs: `${TROUBLESHOOTING}#outpostcertificateexpires`,
        stat: { below: 14 },
      },
      {
        title: 'Readiness checks',
        unit: 'none',
        queries: { '{{instance}} {{check}}': 'outpost_ready_check{}' },
        docs: METRICS,
      },
      { title: 'Nodes', unit: 'none', queries: { '{{status}}': 'max by (status) (outpost_nodes{})' }, docs: METRICS },
    ],
  },
  {
    title: 'HTTP',
    panels: [
      {
        title: 'Requests by status',
        unit: 'reqps',
        queries: { '{{status}}': 'sum by (status) (rate(outpost_http_requests_total{}[$__rate_interval]))' },
        docs: METRICS,
      },
      {
        title: 'Requests by operation',
        unit: 'reqps',
        queries: {
          '{{operation}}': 'topk(10, sum by (operation) (rate(outpost_http_requests_total{}[$__rate_interval])))',
        },
        docs: METRICS,
      },
      {
        title: 'Duration, 99th percentile',
        unit: 's',
        queries: {
          '{{operation}}':
            'topk(10, histogram_quantile(0.99, sum by (operation, le) (rate(outpost_http_request_duration_seconds_bucket{}[$__rate_interval]))))',
        },
        docs: METRICS,
      },
      {
        title: 'Sent bytes',
        unit: 'Bps',
        queries: {
          '{{operation}}': 'topk(10, sum by (operation) (rate(outpost_http_sent_bytes_total{}[$__rate_interval])))',
        },
        docs: METRICS,
      },
      {
        title: 'Requests in progress',
        unit: 'none',
        queries: { '{{operation}}': 'sum by (operation) (outpost_http_requests_underway{})' },
        docs: METRICS,
      },
      {
        title: 'Connections',
        unit: 'none',
        queries: {
          '{{instance}} open': 'nomad_nomad_agent_http_connections{}',
          '{{instance}} refused/s': 'rate(nomad_nomad_agent_http_exceeded_total{}[$__rate_interval])',
        },
        docs: `${TROUBLESHOOTING}#outpostconnectionsrefused`,
      },
    ],
  },
  {
    title: 'Logs and files',
    panels: [
      { title: 'Followers', unit: 'none', queries: { '{{instance}} {{kind}}': 'outpost_followers{}' }, docs: METRICS },
      {
        title: 'Slowest follower, unsent bytes',
        unit: 'bytes',
        queries: { '{{instance}} {{kind}}': 'outpost_follower_lag_max_bytes{}' },
        docs: `${TROUBLESHOOTING}#outpostfollowersslow`,
      },
      {
        title: 'Watched directories',
        unit: 'none',
        queries: { '{{instance}} {{mode}}': 'outpost_watched_directories{}' },
        docs: `${TROUBLESHOOTING}#outpostwatchesexhausted`,
      },
      {
        title: 'Collected allocations',
        unit: 'none',
        queries: { '{{instance}} {{result}}': 'increase(outpost_collections_total{}[$__rate_interval])' },
        docs: `${TROUBLESHOOTING}#outpostcollectionsfail`,
      },
    ],
  },
  {
    title: 'Secrets',
    panels: [
      {
        title: 'Requests by mount',
        unit: 'reqps',
        queries: {
          '{{mount}} {{verb}}':
            'topk(10, sum by (mount, verb) (rate(outpost_secrets_requests_total{}[$__rate_interval])))',
        },
        docs: METRICS,
      },
      {
        title: 'Failed requests',
        unit: 'reqps',
        queries: {
          '{{mount}} {{status}}':
            'sum by (mount, status) (rate(outpost_secrets_requests_total{status=~"4xx|5xx",}[$__rate_interval]))',
        },
        docs: METRICS,
      },
      {
        title: 'Tokens and leases',
        unit: 'none',
        queries: {
          '{{instance}} tokens': 'outpost_tokens{}',
          '{{instance}} leases': 'outpost_leases{}',
          '{{instance}} irrevocable': 'outpost_leases_irrevocable{}',
        },
        docs: `${TROUBLESHOOTING}#outpostleasesirrevocable`,
      },
      {
        title: 'Lease revocations',
        unit: 'none',
        queries: { '{{instance}} {{result}}': 'increase(outpost_lease_revocations_total{}[$__rate_interval])' },
        docs: METRICS,
      },
      {
        title: 'Audit lines',
        unit: 'none',
        queries: {
          '{{instance}} {{device}}': 'rate(outpost_audit_lines_total{}[$__rate_interval])',
          '{{instance}} {{device}} failed': 'rate(outpost_audit_failures_total{}[$__rate_interval])',
        },
        docs: `${TROUBLESHOOTING}#outpostauditfailures`,
      },
      {
        title: 'AWS credentials',
        unit: 'none',
        queries: {
          '{{mount}} {{role}}': 'increase(outpost_cloud_credentials_total{}[$__rate_interval])',
          '{{mount}} {{role}} {{kind}}': 'increase(outpost_cloud_failures_total{}[$__rate_interval])',
        },
        docs: METRICS,
      },
    ],
  },
  {
    title: 'Storage',
    panels: [
      {
        title: 'Commit duration',
        unit: 's',
        queries: {
          median:
            'histogram_quantile(0.5, sum by (le) (rate(outpost_store_commit_seconds_bucket{}[$__rate_interval])))',
          '99th percentile':
            'histogram_quantile(0.99, sum by (le) (rate(outpost_store_commit_seconds_bucket{}[$__rate_interval])))',
        },
        docs: `${TROUBLESHOOTING}#outpostcommitsslow`,
      },
      {
        title: 'Commits',
        unit: 'ops',
        queries: {
          '{{instance}}': 'rate(outpost_store_commits_total{}[$__rate_interval])',
          '{{instance}} failed': 'rate(outpost_store_failures_total{}[$__rate_interval])',
        },
        docs: `${TROUBLESHOOTING}#outpoststorefailures`,
      },
      {
        title: 'Size and free space',
        unit: 'bytes',
        queries: {
          '{{instance}} database': 'outpost_store_bytes{}',
          '{{instance}} log': 'outpost_store_log_bytes{}',
          '{{instance}} free': 'outpost_store_disk_free_bytes{}',
        },
        docs: `${TROUBLESHOOTING}#outpostdiskspacelow`,
      },
      {
        title: 'Age of the last snapshot',
        unit: 's',
        queries: {
          '{{instance}}': 'time() - outpost_snapshot_last_success_timestamp_seconds{}',
          '{{instance}} scheduled': 'time() - outpost_snapshot_scheduled_last_success_timestamp_seconds{}',
        },
        docs: `${TROUBLESHOOTING}#outpostscheduledsnapshotmissing`,
      },
    ],
  },
  {
    title: 'Disaster recovery',
    panels: [
      {
        title: 'Lag',
        unit: 's',
        queries: {
          '{{instance}}': 'outpost_replication_lag_seconds{}',
          '{{secondary}}': 'outpost_replication_secondary_lag_seconds{}',
        },
        docs: `${TROUBLESHOOTING}#outpostreplicationlag`,
      },
      {
        title: 'Secondaries, expected and connected',
        unit: 'none',
        queries: {
          '{{instance}} expected': 'outpost_replication_expected{}',
          '{{instance}} connected': 'outpost_replication_connected{}',
        },
        docs: `${TROUBLESHOOTING}#outpostsecondarydisconnected`,
      },
      {
        title: 'Role',
        unit: 'none',
        queries: { '{{instance}} {{role}}': 'outpost_replication_role{} == 1' },
        docs: METRICS,
      },
      {
        title: 'Synchronous commits degraded',
        unit: 'none',
        queries: { '{{instance}}': 'outpost_replication_sync_degraded{}' },
        docs: `${TROUBLESHOOTING}#outpostsyncdegraded`,
      },
    ],
  },
  {
    title: 'Cluster',
    panels: [
      {
        title: 'Connected to NATS',
        unit: 'none',
        queries: { '{{instance}}': 'outpost_nats_connected{}' },
        docs: `${TROUBLESHOOTING}#outpostnatsdisconnected`,
      },
      {
        title: 'Calls in progress',
        unit: 'none',
        queries: { '{{instance}} {{direction}}': 'outpost_calls_in_flight{}' },
        docs: METRICS,
      },
      {
        title: 'Forwarded bytes',
        unit: 'Bps',
        queries: { '{{instance}}': 'rate(outpost_forwarded_bytes_total{}[$__rate_interval])' },
        docs: METRICS,
      },
      {
        title: 'Largest clock skews',
        unit: 's',
        queries: { '{{name}}': 'topk(5, abs(outpost_node_clock_skew_seconds{}))' },
        docs: `${TROUBLESHOOTING}#outpostclockskew`,
      },
      {
        title: 'Rejected node messages',
        unit: 'none',
        queries: { '{{reason}}': 'increase(outpost_roster_refused_total{}[$__rate_interval])' },
        docs: `${TROUBLESHOOTING}#outpostnodekeyrefused`,
      },
    ],
  },
  {
    title: 'Process',
    panels: [
      {
        title: 'CPU',
        unit: 'percentunit',
        queries: { '{{instance}}': 'rate(process_cpu_seconds_total{}[$__rate_interval])' },
        docs: METRICS,
      },
      {
        title: 'Memory',
        unit: 'bytes',
        queries: {
          '{{instance}}': 'process_resident_memory_bytes{}',
          '{{instance}} heap': 'outpost_memory_bytes{kind="heap_used",}',
        },
        docs: METRICS,
      },
      {
        title: 'Event loop, largest delay',
        unit: 's',
        queries: { '{{instance}}': 'outpost_event_loop_delay_max_seconds{}' },
        docs: `${TROUBLESHOOTING}#outposteventloopblocked`,
      },
      {
        title: 'File descriptors',
        unit: 'percentunit',
        queries: { '{{instance}}': 'process_open_fds{} / process_max_fds{}' },
        docs: `${TROUBLESHOOTING}#outpostdescriptorslow`,
      },
    ],
  },
]

function panelsOf(): object[] {
  const panels: object[] = []
  let y = 0
  for (const row of ROWS) {
    panels.push({ type: 'row', title: row.title, gridPos: { x: 0, y: y++, w: COLUMNS, h: 1 } })
    let x = 0
    let rowHeight = 0
    for (const panel of row.panels) {
      const [w, h] = panel.stat ? [4, 4] : [8, 7]
      if (x + w > COLUMNS) {
        x = 0
        y += rowHeight
      }
      rowHeight = h
      panels.push(panelOf(panel, { x, y, w, h }))
      x += w
    }
    y += rowHeight
  }
  return panels.map((panel, index) => ({ id: index + 1, ...panel }))
}

function panelOf({ docs, queries, stat, title, unit }: Panel, gridPos: object): object {
  return {
    type: stat ? 'stat' : 'timeseries',
    title,
    gridPos,
    datasource: { type: 'prometheus', uid: '${datasource}' },
    links: [{ title: 'Documentation', url: `\${docs}/${docs}`, targetBlank: true }],
    fieldConfig: {
      defaults: { unit, ...(stat ? statDefaults(stat) : { custom: { fillOpacity: 8, showPoints: 'never' } }) },
      overrides: [],
    },
    targets: Object.entries(queries).map(([legendFormat, query], index) => ({
      refId: String.fromCodePoint(65 + index),
      expr: query.replaceAll(/\{([^{}]*)\}/g, `{$1${SELECTION}}`),
      legendFormat,
    })),
  }
}

function statDefaults(stat: NonNullable<Panel['stat']>): object {
  const steps =
    'below' in stat
      ? [
          { color: 'red', value: null },
          { color: 'green', value: stat.below },
        ]
      : [
          { color: 'green', value: null },
          { color: 'red', value: stat.above },
        ]
  return { noValue: '0', thresholds: { mode: 'absolute', steps } }
}

/** The text of the dashboard's file. */
export function dashboardText(): string {
  const variables = [
    { name: 'datasource', label: 'Data source', type: 'datasource', query: 'prometheus' },
    {
      name: 'instance',
      label: 'Instance',
      type: 'query',
      datasource: { type: 'prometheus', uid: '${datasource}' },
      query: 'label_values(outpost_ready, instance)',
      refresh: 2,
      multi: true,
      includeAll: true,
      allValue: '.*',
      current: { text: 'All', value: '$__all' },
    },
    {
      name: 'docs',
      label: 'Documentation',
      type: 'textbox',
      query: 'file:///opt/outpost/docs',
      current: { text: 'file:///opt/outpost/docs', value: 'file:///opt/outpost/docs' },
    },
  ]
  const dashboard = {
    title: 'outpost',
    uid: 'outpost',
    tags: ['outpost'],
    schemaVersion: 39,
    editable: true,
    refresh: '30s',
    time: { from: 'now-3h', to: 'now' },
    templating: { list: variables },
    annotations: {
      list: [
        {
          name: 'Alerts',
          datasource: { type: 'prometheus', uid: '${datasource}' },
          enable: true,
          expr: 'ALERTS{alertname=~"Outpost.*",alertstate="firing"}',
          titleFormat: '{{alertname}}',
          textFormat: '{{instance}}',
          iconColor: 'red',
        },
      ],
    },
    panels: panelsOf(),
  }
  return `${JSON.stringify(dashboard, undefined, 2)}\n`
}

if (import.meta.main) writeFileSync(FILE, dashboardText())
