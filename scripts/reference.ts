/**
 * Writes the reference of the configuration and of the metrics from their descriptions in the sources.
 *
 *     npm run docs:reference           writes docs/reference/*.md
 *     npm run docs:reference -- -n     exits with 1 if a file differs from what would be written
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import type { SettingField, SettingFields } from '../src/config/fields.ts'
import type { SettingDoc } from '../src/config/reference/setting-doc.ts'
import { SETTING_DOCS } from '../src/config/reference/setting-docs.ts'
import { SCHEMA } from '../src/config/schema.ts'
import { METRIC_DOCS, type MetricDoc } from '../src/telemetry/metric-docs.ts'

const ROOT = resolve(import.meta.dirname, '..')
const GENERATED = 'Written by `npm run docs:reference`: change the descriptions in the sources instead.'

/** The settings of one table: those of a block without its inner blocks. */
interface SettingTable {
  /** Dotted name of the block; empty for the top level. */
  readonly block: string
  readonly rows: readonly string[]
}

interface Section {
  readonly heading: string
  readonly about: string
}

/** Headings of the blocks, in the order of the schema. A block without a heading stands below the one around it. */
const BLOCKS: Readonly<Record<string, Section>> = {
  '': { heading: 'Process', about: 'Settings outside of all blocks.' },
  ports: { heading: 'ports', about: 'TCP ports.' },
  addresses: { heading: 'addresses', about: 'Listen addresses of single ports.' },
  advertise: { heading: 'advertise', about: 'Addresses that other hosts connect to.' },
  acl: {
    heading: 'acl',
    about: 'Tokens and policies, see [Tokens and policies](../operating/access.md).',
  },
  tls: { heading: 'tls', about: 'TLS of the HTTP API, see [TLS](../operating/configuration.md#tls).' },
  limits: { heading: 'limits', about: 'Limits of the HTTP API.' },
  telemetry: { heading: 'telemetry', about: 'Metrics, see [Monitoring](../operating/monitoring.md).' },
  client: { heading: 'client', about: 'The agent: serves the allocations of this host.' },
  server: { heading: 'server', about: 'The server: knows all hosts, can have the secrets core.' },
  nats: {
    heading: 'nats',
    about:
      'The connection to other hosts, see [Set up a cluster](../operating/cluster.md). Set one of `credentials_file`, `nkey_file`, `user` with `password_file`, or `token_file`.',
  },
  secrets: {
    heading: 'secrets',
    about: 'The login of an agent, see [Agent login](../operating/programs.md#agent-login).',
  },
}

/** The settings of `seal "static"`, a block that the schema does not describe further. */
const STATIC_SEAL: readonly (readonly [name: string, about: string])[] = [
  ['current_key_id', 'Name of the key, stored with the data that it encrypts. Required.'],
  [
    'current_key',
    'The 32 bytes of the key: `credential://NAME` (systemd), `file:///PATH` (not readable by other users), `env://NAME`, or hexadecimal or base64 text. Required.',
  ],
  ['previous_key_id', 'Name of the previous key, for the first start with a new one.'],
  ['previous_key', 'The previous key, in the same forms.'],
  ['disabled', '`true`: the key is only for the migration to key shares (`operator unseal -migrate`).'],
]

function cell(text: string): string {
  return text.replaceAll('|', '\\|')
}

/** "a whole number from 0 to 65535" → "whole number from 0 to 65535". */
function typeOf(field: SettingField<unknown>): string {
  const plain = field.type.replace(/^an? /, '').replace(/ such as .*$/, '')
  return plain === 'true or false' ? 'boolean' : plain
}

function defaultOf(doc: SettingDoc): string {
  const value = doc.default === undefined ? (doc.defaultText ?? '') : `\`${doc.default}\``
  if (doc.dev === undefined) return value
  const dev = /^["\d]|^(?:true|false)$/.test(doc.dev) ? `\`${doc.dev}\`` : doc.dev
  return value === '' ? `with \`-dev\`: ${dev}` : `${value}; with \`-dev\`: ${dev}`
}

function settingRow(name: string, field: SettingField<unknown>, doc: SettingDoc): string {
  const columns = [`\`${name}\``, typeOf(field), defaultOf(doc), doc.reload ? 'yes' : 'no', doc.about]
  return `| ${columns.map(cell).join(' | ')} |`
}

function docOf(path: string): SettingDoc {
  const doc = Object.entries(SETTING_DOCS).find(([known]) => known === path)?.[1]
  if (!doc) throw new Error(`${path} has no description`)
  return doc
}

/** Rows of a block. The settings of inner blocks without a heading have the name of their block before them. */
function rowsOf(fields: SettingFields, path: string, shown: string): string[] {
  return Object.entries(fields).flatMap(([name, field]) => {
    const full = path === '' ? name : `${path}.${name}`
    if (full in BLOCKS) return []
    const short = shown === '' ? name : `${shown}.${name}`
    return field.inner ? rowsOf(field.inner, full, short) : [settingRow(short, field, docOf(full))]
  })
}

function settingTables(): SettingTable[] {
  const top = SCHEMA.inner ?? {}
  return Object.keys(BLOCKS).map((block) => {
    const fields = block === '' ? top : (top[block]?.inner ?? {})
    return { block, rows: rowsOf(fields, block, '') }
  })
}

function anchorOf(heading: string): string {
  return heading.toLowerCase().replaceAll(/[()]/g, '').replaceAll(' ', '-')
}

export function configurationReference(): string {
  const tables = settingTables()
  const headings = tables.map(({ block }) => BLOCKS[block]?.heading ?? block)
  const head = ['| setting | type | default | reload | meaning |', '|---|---|---|---|---|']
  const lines = [
    '# Configuration reference',
    '',
    `Every setting of the configuration. [Configure](../operating/configuration.md) explains how the files are read, and`,
    '[agent.hcl.example](../../agent.hcl.example) is a file with all of them.',
    '',
    GENERATED,
    '',
    ...headings.map((heading) => `- [${heading}](#${anchorOf(heading)})`),
    '',
    '**reload** is "yes" if SIGHUP or `systemctl reload` applies a change, and "no" if a change needs a restart. A *duration* is a',
    'text such as `"30s"` or `"1h30m"`, a *size* a text such as `"256MB"` in powers of 1024. Paths are absolute where the type says so.',
    'A setting of an inner block has the name of the block before it: `anonymous.policy` is `anonymous { policy = … }`.',
    ...tables.flatMap(({ block, rows }) => {
      const section = BLOCKS[block]
      const seal =
        block === 'server'
          ? [
              '',
              '`seal "static" { }` has these settings ([Unattended start](../operating/seal.md#unattended-start)):',
              '',
              '| setting | meaning |',
              '|---|---|',
              ...STATIC_SEAL.map(([name, about]) => `| \`${name}\` | ${cell(about)} |`),
            ]
          : []
      return ['', `## ${section?.heading ?? block}`, '', section?.about ?? '', '', ...head, ...rows, ...seal]
    }),
  ]
  return `${lines.join('\n')}\n`
}

/** Sections of the metrics, by the prefix of their dotted names. The first prefix that fits decides. */
const METRIC_SECTIONS: readonly (readonly [heading: string, prefixes: readonly string[]])[] = [
  ['Secrets', ['outpost.secrets.', 'outpost.quota.', 'outpost.tokens', 'outpost.lease', 'outpost.secrets_login.']],
  ['Engines', ['outpost.cloud.']],
  ['Audit', ['outpost.audit.']],
  ['Storage and snapshots', ['outpost.store.', 'outpost.snapshot.']],
  ['High availability', ['outpost.ha.']],
  ['Replication', ['outpost.replication.']],
  [
    'Cluster',
    ['outpost.nats.', 'outpost.calls_', 'outpost.forwarded_', 'outpost.node', 'outpost.allocations', 'outpost.roster_'],
  ],
  ['HTTP', ['outpost.http.', 'nomad.nomad.agent.http.']],
  ['Followers and allocations', ['outpost.follow', 'outpost.watched_', 'outpost.collections', 'outpost.alloc_dir.']],
  ['Host and tasks (names of Nomad)', ['nomad.client.']],
  ['Process', ['']],
]

/** The name of the text form. */
export function prometheusName(name: string, { kind }: MetricDoc): string {
  const plain = name.replaceAll('.', '_')
  return kind === 'counter' && !plain.endsWith('_total') ? `${plain}_total` : plain
}

function metricRow([name, doc]: readonly [string, MetricDoc]): string {
  const labels = (doc.labels ?? []).map((label) => `\`${label}\``).join(', ')
  return `| \`${prometheusName(name, doc)}\` | ${doc.kind} | ${labels} | ${cell(doc.about)} |`
}

export function metricsReference(): string {
  const head = ['| metric | kind | labels | meaning |', '|---|---|---|---|']
  const bySection = new Map<string, string[]>(METRIC_SECTIONS.map(([heading]) => [heading, []]))
  for (const entry of Object.entries(METRIC_DOCS)) {
    const [heading = ''] =
      METRIC_SECTIONS.find(([, prefixes]) => prefixes.some((prefix) => entry[0].startsWith(prefix))) ?? []
    bySection.get(heading)?.push(metricRow(entry))
  }
  const lines = [
    '# Metrics reference',
    '',
    'Every metric of `/v1/metrics`, by the name of the text form. [Monitoring](../operating/monitoring.md) describes the scrape and the',
    'alert rules.',
    '',
    GENERATED,
    '',
    ...METRIC_SECTIONS.map(([heading]) => `- [${heading}](#${anchorOf(heading)})`),
    '',
    'Counters start at zero with each start of the process. The JSON form has the same names with dots (`outpost.secrets.sealed`) and',
    'without `_total`. A metric without a meaning in a process is omitted: metrics of secrets without a core, metrics of NATS without',
    '`nats {}`, and metrics of nodes on an agent that is not a server.',
    '',
    'All metrics have the label `host`, unless `telemetry { disable_hostname = true }`. Those of the host (`nomad_client_…`, without',
    '`nomad_client_allocs_…`) also have `datacenter`, `node_class`, `node_id` and `node_pool`.',
    ...[...bySection].flatMap(([heading, rows]) => ['', `## ${heading}`, '', ...head, ...rows]),
  ]
  return `${lines.join('\n')}\n`
}

/** The generated files by their path. */
export const REFERENCES: Readonly<Record<string, () => string>> = {
  'docs/reference/configuration.md': configurationReference,
  'docs/reference/metrics.md': metricsReference,
}

function main(isDryRun: boolean): number {
  let stale = 0
  for (const [path, text] of Object.entries(REFERENCES)) {
    const file = join(ROOT, path)
    if (!isDryRun) {
      mkdirSync(dirname(file), { recursive: true })
      writeFileSync(file, text())
    } else if (readFileSync(file, 'utf8') !== text()) {
      process.stderr.write(`${path} is out of date: npm run docs:reference\n`)
      stale = 1
    }
  }
  return stale
}

if (import.meta.main) process.exitCode = main(process.argv.includes('-n'))
