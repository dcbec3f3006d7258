/**
 * The tables of docs/troubleshooting/. Each error in it is provoked by a test that checks its text; this one keeps
 * document, program and tests together: a row without a test, a test without the text, a text that nothing prints fail.
 */
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { test } from 'node:test'

const ROOT = resolve(import.meta.dirname, '../..')

interface Proof {
  /** What an operator reads: part of the row, of the test and of the program. */
  readonly says: string
  /** The test that provokes it and asserts it, below test/. */
  readonly in: string
  /** Who prints it, where that is another program. */
  readonly by?: 'systemd' | 'NATS' | 'Node.js'
  /** Why it is provoked below the level of a whole process. */
  readonly lower?: string
}

const OWN_CLOCK =
  'two processes of one host have one clock: the real parts over a real NATS, with a clock of its own for the host'
const REAL_LINK =
  'limits and times that a process takes from its configuration are short: real stores over the real link'
const OWN_BUS = 'a process sends no such call by itself: the real parts over a real NATS'

/** The pages of docs/troubleshooting/, in the order of PROOFS. */
const PAGES = ['hosts', 'service', 'cluster', 'storage', 'replication']

/** In the order of the pages and their tables. */
const PROOFS: readonly Proof[] = [
  { says: 'inotify watch limit reached, polling instead', in: 'system/tail-survives.test.ts' },
  { says: 'this agent already serves', in: 'system/three-am-agent.test.ts' },
  { says: 'allocation unreadable', in: 'system/three-am-agent.test.ts' },
  { says: 'allocation not eligible for GC', in: 'system/three-am-agent.test.ts' },
  { says: 'a file system is mounted on', in: 'host/gc/gc.test.ts', lower: 'a real mount, and the real collector' },
  { says: 'no data for 5 s', in: 'cli/commands/logs.test.ts' },
  { says: 'cannot write the node state', in: 'system/three-am-agent.test.ts' },
  { says: 'node claimed an allocation of another node', in: 'attacks/stolen-allocation.test.ts' },
  { says: 'too many concurrent connections', in: 'system/limits.test.ts' },
  {
    says: 'rate limit quota exceeded',
    in: 'secrets/quotas/quotas.test.ts',
    lower: 'the real core, asked as the HTTP room asks it',
  },
  { says: 'is not served on this loopback address', in: 'attacks/foreign-page.test.ts' },
  { says: 'web pages of other origins must not make changes', in: 'attacks/foreign-page.test.ts' },
  {
    says: 'this server is a DR secondary and cannot verify tokens of its primary',
    in: 'system/secrets-cores.test.ts',
  },
  { says: 'Permission denied', in: 'system/access.test.ts' },
  { says: 'cannot be used', in: 'system/agent-login.test.ts' },
  { says: 'invalid role or secret ID', in: 'system/agent-login.test.ts' },
  { says: 'the server is sealed', in: 'system/agent-login.test.ts' },
  {
    says: 'has expired or was already used',
    in: 'login/session.test.ts',
    lower: 'the real login and the real core, without an agent around them',
  },
  { says: 'state.json', in: 'attacks/failed-start.test.ts' },
  { says: 'status=78/CONFIG', in: 'system/service.test.ts', by: 'systemd' },
  { says: 'status=217/USER', in: 'system/service.test.ts', by: 'systemd' },
  { says: 'status=226/NAMESPACE', in: 'system/service.test.ts', by: 'systemd' },
  { says: 'status=243/CREDENTIALS', in: 'system/service.test.ts', by: 'systemd' },
  { says: 'another agent', in: 'attacks/failed-start.test.ts' },
  { says: 'contains no certificate', in: 'system/tls.test.ts' },
  { says: 'cannot be read', in: 'system/service.test.ts' },
  { says: 'Watchdog timeout', in: 'system/service.test.ts', by: 'systemd' },
  { says: 'this process cannot reach its own address', in: 'system/notify.test.ts' },
  { says: 'cannot be opened: permission denied', in: 'attacks/foreign-owner.test.ts' },
  { says: 'storage is accessible only through a capability of this process', in: 'attacks/foreign-owner.test.ts' },
  { says: 'no space left on the disk of', in: 'attacks/full-disk.test.ts' },
  {
    says: 'disk of an audit file is full, lines use the reserve',
    in: 'attacks/full-audit-disk.test.ts',
    lower: 'the real core and devices on a full disk',
  },
  {
    says: 'no audit device has recorded the request',
    in: 'attacks/full-audit-disk.test.ts',
    lower: 'the real core and devices on a full disk',
  },
  {
    says: 'accepted no data for',
    in: 'secrets/audit/frozen-receiver.test.ts',
    lower: 'the real core and a frozen process as the receiver',
  },
  {
    says: 'no space left on the disk for the roster database, keeping it in memory',
    in: 'storage/store/roster-store.test.ts',
    lower: 'the real database on a full disk',
  },
  {
    says: 'cannot connect to NATS, retrying',
    in: 'cluster/nats/nats-login.test.ts',
    lower: 'the real link to a real NATS',
  },
  { says: 'not connected to NATS, try again', in: 'system/cluster-faults.test.ts' },
  { says: 'No path to node', in: 'system/cluster-faults.test.ts' },
  { says: 'Unknown node', in: 'system/cluster-same.test.ts' },
  { says: 'the node does not respond', in: 'system/cluster-faults.test.ts' },
  { says: 'does not respond', in: 'system/secrets-cores.test.ts' },
  { says: 'disconnected', in: 'attacks/nats-away.test.ts' },
  { says: 'duplicate node ID', in: 'system/cluster-faults.test.ts' },
  { says: 'NATS server denied permission', in: 'system/three-am-agent.test.ts' },
  { says: 'Publish Violation', in: 'system/three-am-agent.test.ts', by: 'NATS' },
  { says: 'Synchronize both clocks', in: 'attacks/replayed-assertion.test.ts', lower: OWN_CLOCK },
  { says: 'accepts only calls with the assertion of a server', in: 'attacks/stolen-worker-key.test.ts' },
  { says: 'key that is not in nats.server_keys', in: 'attacks/replayed-assertion.test.ts', lower: OWN_BUS },
  { says: 'several secrets cores in the region', in: 'system/secrets-cores.test.ts' },
  { says: 'has an initialized secrets core', in: 'system/secrets-cores.test.ts' },
  { says: 'not connected to NATS, so this server cannot check', in: 'system/secrets-cores.test.ts' },
  { says: 'no server is connected', in: 'system/three-am-agent.test.ts' },
  { says: 'key is not in nats.server_keys', in: 'attacks/agent-asks-core.test.ts' },
  { says: 'sealed call refused', in: 'attacks/agent-asks-core.test.ts' },
  { says: 'no server responded to the request about this token', in: 'system/three-am-agent.test.ts' },
  { says: 'node state exceeds the message size', in: 'system/three-am-agent.test.ts' },
  { says: 'needs a message of', in: 'attacks/large-bodies.test.ts' },
  { says: 'connection refused', in: 'cluster/nats/nats-login.test.ts', by: 'Node.js' },
  { says: 'Authorization Violation', in: 'cluster/nats/nats-login.test.ts', by: 'NATS' },
  { says: 'altnames', in: 'cluster/nats/nats-login.test.ts', by: 'Node.js' },
  { says: 'certificate has expired', in: 'cluster/nats/nats-login.test.ts', by: 'Node.js' },
  { says: 'cannot be read', in: 'cluster/nats/nats-login.test.ts' },
  { says: 'is in use by another process', in: 'attacks/failed-start.test.ts' },
  { says: 'secrets.db is damaged (', in: 'attacks/failed-start.test.ts' },
  { says: '-wal exists', in: 'attacks/failed-start.test.ts' },
  { says: 'was moved or removed while the server runs', in: 'attacks/displaced-database.test.ts' },
  { says: 'the latest commits may be lost', in: 'attacks/displaced-database.test.ts' },
  {
    says: 'is damaged',
    in: 'storage/store/damage.test.ts',
    lower: 'in a process the look at all entries after the start may find it first',
  },
  { says: 'the database was changed: a required entry', in: 'attacks/rolled-back-entry.test.ts' },
  { says: 'the database was changed by another program', in: 'attacks/rolled-back-entry.test.ts' },
  { says: 'is empty, and this server had written', in: 'attacks/rolled-back-entry.test.ts' },
  { says: 'older than what this server wrote', in: 'attacks/rolled-back-entry.test.ts' },
  { says: 'changed by another program', in: 'attacks/rolled-back-secondary.test.ts' },
  { says: 'is no longer valid', in: 'attacks/rolled-back-secondary.test.ts' },
  { says: 'another cluster was promoted, this primary is fenced', in: 'system/dr-failover.test.ts' },
  { says: 'a cluster claims to have replaced this primary', in: 'system/dr-failover.test.ts' },
  { says: 'has not acknowledged that it was replaced', in: 'system/dr-failover.test.ts' },
  { says: 'no heartbeat from a secondary within fence_after', in: 'dr/primary/sync.test.ts', lower: REAL_LINK },
  { says: 'this secondary is sealed: its primary has a new root key', in: 'system/dr-keys.test.ts' },
  {
    says: 'second connection with the certificate of a connected DR secondary',
    in: 'dr/link/membership.test.ts',
    lower: REAL_LINK,
  },
  { says: 'proof of membership rejected', in: 'dr/link/membership.test.ts', lower: REAL_LINK },
  { says: 'secondaries may not reach this DR primary', in: 'system/dr-switch.test.ts' },
  { says: 'replication from primary interrupted', in: 'system/dr-failover.test.ts' },
  {
    says: 'the certificate of this cluster for the replication link',
    in: 'dr/link/certificates.test.ts',
    lower:
      'a process makes certificates that are valid for 30 years: real certificates of another time over the real link',
  },
  {
    says: 'log gap, starting Merkle comparison',
    in: 'dr/link/link.test.ts',
    lower: REAL_LINK,
  },
  { says: 'Merkle tree rebuild failed', in: 'dr/secondary/repair.test.ts', lower: REAL_LINK },
  { says: 'clock skew to the DR primary', in: 'system/dr-faults.test.ts' },
  { says: 'synchronous replication degraded', in: 'system/dr-keys.test.ts' },
]

/** Texts of a row that are further forms of its error, by the first text of the row. */
const FURTHER: Readonly<Record<string, readonly Proof[]>> = {
  'Permission denied': [{ says: 'X-Outpost-Token', in: 'cli/client/addresses.test.ts' }],
  'no server is connected': [
    { says: 'no server with the secrets core is connected', in: 'system/core-tokens.test.ts' },
    { says: 'server announcement rejected', in: 'attacks/server-key-rotated.test.ts' },
  ],
  'replication from primary interrupted': [
    { says: 'this process was stopped for', in: 'system/dr-faults.test.ts' },
    { says: 'its certificate is from another replication set', in: 'dr/link/certificates.test.ts', lower: REAL_LINK },
  ],
  'sealed call refused': [
    { says: 'no server', in: 'attacks/agent-asks-core.test.ts' },
    { says: 'wrong key', in: 'cluster/rpc/sealed-call-receiver.test.ts', lower: OWN_BUS },
    { says: 'sent before', in: 'cluster/rpc/sealed-call-receiver.test.ts', lower: OWN_BUS },
    { says: 'malformed', in: 'cluster/rpc/sealed-call-receiver.test.ts', lower: OWN_BUS },
    { says: 'too old', in: 'cluster/rpc/sealed-call-receiver.test.ts', lower: OWN_CLOCK },
    { says: 'too many callers', in: 'cluster/rpc/sealed-call-receiver.test.ts', lower: OWN_BUS },
  ],
  'the database was changed: a required entry': [{ says: 'put back', in: 'attacks/rolled-back-entry.test.ts' }],
}

/** The rows of all tables without their heads. Throws for a row outside of its table, which is shown as text. */
function rows(): string[] {
  return sections().flatMap((section) => {
    const [, table = '', ...rest] = section.split('\n\n')
    assert.ok(!rest.some((each) => /^\|/m.test(each)), 'a row stands outside of the table')
    const [, , ...all] = table.startsWith('|') ? table.trim().split('\n') : []
    return all
  })
}

/** The sections of all pages, each beginning with its heading. */
function sections(): string[] {
  return PAGES.flatMap((page) => {
    const [, ...all] = readFileSync(join(ROOT, `docs/troubleshooting/${page}.md`), 'utf8').split(/^## /m)
    return all
  })
}

function filesBelow(directory: string): string[] {
  const found = readdirSync(join(ROOT, directory), { recursive: true, withFileTypes: true })
  return found.filter((each) => each.isFile()).map((each) => join(each.parentPath, each.name))
}

/** Without comments, and as a regular expression or a template would match or print it. */
function codeOf(path: string): string {
  const lines = readFileSync(path, 'utf8').split('\n')
  const code = lines.filter((line) => !/^\s*(?:\/\/|\/?\*|#)/.test(line))
  return code.join('\n').replaceAll('\\', '')
}

/** As the program has it, too: with the places of values that are put in. */
function forms(says: string): string[] {
  return [
    says,
    says.replace('secrets.db ', '${path} '),
    says.replace('was moved or removed while', '${what} while'),
    says.replace('5 s', '${SILENCE_MS / 1000} s'),
    says.replace('the node does', '${peer} does'),
  ]
}

test('each row has a test, in the order of the table, and each test has a row', () => {
  const all = rows()
  for (const [at, row] of all.entries()) {
    const { says } = PROOFS[at] ?? { says: 'nothing' }
    assert.ok(row.includes(says), `no test is named for this row (at its place is ${JSON.stringify(says)}): ${row}`)
    for (const further of FURTHER[says] ?? [])
      assert.ok(row.includes(further.says), `${further.says} is not in: ${row}`)
  }
  assert.deepEqual(
    PROOFS.slice(all.length).map(({ says }) => says),
    [],
    'rows that are gone',
  )
  const known = new Set(PROOFS.map(({ says }) => says))
  assert.deepEqual(
    Object.keys(FURTHER).filter((says) => !known.has(says)),
    [],
  )
})

test('each listed test contains the text, and the program prints it', () => {
  const program = ['src', 'bin', 'systemd'].flatMap(filesBelow).map(codeOf).join('\n')
  const printed = (says: string) => forms(says).some((form) => program.includes(form))
  const missing = [...PROOFS, ...Object.values(FURTHER).flat()].flatMap(({ by, in: file, says }) => [
    ...(codeOf(join(ROOT, 'test', file)).includes(says) ? [] : [`test/${file} does not have: ${says}`]),
    ...(by !== undefined || printed(says) ? [] : [`nothing in src/, bin/ or systemd/ prints: ${says}`]),
  ])
  assert.deepEqual(missing, [])
})

test('each alert rule links to its row, and each row has a rule', () => {
  const rules = readFileSync(join(ROOT, 'deploy/prometheus/outpost.rules.yml'), 'utf8')
  const linked = [
    ...rules.matchAll(/- alert: (\w+)\n(?: {8}.*\n)*? {10}runbook_url: 'docs\/troubleshooting\.md#(\w+)'/g),
  ]
  assert.equal(linked.length, rules.match(/- alert: /g)?.length, 'a rule without a link')
  const alerts = readFileSync(join(ROOT, 'docs/troubleshooting.md'), 'utf8')
  const found = [...alerts.matchAll(/^\| <a id="(\w+)"><\/a>`(\w+)` /gm)].map(([, id, name]) => `${name} ${id}`)
  assert.deepEqual(
    linked.map(([, name, id]) => `${name} ${id}`),
    found,
  )
})
