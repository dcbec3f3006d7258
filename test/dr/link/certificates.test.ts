/** A link whose certificates are not valid at this time: the error names the certificate and its time. */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { makeAuthority, makeIdentity } from '../../../src/dr/link/certificates.ts'
import { LinkClient, LinkError } from '../../../src/dr/link/link.ts'
import { LinkServer } from '../../../src/dr/link/link-server.ts'
import { eventually } from '../../helpers/eventually.ts'
import { recordingLogger } from '../../helpers/recording-logger.ts'
import { activate, attach, Site } from '../../helpers/replication-site.ts'

const YEAR_MS = 365.25 * 24 * 3_600_000
/** Longer than a certificate of the link is valid. */
const LONG_AGO_MS = -31 * YEAR_MS
const WAIT_MS = 20_000

interface MadeAt {
  /** Relative to now. */
  readonly authority?: number
  readonly server?: number
  readonly client?: number
}

function refuse(): Promise<never> {
  return Promise.reject(new LinkError('failed', 'not in this test'))
}

/** The error of a connection to a primary. */
async function errorOf(t: TestContext, { authority = 0, client = 0, server = 0 }: MadeAt): Promise<string> {
  const nowMs = Date.now()
  const ca = await makeAuthority('set', nowMs + authority)
  const listener = await LinkServer.listen({
    host: '127.0.0.1',
    port: 0,
    authority: ca.certificate,
    identity: await makeIdentity(ca, 'server', 'set', nowMs + server),
    service: {
      unary: { Join: refuse, Fence: refuse, Ping: refuse, Pages: refuse, Subpages: refuse, Leaves: refuse },
      follow: refuse,
      // oxlint-disable-next-line require-yield
      async *values() {
        await refuse()
      },
    },
    logger: recordingLogger([]),
  })
  t.after(() => listener.close())
  const identity = await makeIdentity(ca, 'client', 'set', nowMs + client)
  const address = `127.0.0.1:${listener.address.port}`
  const connecting = LinkClient.connect({ setId: 'set', authority: ca.certificate, ...identity }, address, WAIT_MS)
  const link = await connecting.catch((error: Error) => error.message)
  if (typeof link === 'string') return link.replace(address, 'ADDRESS')
  link.close()
  return ''
}

test('the error of a connection names a certificate that has expired or is not valid yet', async (t) => {
  const own = 'no connection to ADDRESS: the certificate of this cluster for the replication link'
  const peer = 'no connection to ADDRESS: the certificate of the primary for the replication link'
  assert.equal(await errorOf(t, {}), '')
  const time = String.raw`\d{4}-\d\d-\d\dT[\d:.]+Z`
  // oxlint-disable-next-line no-await-in-loop
  for (const [madeAt, pattern] of [
    [{ client: LONG_AGO_MS }, `^${own} expired at ${time}$`],
    [{ server: LONG_AGO_MS }, `^${peer} expired at ${time}$`],
    [
      { authority: LONG_AGO_MS },
      `^no connection to ADDRESS: the certificate authority of the primary expired at ${time}$`,
    ],
    [{ authority: LONG_AGO_MS, client: LONG_AGO_MS, server: LONG_AGO_MS }, `^${own} expired at ${time}$`],
    [{ client: 2 * YEAR_MS }, `^${own} is not valid before ${time}, check the clocks$`],
    [{ server: 2 * YEAR_MS }, `^${peer} is not valid before ${time}, check the clocks$`],
  ] as const)
    assert.match(await errorOf(t, madeAt), new RegExp(pattern))
})

test('a certificate of another replication set is named as one', async (t) => {
  const [primary, other, secondary] = await Promise.all(['one', 'two', 'three'].map((name) => Site.start(t, name)))
  assert.ok(primary && other && secondary)
  await activate(primary, secondary)
  const { port } = primary.replication.listening ?? { port: 0 }
  await primary.close()
  await other.restart({ port })
  await other.replication.enablePrimary({ primaryClusterAddr: '' })
  await eventually(
    async () => String(await secondary.field('trouble')).endsWith(': its certificate is from another replication set'),
    'it says why',
  )
})

test('a secondary whose link was made with an expired certificate says so', async (t) => {
  let skewMs = LONG_AGO_MS
  const now = () => Date.now() + skewMs
  const [primary, secondary] = [await Site.start(t, 'one', { now }), await Site.start(t, 'two')]
  await primary.replication.enablePrimary({ primaryClusterAddr: '' })
  skewMs = 0
  await assert.rejects(attach(primary, secondary), {
    message: /^the primary refused this cluster: no connection to \S+: the certificate of the primary .*expired at /,
  })
})
