/**
 * Which token goes to which address, for every combination of variables in the table of docs/operating/commands.md; and what a
 * refusal says about the token. Before, NOMAD_TOKEN was sent to the address from VAULT_ADDR, and VAULT_TOKEN to NOMAD_ADDR's.
 */
import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { test, type TestContext } from 'node:test'
import { agentTarget, type Subject } from '../../../src/cli/client/agent-target.ts'
import { runHere } from '../../helpers/command-here.ts'

const COMMANDS_PAGE = resolve(import.meta.dirname, '../../../docs/operating/commands.md')

/** A home directory in which `outpost login` has kept a token. */
function home(t: TestContext): string {
  const directory = mkdtempSync(join(tmpdir(), 'outpost-addresses-'))
  t.after(() => rmSync(directory, { recursive: true, force: true }))
  writeFileSync(join(directory, '.outpost-token'), 'kept\n', { mode: 0o600 })
  return directory
}

interface Row {
  readonly set: Readonly<Record<string, string>>
  readonly option?: string
  /** Address and source of the token, for commands about hosts and about secrets. */
  readonly hosts: readonly [string, string]
  readonly secrets: readonly [string, string]
}

const [OUR, NOMAD, VAULT, OTHER] = ['http://o:1', 'http://n:2', 'http://v:3', 'http://x:4']
const DEFAULT = 'http://127.0.0.1:4646'
const TOKENS = { OUTPOST_TOKEN: 'o', NOMAD_TOKEN: 'n', VAULT_TOKEN: 'v' }
const FILE = '~/.outpost-token'
const both = (address: string, source: string) => ({ hosts: [address, source], secrets: [address, source] }) as const

const ROWS: readonly Row[] = [
  // The default address is ours, and Nomad's own default.
  { set: {}, ...both(DEFAULT, FILE) },
  { set: { OUTPOST_TOKEN: 'o' }, ...both(DEFAULT, 'OUTPOST_TOKEN') },
  { set: { NOMAD_TOKEN: 'n' }, ...both(DEFAULT, 'NOMAD_TOKEN') },
  { set: { VAULT_TOKEN: 'v' }, ...both(DEFAULT, FILE) },
  { set: TOKENS, ...both(DEFAULT, 'OUTPOST_TOKEN') },
  { set: { OUTPOST_TOKEN: '', NOMAD_TOKEN: '', VAULT_TOKEN: '' }, ...both(DEFAULT, FILE) },
  // One address.
  { set: { OUTPOST_ADDR: OUR }, ...both(OUR, FILE) },
  { set: { OUTPOST_ADDR: OUR, ...TOKENS }, ...both(OUR, 'OUTPOST_TOKEN') },
  { set: { OUTPOST_ADDR: OUR, NOMAD_TOKEN: 'n', VAULT_TOKEN: 'v' }, ...both(OUR, FILE) },
  { set: { NOMAD_ADDR: NOMAD }, ...both(NOMAD, 'none') },
  { set: { NOMAD_ADDR: NOMAD, ...TOKENS }, ...both(NOMAD, 'NOMAD_TOKEN') },
  { set: { NOMAD_ADDR: NOMAD, OUTPOST_TOKEN: 'o', VAULT_TOKEN: 'v' }, ...both(NOMAD, 'none') },
  { set: { VAULT_ADDR: VAULT }, ...both(VAULT, 'none') },
  { set: { VAULT_ADDR: VAULT, ...TOKENS }, ...both(VAULT, 'VAULT_TOKEN') },
  { set: { VAULT_ADDR: VAULT, OUTPOST_TOKEN: 'o', NOMAD_TOKEN: 'n' }, ...both(VAULT, 'none') },
  // Several addresses.
  {
    set: { NOMAD_ADDR: NOMAD, VAULT_ADDR: VAULT, ...TOKENS },
    hosts: [NOMAD, 'NOMAD_TOKEN'],
    secrets: [VAULT, 'VAULT_TOKEN'],
  },
  {
    set: { NOMAD_ADDR: NOMAD, VAULT_ADDR: VAULT, NOMAD_TOKEN: 'n' },
    hosts: [NOMAD, 'NOMAD_TOKEN'],
    secrets: [VAULT, 'none'],
  },
  {
    set: { NOMAD_ADDR: NOMAD, VAULT_ADDR: VAULT, VAULT_TOKEN: 'v' },
    hosts: [NOMAD, 'none'],
    secrets: [VAULT, 'VAULT_TOKEN'],
  },
  { set: { OUTPOST_ADDR: OUR, NOMAD_ADDR: NOMAD, VAULT_ADDR: VAULT, ...TOKENS }, ...both(OUR, 'OUTPOST_TOKEN') },
  { set: { OUTPOST_ADDR: '', NOMAD_ADDR: NOMAD, OUTPOST_TOKEN: '', NOMAD_TOKEN: '' }, ...both(NOMAD, 'none') },
  // The same address under two names is one address.
  {
    set: { OUTPOST_ADDR: OUR, NOMAD_ADDR: `${OUR}/`, NOMAD_TOKEN: 'n', VAULT_TOKEN: 'v' },
    ...both(OUR, 'NOMAD_TOKEN'),
  },
  { set: { NOMAD_ADDR: NOMAD, VAULT_ADDR: NOMAD, VAULT_TOKEN: 'v' }, ...both(NOMAD, 'VAULT_TOKEN') },
  {
    set: { NOMAD_ADDR: NOMAD, VAULT_ADDR: NOMAD, NOMAD_TOKEN: 'n', VAULT_TOKEN: 'v' },
    hosts: [NOMAD, 'NOMAD_TOKEN'],
    secrets: [NOMAD, 'VAULT_TOKEN'],
  },
  // The option takes the place of OUTPOST_ADDR.
  { set: { OUTPOST_TOKEN: 'o', NOMAD_TOKEN: 'n' }, option: OTHER, ...both(OTHER, 'OUTPOST_TOKEN') },
  {
    set: { NOMAD_ADDR: NOMAD, VAULT_ADDR: VAULT, NOMAD_TOKEN: 'n', VAULT_TOKEN: 'v' },
    option: OTHER,
    ...both(OTHER, FILE),
  },
  { set: { VAULT_ADDR: VAULT, VAULT_TOKEN: 'v' }, option: VAULT, ...both(VAULT, 'VAULT_TOKEN') },
]

test('every combination of addresses and tokens', (t) => {
  const HOME = home(t)
  for (const { set, option, ...wanted } of ROWS) {
    for (const subject of ['hosts', 'secrets'] satisfies Subject[]) {
      const env = { HOME, ...set }
      const { url, token, tokenFrom = 'none' } = agentTarget(env, subject, option)
      const from = tokenFrom.replace(HOME, '~')
      const what = `${subject} with ${JSON.stringify(set)} and -address ${option}`
      assert.deepEqual([url.origin, from], wanted[subject], what)
      const value = from === FILE ? 'kept' : env[from as keyof typeof env]
      assert.equal(token, value, what)
    }
  }
})

test('the error for an invalid address names its variable', () => {
  assert.throws(() => agentTarget({ NOMAD_ADDR: 'ftp://x' }, 'hosts'), /NOMAD_ADDR is not a URL: set it to/)
  assert.throws(() => agentTarget({ OUTPOST_ADDR: 'http://' }, 'secrets'), /OUTPOST_ADDR is not a URL/)
})

/** Answers as told and keeps the tokens that it was sent. */
async function listener(t: TestContext, answer: (request: IncomingMessage, response: ServerResponse) => void) {
  const tokens: unknown[] = []
  const server = createServer((request, response) => {
    tokens.push(request.headers['x-vault-token'] ?? request.headers['x-nomad-token'])
    answer(request, response)
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  t.after(() => server.close())
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, tokens }
}

function run(line: string, env: Readonly<Record<string, string>>) {
  const { PATH = '' } = process.env
  return runHere(line.split(' '), { PATH, ...env })
}

const DENIED = { errors: ['1 error occurred:\n\t* permission denied\n\n'] }
const UNKNOWN = { errors: ['permission denied'] }

function refuse(_request: IncomingMessage, response: ServerResponse): void {
  response.statusCode = 403
  response.end(JSON.stringify(DENIED))
}

test('with the variables of two systems set, neither receives the token of the other', async (t) => {
  const HOME = home(t)
  const [vault, nomad] = [await listener(t, refuse), await listener(t, refuse)]
  const env = { HOME, VAULT_ADDR: vault.url, NOMAD_ADDR: nomad.url, NOMAD_TOKEN: 'of-nomad', OUTPOST_TOKEN: 'ours' }
  const read = await run('read secret/x', env)
  assert.deepEqual([read.code, vault.tokens, nomad.tokens], [1, [undefined], []])
  assert.match(
    read.stderr,
    /^outpost: permission denied \(HTTP 403\), no token was sent, set VAULT_TOKEN \(OUTPOST_TOKEN and NOMAD_TOKEN not sent: set for another address\)\n$/,
  )
  const stats = await run('node stats', env)
  assert.equal(stats.code, 1)
  assert.deepEqual([vault.tokens, nomad.tokens], [[undefined], ['of-nomad']])
  assert.match(stats.stderr, /, the token from NOMAD_TOKEN lacks the permission\n$/)
  assert.ok(!`${read.stderr}${stats.stderr}`.includes('of-nomad'), 'a token is not shown')
})

test('the error distinguishes an unknown token from a missing permission, and names the source of the token', async (t) => {
  const HOME = home(t)
  const server = await listener(t, (request, response) => {
    response.statusCode = 403
    const isHost = request.url?.startsWith('/v1/client') === true
    if (isHost && request.headers['x-nomad-token'] === 'gone') response.setHeader('X-Outpost-Token', 'unknown')
    response.end(
      isHost ? 'Permission denied' : JSON.stringify(request.headers['x-vault-token'] === 'gone' ? UNKNOWN : DENIED),
    )
  })
  const [unknown, denied] = [
    /, the token from (\S+) is unknown or expired\n$/,
    /, the token from (\S+) lacks the permission\n$/,
  ]
  const rows = [
    ['read secret/x', { VAULT_ADDR: server.url, VAULT_TOKEN: 'gone' }, unknown, 'VAULT_TOKEN'],
    ['read secret/x', { VAULT_ADDR: server.url, VAULT_TOKEN: 'poor' }, denied, 'VAULT_TOKEN'],
    ['node stats', { NOMAD_ADDR: server.url, NOMAD_TOKEN: 'gone' }, unknown, 'NOMAD_TOKEN'],
    ['node stats', { NOMAD_ADDR: server.url, NOMAD_TOKEN: 'poor' }, denied, 'NOMAD_TOKEN'],
    ['node stats', { OUTPOST_ADDR: server.url }, denied, join(HOME, '.outpost-token')],
  ] as const
  for (const [line, env, text, source] of rows) {
    const { code, stderr } = await run(line, { HOME, ...env })
    assert.equal(code, 1)
    assert.equal(text.exec(stderr)?.[1], source, stderr)
  }
})

test('the table of docs/operating/commands.md has every kind of row', () => {
  const section = /\n## Addresses and tokens\n([\s\S]*?)\n##/.exec(readFileSync(COMMANDS_PAGE, 'utf8'))?.[1] ?? ''
  const documented = [...section.matchAll(/^\| `?([A-Z]+_ADDR|-address|the default)`?/gm)].map(([, name]) => name)
  assert.deepEqual(documented, ['OUTPOST_ADDR', '-address', 'NOMAD_ADDR', 'VAULT_ADDR', 'the default'])
})
