/** The key of a secondary's certificate in the hands of a thief: it fences no primary, acknowledges no commit and displaces no connection. */
import assert from 'node:assert/strict'
import { createHmac } from 'node:crypto'
import { test, type TestContext } from 'node:test'
import type { Bundle } from '../../../src/dr/link/bundle.ts'
import { type FollowStream, LinkClient, linkErrorOf } from '../../../src/dr/link/link.ts'
import { PROTOCOL, type ResponseOf } from '../../../src/dr/link/messages.ts'
import { Proofs, type ProofSession, statements } from '../../../src/dr/link/proofs.ts'
import { ReplicationState } from '../../../src/dr/state/replication-state.ts'
import { SqliteStore } from '../../../src/storage/store/store.ts'
import { eventually } from '../../helpers/eventually.ts'
import { attach, bundleFor, MEMBERSHIP_KEY, Site, type SiteOptions, untilSame } from '../../helpers/replication-site.ts'

const UNFORCED = { primaryClusterAddr: '', force: false }
const WAIT_MS = 20_000

interface Row {
  readonly authenticated: boolean
  readonly duplicate_connections: number
  readonly last_acknowledged_wal: number
  readonly rejected_proofs: number
}

/** A primary, its secondary, and what was stolen from the database of that one. */
async function robbed(t: TestContext, options: SiteOptions = {}) {
  const primary = await Site.start(t, 'primary', options)
  await primary.replication.enablePrimary({ primaryClusterAddr: '' })
  const secondary = await Site.start(t, 'secondary')
  const bundle = await bundleFor(primary, 'secondary')
  await secondary.replication.enableSecondary(bundle)
  await untilSame(primary, secondary)
  const row = async () => ((await primary.field('secondaries')) as Row[])[0]
  return { bundle, primary, row, secondary }
}

/** A connection with the stolen certificate. */
async function thiefOf(t: TestContext, bundle: Bundle, primary: Site) {
  const { ca_cert: authority, client_cert: certificate, client_key: key, set_id: setId } = bundle
  const link = await LinkClient.connect({ setId, authority, certificate, key }, primary.clusterAddress, WAIT_MS)
  t.after(() => link.close())
  const ping = async () => link.call('Ping', {}, WAIT_MS)
  const session: ProofSession = { id: bundle.id, nonce: (await ping()).nonce ?? Buffer.alloc(16) }
  const said = { api: 'http://thief', addresses: ['thief:1'] }
  const fence = async (epoch: number, proof?: Uint8Array) => {
    const { position } = await ping()
    const nonce = Buffer.alloc(16)
    return link.call('Fence', { ...said, epoch, fork: position, nonce, proof }, WAIT_MS)
  }
  const join = async (epoch = 0, proof?: Uint8Array) => {
    const { position } = await ping()
    const about = { protocol: PROTOCOL, version: '1.0.0', isTrial: false, nonce: bundle.nonce, atMs: 0 }
    return link.call('Join', { ...about, api: '', cluster: '', position, epoch, proof }, WAIT_MS)
  }
  /** Follows from the head of the log. `proof`: of membership. */
  const follow = async (proof?: Uint8Array) => {
    const { epoch, position } = await ping()
    const call = link.follow()
    const ended = new Promise<string>((resolve) => {
      call.on('error', (error) => resolve(linkErrorOf(error).message)).on('end', () => resolve('ended'))
    })
    t.after(() => call.cancel())
    call.write({ kind: 'from', position, epoch, windowBytes: 1 << 20, api: '', cluster: '', proof })
    return { call, ended }
  }
  return { fence, follow, join, link, said, session }
}

/** Acknowledges everything at once, and claims to be whole. */
function acknowledgeAll(call: FollowStream): void {
  let position: ResponseOf<'Ping'>['position'] = { sequence: 0, epoch: 0, checksum: Buffer.alloc(32) }
  call.on('data', (message: ResponseOf<'Follow'>) => {
    if (message.kind === 'rows') {
      const [sequence = 0, epoch = 0, , checksum = Buffer.alloc(32)] = message.rows.at(-1) ?? []
      position = { sequence, epoch, checksum }
    } else if (message.kind === 'beat') {
      if (position.sequence === 0) ({ position } = message)
      call.write({ kind: 'echo', beat: message.beat, atMs: Date.now(), position, isWhole: true })
      return
    }
    call.write({ kind: 'ack', position, isWhole: true })
  })
}

const codeOf = (text: string) => createHmac('sha256', MEMBERSHIP_KEY).update(text).digest()

function proofsOf(primary: Site, bundle: Bundle): Proofs {
  return new Proofs({ isSealed: false, codeOf }, () => ({
    setId: bundle.set_id,
    clusterId: primary.store.clusterId,
  }))
}

test('the certificate alone fences no primary: a notice or a higher epoch needs a proof for this connection', async (t) => {
  const { bundle, primary, row, secondary } = await robbed(t)
  await secondary.close()
  const [thief, other] = [await thiefOf(t, bundle, primary), await thiefOf(t, bundle, primary)]
  const refused = { reason: 'unproven' }
  await assert.rejects(thief.fence(1), refused, 'no proof')
  await assert.rejects(thief.fence(1, Buffer.alloc(32)), refused, 'another key')
  const proofs = proofsOf(primary, bundle)
  const replayed = proofs.of(statements.fence(other.session, { ...thief.said, epoch: 1 }))
  await assert.rejects(thief.fence(1, replayed), refused, 'of another connection')
  await assert.rejects(thief.join(1), refused, 'a higher epoch')
  const joining = proofs.of(statements.join(other.session, 1))
  await assert.rejects(thief.join(1, joining), refused, 'a higher epoch with the proof of another connection')
  assert.equal(primary.store.role, 'own')
  await primary.put('goes/on')
  assert.ok(Number((await row())?.rejected_proofs) >= 4)
  assert.ok(primary.said(/proof of membership rejected/))
  // The member itself is believed, for what it says and nothing else.
  const proof = proofs.of(statements.fence(thief.session, { ...thief.said, epoch: 1 }))
  await assert.rejects(thief.fence(2, proof), refused, 'another epoch')
  const elsewhere = proofs.of(statements.fence(thief.session, { ...thief.said, addresses: ['member:1'], epoch: 1 }))
  await assert.rejects(thief.fence(1, elsewhere), refused, 'other addresses')
  await thief.fence(1, proof)
  assert.equal(primary.store.role, 'fenced')
  assert.deepEqual([await primary.field('fence_reason'), await primary.field('fenced_by')], ['replaced', 'secondary'])
})

test('a certificate that was replaced or revoked is not that of another secondary', async (t) => {
  const { primary } = await robbed(t)
  const replaced = await bundleFor(primary, 'other')
  const newest = await bundleFor(primary, 'other')
  await assert.rejects(thiefOf(t, replaced, primary), { reason: 'unknown' })
  const other = await thiefOf(t, newest, primary)
  await primary.replication.revokeSecondary('other')
  await assert.rejects(thiefOf(t, newest, primary), { reason: 'revoked' })
  await assert.rejects(other.link.call('Pages', {}, WAIT_MS))
})

test('sync: an acknowledgement by a thief of the certificate answers no commit', async (t) => {
  const { bundle, primary, row, secondary } = await robbed(t, { settings: { sync: true, syncTimeoutMs: 60_000 } })
  await eventually(async () => (await primary.field('sync')) === 'on', 'it has caught up')
  assert.equal((await row())?.authenticated, true)
  await secondary.close()
  const thief = await thiefOf(t, bundle, primary)
  await thief.join()
  const { call } = await thief.follow()
  acknowledgeAll(call)
  let isAnswered = false
  const waiting = primary.put('waits').then(() => (isAnswered = true))
  await eventually(async () => {
    const isDurable = primary.text('waits') === 'waits'
    return isDurable && Number((await row())?.last_acknowledged_wal) === primary.store.position().sequence
  }, 'the thief has acknowledged it')
  assert.equal((await row())?.authenticated, false)
  // The row is sent, and may be acknowledged, before its commit starts to wait.
  await eventually(() => primary.replication.metrics.primary?.waiting === 1, 'the commit waits')
  assert.equal(isAnswered, false)
  // The member takes the place of the thief, whose connection is alive.
  await secondary.open()
  await waiting
  assert.equal(secondary.text('waits'), 'waits')
  assert.ok(Number((await row())?.duplicate_connections) >= 1)
})

test('sync: a member that acknowledges a row of another history, with a proof, answers no commit', async (t) => {
  const { bundle, primary, row, secondary } = await robbed(t, { settings: { sync: true, syncTimeoutMs: 60_000 } })
  await eventually(async () => (await primary.field('sync')) === 'on', 'it has caught up')
  await secondary.close()
  const member = await thiefOf(t, bundle, primary)
  await member.join()
  const proofs = proofsOf(primary, bundle)
  const { call } = await member.follow(proofs.of(statements.follow(member.session, 0)))
  call.on('data', (message: ResponseOf<'Follow'>) => {
    if (message.kind !== 'rows') return
    const [sequence = 0, epoch = 0] = message.rows.at(-1) ?? []
    const position = { sequence, epoch, checksum: Buffer.alloc(32, 7) }
    const proof = proofs.of(statements.acknowledgement(member.session, position, true))
    call.write({ kind: 'ack', position, isWhole: true, proof })
  })
  let isAnswered = false
  const waiting = primary.put('waits').then(
    () => (isAnswered = true),
    () => undefined,
  )
  await eventually(async () => {
    const now = await row()
    return now?.authenticated === true && now.last_acknowledged_wal === primary.store.position().sequence
  }, 'it has acknowledged the number of the row')
  // The row is sent, and may be acknowledged, before its commit starts to wait.
  await eventually(() => primary.replication.metrics.primary?.waiting === 1, 'the commit waits')
  assert.equal(isAnswered, false)
  await primary.close()
  await waiting
})

test('sync: commits do not wait for a sealed secondary, and do again once it is unsealed', async (t) => {
  const { primary, row, secondary } = await robbed(t, { settings: { sync: true, syncTimeoutMs: 50 } })
  await eventually(async () => (await primary.field('sync')) === 'on', 'it has caught up')
  secondary.membershipKey = undefined
  await eventually(async () => (await row())?.authenticated === false, 'the primary knows')
  await primary.put('without')
  assert.equal(await primary.field('sync'), 'degraded')
  await untilSame(primary, secondary)
  secondary.membershipKey = MEMBERSHIP_KEY
  await eventually(async () => (await primary.field('sync')) === 'on', 'it is unsealed')
})

test('fence_after: messages of a thief of the certificate do not end silence', async (t) => {
  const { bundle, primary, secondary } = await robbed(t, { settings: { fenceAfterMs: 1000 } })
  const isKnown = () => primary.text('local/replication/state')?.includes('"wasWhole":true')
  await eventually(isKnown, 'it has proven that it is whole')
  await secondary.close()
  const thief = await thiefOf(t, bundle, primary)
  await thief.join()
  acknowledgeAll((await thief.follow()).call)
  await eventually(() => primary.store.role === 'fenced', 'it takes no writes')
  assert.equal(await primary.field('fence_reason'), 'isolated')
})

test('a second connection with the same certificate does not displace a live one, and raises an alarm', async (t) => {
  const { bundle, primary, row, secondary } = await robbed(t)
  const connections = () => secondary.replication.metrics.secondary?.connections
  for (const key of [MEMBERSHIP_KEY, undefined]) {
    // A sealed secondary is alive as well.
    secondary.membershipKey = key
    await eventually(async () => (await row())?.authenticated === (key !== undefined), 'the primary knows')
    const [before, alarms] = [connections(), Number((await row())?.duplicate_connections)]
    const thief = await thiefOf(t, bundle, primary)
    await assert.rejects(thief.join(), { reason: 'busy' })
    const { ended } = await thief.follow()
    assert.match(await ended, /already connected with the same certificate/)
    // More of them than a certificate may have: the live one stays.
    const many = await Promise.all(Array.from({ length: 9 }, () => thiefOf(t, bundle, primary)))
    for (const { link } of many) link.close()
    await primary.put(`alive/${key ?? 'sealed'}`)
    await untilSame(primary, secondary)
    assert.equal(connections(), before, 'it was not disconnected')
    assert.ok(Number((await row())?.duplicate_connections) >= alarms + 2)
  }
  assert.ok(primary.said(/second connection with the certificate of a connected DR secondary/))
})

test('a secondary that reconnects while its lost connection still looks open is served again', async (t) => {
  const { bundle, primary, row, secondary } = await robbed(t, { timings: { silenceMs: 120_000 } })
  await secondary.close()
  // It follows, proven, and answers nothing.
  const lost = await thiefOf(t, bundle, primary)
  await lost.join()
  const { call, ended } = await lost.follow(proofsOf(primary, bundle).of(statements.follow(lost.session, 0)))
  await new Promise((resolve) => call.once('data', resolve))
  assert.equal((await row())?.authenticated, true)
  await primary.put('meanwhile')
  await secondary.open()
  await untilSame(primary, secondary)
  call.resume()
  assert.match(await ended, /another connection/)
  assert.equal((await row())?.duplicate_connections, 0, 'a genuine reconnect raises no alarm')
})

test('a sealed primary verifies a notice when it is unsealed, before it takes a write', async (t) => {
  const { bundle, primary, secondary } = await robbed(t)
  const { port } = primary.replication.listening ?? { port: 0 }
  await primary.close()
  await secondary.replication.promote(UNFORCED)
  primary.membershipKey = undefined
  await primary.restart({ port })
  const refused = /sending the promotion notice .* failed/
  const isSealed = () =>
    secondary.lines.some(({ fields, message }) => refused.test(message) && /sealed/.test(String(fields['error'])))
  await eventually(isSealed, 'the notice is refused for now')
  assert.equal(primary.store.role, 'own')
  const [row] = (await primary.field('secondaries')) as { readonly connection_status: string }[]
  assert.equal(row?.connection_status, 'disconnected', 'a notice is no connection of a secondary')
  const claim = 'a cluster at http://secondary claims to have replaced this primary'
  assert.match(String(await primary.field('trouble')), new RegExp(`^${claim} .* "secondary".*: unseal this server`))
  const noted = () => primary.lines.filter(({ message }) => message.startsWith('a cluster claims to have replaced'))
  assert.deepEqual([noted().length, noted()[0]?.level], [1, 'warn'])
  const other = await thiefOf(t, bundle, primary)
  for (const epoch of [1, 2]) await assert.rejects(other.fence(epoch, Buffer.alloc(32)), { reason: 'sealed' })
  assert.equal(noted().length, 1, 'a peer can repeat its claim')
  primary.membershipKey = MEMBERSHIP_KEY
  await primary.replication.unsealed()
  assert.equal(primary.store.role, 'fenced', 'nothing was served before')
  assert.equal(await primary.field('trouble'), '', 'the claim was verified')
  await eventually(() => secondary.replication.pendingNotice === undefined, 'then it is acknowledged')
})

test('a thief of the certificate neither erases a notice that a sealed primary keeps, nor blocks it with its calls', async (t) => {
  const { bundle, primary, secondary } = await robbed(t)
  const { port } = primary.replication.listening ?? { port: 0 }
  await primary.close()
  await secondary.replication.promote(UNFORCED)
  primary.membershipKey = undefined
  await primary.restart({ port })
  // As many calls as a certificate may have, which wait for their first message.
  const thief = await thiefOf(t, bundle, primary)
  let isOver = false
  const hold = () => {
    if (!isOver) thief.link.follow().on('error', hold)
  }
  for (let at = 0; at < 20; at++) hold()
  t.after(() => (isOver = true))
  const isSealed = () => secondary.lines.some(({ fields }) => /this primary is sealed/.test(String(fields['error'])))
  await eventually(isSealed, 'the notice arrives, and is refused for now')
  await secondary.close()
  const other = await thiefOf(t, bundle, primary)
  for (const epoch of [1, 2]) await assert.rejects(other.fence(epoch, Buffer.alloc(32)), { reason: 'sealed' })
  primary.membershipKey = MEMBERSHIP_KEY
  await primary.replication.unsealed()
  assert.equal(primary.store.role, 'fenced', 'nothing was served before')
})

test('a primary with an unproven claim of a promotion waits for the member before it accepts a write', async (t) => {
  const { bundle, primary, secondary } = await robbed(t)
  const { port } = primary.replication.listening ?? { port: 0 }
  await primary.close()
  await secondary.replication.promote(UNFORCED)
  await secondary.close()
  primary.membershipKey = undefined
  const restarted = primary.restart({ port, timings: { startMs: 60_000 }, clusterAddress: () => `127.0.0.1:${port}` })
  const thief = await eventually(() => thiefOf(t, bundle, primary).catch(() => undefined), 'it listens')
  await assert.rejects(thief.fence(1, Buffer.alloc(32)), { reason: 'sealed' })
  await restarted
  primary.membershipKey = MEMBERSHIP_KEY
  const settled = primary.replication.unsealed()
  await secondary.open()
  await settled
  assert.equal(primary.store.role, 'fenced')
})

test('revoke-secondary lifts the fence that the proof of this secondary caused', async (t) => {
  const { primary, secondary } = await robbed(t, { settings: { sync: true, syncTimeoutMs: 60_000 } })
  const third = await Site.start(t, 'third')
  await attach(primary, third)
  await untilSame(primary, third)
  await secondary.replication.promote(UNFORCED)
  await eventually(
    () => primary.store.role === 'fenced' && secondary.replication.pendingNotice === undefined,
    'it is fenced',
  )
  await assert.rejects(async () => primary.put('refused'), /fenced|primary/)
  await primary.replication.revokeSecondary('third')
  assert.equal(primary.store.role, 'fenced', 'another secondary is not the reason')
  await primary.replication.revokeSecondary('secondary')
  assert.deepEqual([primary.store.role, await primary.field('fence_reason')], ['own', ''])
  assert.equal(await primary.field('replaced_by'), '')
  assert.ok(primary.store.epoch > secondary.store.epoch, 'rows of both are never of one epoch')
  await attach(primary, third)
  await untilSame(primary, third)
  await eventually(async () => (await primary.field('sync')) === 'on', 'commits wait for secondaries again')
  await primary.put('goes/on')
  assert.equal(third.text('goes/on'), 'goes/on')
  await primary.restart()
  assert.equal(primary.store.role, 'own', 'also after a restart')
})

test('a primary that was killed while its fence was lifted accepts writes after the next start', async (t) => {
  const { primary } = await robbed(t)
  await primary.close()
  const store = await SqliteStore.open(primary.store.path)
  await store.setRole('fenced', 4)
  await new ReplicationState(store).change(() => ({ resumeEpoch: 5 }))
  await store.close()
  await primary.open()
  assert.deepEqual([primary.store.role, primary.store.epoch], ['own', 5])
})

test('the status of a secondary says that its primary is sealed', async (t) => {
  const { primary, secondary } = await robbed(t)
  const sealed = async () => ((await secondary.field('primaries')) as { sealed: boolean | null }[])[0]?.sealed
  await eventually(async () => (await sealed()) === false, 'it is not')
  primary.membershipKey = undefined
  await eventually(async () => (await sealed()) === true, 'it is')
  await primary.close()
  await eventually(async () => (await sealed()) === null, 'nothing is known of a primary that is not heard')
})
