/** Where node metadata, the agent's self-description and health differ. */
import { VERSION } from './host.ts'
import type { Difference } from './judge.ts'
import { all, body, bodyOf, only, withLines, without } from './turns.ts'

const OWN = { 'outpost.arch': process.arch, 'outpost.os': process.platform, 'outpost.version': VERSION }

/** A view of metadata with our built-in keys in place of those of the recorded system. */
function withOwnKeys(text: string): string {
  const mark = text.indexOf(' ')
  const view: unknown = JSON.parse(text.slice(mark + 1))
  if (typeof view !== 'object' || view === null) return text
  const turned = Object.entries(view).map(([name, map]: [string, unknown]) => {
    if (typeof map !== 'object' || map === null || name === 'Dynamic') return [name, map] as const
    const kept = Object.entries({ ...map, ...OWN }).filter(([key]) => !key.startsWith('connect.'))
    return [name, Object.fromEntries(kept.sort(([a], [b]) => (a < b ? -1 : 1)))] as const
  })
  return `${text.slice(0, mark)} ${JSON.stringify(Object.fromEntries(turned))}`
}

/** Texts for bodies that cannot be taken, by the last part of the row's name. */
const BODY_TEXTS: Readonly<Record<string, string>> = {
  'not-json': 'json: the body is not valid JSON',
  array: 'json: the body must be an object, not array',
  'value-number': 'json: a value in Meta must be a string or null, not number',
  'value-bool': 'json: a value in Meta must be a string or null, not bool',
  'value-object': 'json: a value in Meta must be a string or null, not object',
  'meta-string': 'json: Meta must be an object of strings and nulls, not string',
}

const text = 'string'
const SELF = {
  config: {
    ACL: { Enabled: 'boolean' },
    Addresses: { HTTP: text },
    AdvertiseAddrs: { HTTP: text },
    BindAddr: text,
    Client: { AllocDir: text, Enabled: 'boolean', Meta: { rack: text, role: text } },
    DataDir: text,
    Datacenter: text,
    EnableDebug: 'boolean',
    Limits: { HTTPMaxConnsPerClient: 'number', HTTPMaxFollowers: 'number', HTTPSHandshakeTimeout: text },
    LogFile: text,
    LogLevel: text,
    LogRotateBytes: 'number',
    LogRotateDuration: text,
    LogRotateMaxFiles: 'number',
    NodeName: text,
    Ports: { HTTP: 'number', RPC: 'number' },
    Region: text,
    Server: { Enabled: 'boolean' },
    TLSConfig: { CAFile: text, CertFile: text, EnableHTTP: 'boolean', KeyFile: text, VerifyHTTPSClient: 'boolean' },
    Telemetry: {
      CollectionInterval: text,
      DisableHostname: 'boolean',
      FilterDefault: 'boolean',
      PrefixFilter: [],
      PrometheusMetrics: 'boolean',
      PublishAllocationMetrics: 'boolean',
      PublishNodeMetrics: 'boolean',
    },
    UI: { Enabled: 'boolean', ShowCLIHints: 'boolean' },
    Version: { Revision: text, Version: text, VersionMetadata: text, VersionPrerelease: text },
  },
  member: {
    Addr: null,
    DelegateCur: 'number',
    DelegateMax: 'number',
    DelegateMin: 'number',
    Name: text,
    Port: 'number',
    ProtocolCur: 'number',
    ProtocolMax: 'number',
    ProtocolMin: 'number',
    Status: text,
    Tags: { build: text },
  },
  stats: {
    client: { known_servers: text, node_id: text, num_allocations: text },
    runtime: {
      arch: text,
      cpu_count: text,
      'kernel.name': text,
      max_procs: text,
      pid: text,
      rss_bytes: text,
      uptime_seconds: text,
      version: text,
    },
  },
}

export const metadataDifferences: readonly Difference[] = [
  {
    because: 'Built-in metadata',
    rows: /^unary\/metadata\//,
    turn: only(({ status, body: view }) => status === 200 && view.includes('"Static"'), bodyOf(withOwnKeys)),
  },
  {
    because: 'Methods',
    rows: /^unary\/metadata\/(PUT|DELETE|HEAD|PATCH)$/,
    turn: all(without('vary: '), withLines('allow: GET, POST')),
  },
  {
    because: 'Different error texts',
    rows: /^unary\/metadata\/(not-json|array|value-(number|bool|object)|meta-string)$/,
    turn: bodyOf((_, row) => BODY_TEXTS[row.name.replace('unary/metadata/', '')] ?? ''),
  },
  {
    because: 'Information about the agent',
    rows: /^unary\/support\/self$/,
    turn: body(`compact ${JSON.stringify(SELF)}`),
  },
  {
    because: 'Information about the agent',
    rows: /^unary\/support\/health-(server|both)$/,
    turn: bodyOf((json) => json.replaceAll(/"ok":(\w+),"message":("[^"]*")/g, '"message":$2,"ok":$1')),
  },
]
