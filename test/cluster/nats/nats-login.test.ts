/** All ways to log in to a real NATS server, the log while it fails, and recovery after the files are fixed. */
import '../../helpers/short-timings.ts'
import assert from 'node:assert/strict'
import { copyFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { createUser } from '@nats-io/nkeys'
import { openNatsBus } from '../../../src/cluster/nats/nats-bus.ts'
import type { LoginOptions } from '../../../src/cluster/nats/nats-login.ts'
import { recordingLogger } from '../../host/allocations/host-fixture.ts'
import { makeCertificates } from '../../helpers/certificates.ts'
import { natsCredentials } from '../../helpers/nats-credentials.ts'
import { startNatsServer } from '../../helpers/nats-server.ts'
import { eventually } from '../../helpers/eventually.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

const text = new TextEncoder()

interface Way {
  /** Of the NATS server. */
  readonly config: string
  /** Files by name: what is in them at first, and what is right. Undefined: no file. */
  readonly files: Readonly<Record<string, readonly [wrong: string | undefined, right: string]>>
  readonly login: Omit<LoginOptions, 'servers'>
  readonly reason: RegExp
}

async function world(t: TestContext, servers: readonly string[], login: Omit<LoginOptions, 'servers'>) {
  const logger = recordingLogger()
  const bus = await openNatsBus({ ...login, servers, name: 'test', logger })
  const changes: boolean[] = []
  bus.onChange((isConnected) => void changes.push(isConnected))
  t.after(() => bus.close())
  /** What an operator sees. */
  const loud = () => logger.lines.filter(({ level }) => level !== 'debug').map(({ message }) => message)
  const attempts = () => logger.lines.filter(({ message }) => message.startsWith('cannot connect to NATS')).length
  const heard: string[] = []
  bus.subscribe('outpost.test', ({ payload }) => void heard.push(Buffer.from(payload).toString()))
  const roundTrip = async (word: string) => {
    await eventually(() => {
      bus.publish('outpost.test', text.encode(word))
      return heard.includes(word)
    })
  }
  return { bus, logger, loud, attempts, changes, roundTrip }
}

/** Wrong at first, then right; then the server is restarted. */
async function tryWay(t: TestContext, directory: string, way: Way): Promise<void> {
  const write = (at: 0 | 1) => {
    for (const [name, contents] of Object.entries(way.files)) {
      const content = contents[at]
      if (content === undefined) rmSync(join(directory, name), { force: true })
      else writeFileSync(join(directory, name), content, { mode: 0o600 })
    }
  }
  write(0)
  const nats = await startNatsServer(t, way.config)
  const { logger, loud, attempts, changes, roundTrip } = await world(t, [nats.url], way.login)
  await eventually(() => attempts() >= 3)
  const [first] = logger.lines
  assert.match(String(first?.fields['reason']), way.reason)
  assert.deepEqual(loud(), ['cannot connect to NATS, retrying'], 'said once')
  write(1)
  await roundTrip('one')
  await nats.kill()
  await eventually(() => attempts() >= 5)
  await nats.restart()
  await roundTrip('two')
  assert.deepEqual(loud(), [
    'cannot connect to NATS, retrying',
    'connected to NATS',
    'connection to NATS lost, reconnecting',
    'cannot connect to NATS, retrying',
    'connected to NATS',
  ])
  assert.deepEqual(changes, [true, false, true])
  const log = JSON.stringify(logger.lines)
  for (const contents of Object.values(way.files)) {
    for (const content of contents) {
      for (const line of (content ?? '').split('\n'))
        assert.ok(line.length < 4 || !log.includes(line), 'a secret in the log')
    }
  }
}

test('login with a token recovers after the file is fixed and after a restart', async (t) => {
  const directory = temporaryDirectory(t)
  await tryWay(t, directory, {
    config: 'authorization { token: "s3cret-token" }',
    files: { token: ['another-token\n', 's3cret-token\n'] },
    login: { tokenFile: join(directory, 'token') },
    reason: /Authorization Violation.*the NATS server does not accept nats.token_file/,
  })
})

test('login with user and password recovers after the file is fixed and after a restart', async (t) => {
  const directory = temporaryDirectory(t)
  await tryWay(t, directory, {
    config: 'authorization { users: [{ user: "agent", password: " s3cret with spaces " }] }',
    files: { password: ['another-password', ' s3cret with spaces \n'] },
    login: { user: 'agent', passwordFile: join(directory, 'password') },
    reason: /does not accept nats.user agent and nats.password_file/,
  })
})

test('login with an NKEY recovers after the file is fixed and after a restart', async (t) => {
  const directory = temporaryDirectory(t)
  const [right, wrong] = [createUser(), createUser()]
  const seed = (user: typeof right) => `${Buffer.from(user.getSeed()).toString()}\n`
  await tryWay(t, directory, {
    config: `authorization { users: [{ nkey: ${right.getPublicKey()} }] }`,
    files: { 'agent.nk': [seed(wrong), seed(right)] },
    login: { nkeyFile: join(directory, 'agent.nk') },
    reason: /does not accept nats.nkey_file/,
  })
})

test('login with a credentials file recovers after the file is fixed and after a restart', async (t) => {
  const directory = temporaryDirectory(t)
  const { config, credentials } = natsCredentials()
  await tryWay(t, directory, {
    config,
    files: { 'agent.creds': [natsCredentials().credentials, credentials] },
    login: { credentialsFile: join(directory, 'agent.creds') },
    reason: /does not accept nats.credentials_file/,
  })
})

const unusable: readonly (readonly [
  string,
  string | undefined,
  (file: string) => Omit<LoginOptions, 'servers'>,
  RegExp,
])[] = [
  ['no nkey', undefined, (nkeyFile) => ({ nkeyFile }), /^nats.nkey_file cannot be read: ENOENT/],
  [
    'an nkey that is none',
    'SUNONSENSE',
    (nkeyFile) => ({ nkeyFile }),
    /nkey_file: .* does not contain the seed of an nkey/,
  ],
  ['an empty token', '\n', (tokenFile) => ({ tokenFile }), /token_file: .* is empty/],
  [
    'credentials cut off',
    '-----BEGIN NATS',
    (credentialsFile) => ({ credentialsFile }),
    /does not contain credentials/,
  ],
  ['no authority', undefined, (caFile) => ({ caFile }), /^nats.ca_file cannot be read/],
]
for (const [name, content, login, reason] of unusable) {
  test(`${name}: the log names the setting, and attempts continue`, async (t) => {
    const file = join(temporaryDirectory(t), 'file')
    if (content !== undefined) writeFileSync(file, content)
    const nats = await startNatsServer(t)
    const { logger, loud, attempts } = await world(t, [nats.url], login(file))
    await eventually(() => attempts() >= 3)
    assert.equal(loud().length, 1)
    assert.match(String(logger.lines[0]?.fields['reason']), reason)
  })
}

test('the log names an expired certificate of NATS', async (t) => {
  const directory = temporaryDirectory(t)
  if (!makeCertificates(directory, [], ['server'])) return t.skip('needs openssl')
  const path = (name: string) => join(directory, name)
  const nats = await startNatsServer(t, `tls { cert_file: "${path('server.pem')}", key_file: "${path('server.key')}" }`)
  const { attempts, logger } = await world(t, [nats.url], { caFile: path('ca.pem') })
  await eventually(() => attempts() >= 2)
  assert.equal(logger.lines[0]?.fields['reason'], 'certificate has expired')
})

test('with TLS both sides verify the certificate of the other one', async (t) => {
  const directory = temporaryDirectory(t)
  if (!makeCertificates(directory, ['server', 'client'])) return t.skip('needs openssl')
  const path = (name: string) => join(directory, name)
  const put = (name: string) => {
    copyFileSync(path(`${name}.pem`), path('agent.pem'))
    copyFileSync(path(`${name}.key`), path('agent.key'))
  }
  put('stranger')
  // Who has such a certificate is the user of that name.
  const nats = await startNatsServer(
    t,
    [
      `tls { cert_file: "${path('server.pem')}", key_file: "${path('server.key')}", ca_file: "${path('ca.pem')}"`,
      '  verify_and_map: true }',
      'authorization { users: [{ user: "CN=client" }] }',
    ].join('\n'),
  )
  const login = { caFile: path('ca.pem'), certFile: path('agent.pem'), keyFile: path('agent.key') }
  const expiries: number[] = []
  const agent = await world(t, [nats.url], { ...login, onServerCertificate: (ms) => expiries.push(ms) })
  const distrustful = await world(t, [nats.url], { ...login, caFile: path('stranger.pem') })
  await eventually(() => agent.attempts() >= 2 && distrustful.attempts() >= 2)
  assert.match(String(distrustful.logger.lines[0]?.fields['reason']), /certificate/)
  const elsewhere = await world(t, [nats.url.replace('127.0.0.1', 'localhost')], login)
  await eventually(() => elsewhere.attempts() >= 2)
  assert.match(String(elsewhere.logger.lines[0]?.fields['reason']), /altnames/)
  put('client')
  await agent.roundTrip('one')
  const days = ((expiries.at(-1) ?? 0) - Date.now()) / 86_400_000
  assert.ok(days > 1 && days <= 2, `the end of the certificate of the server is known: ${days}`)
  await nats.kill()
  await eventually(() => !agent.bus.isConnected)
  await nats.restart()
  await agent.roundTrip('two')
  assert.ok(!distrustful.bus.isConnected && !elsewhere.bus.isConnected)
})

test('a refused connection is logged with its reason', async (t) => {
  const nats = await startNatsServer(t)
  await nats.kill()
  const { attempts, loud, logger } = await world(t, [nats.url], {})
  await eventually(() => attempts() >= 2)
  assert.deepEqual(loud(), ['cannot connect to NATS, retrying'])
  assert.match(String(logger.lines[0]?.fields['reason']), /connection refused/)
})

for (const scheme of ['nats', 'tls']) {
  test(`with TLS settings a server without TLS is refused (${scheme}://)`, async (t) => {
    const directory = temporaryDirectory(t)
    writeFileSync(join(directory, 'token'), 's3cret-token')
    if (!makeCertificates(directory, [])) return t.skip('needs openssl')
    const nats = await startNatsServer(t, 'authorization { token: "s3cret-token" }')
    const login = {
      tokenFile: join(directory, 'token'),
      ...(scheme === 'tls' ? {} : { caFile: join(directory, 'ca.pem') }),
    }
    const { attempts, logger, bus } = await world(t, [nats.url.replace('nats', scheme)], login)
    await eventually(() => attempts() >= 2)
    assert.match(String(logger.lines[0]?.fields['reason']), /tls/)
    assert.equal(bus.isConnected, false)
  })
}
