/**
 * On a NATS without users any process may announce itself as a server, under as many keys and with as many times as it likes: the log of
 * other hosts must stay bounded.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MemoryBroker } from '../../src/cluster/nats/message-bus.ts'
import { newSeed, signingKeyOf } from '../../src/cluster/nats/nkey.ts'
import { Subjects } from '../../src/cluster/nats/subjects.ts'
import { signAnnouncement } from '../../src/cluster/trust/server-announcement.ts'
import { ServerKeys } from '../../src/cluster/trust/server-trust.ts'
import { eventually } from '../helpers/eventually.ts'
import { recordingLogger, type LogLine } from '../helpers/recording-logger.ts'

const DAY_MS = 86_400_000
const LINES_MAX = 20

test('announcements with wrong times do not flood the log', async (t) => {
  const subjects = new Subjects('global')
  const broker = new MemoryBroker()
  const lines: LogLine[] = []
  const keys = new ServerKeys({
    bus: broker.connect(),
    subjects,
    self: { nodeId: 'node' },
    trusted: {},
    readOwnKey: undefined,
    about: undefined,
    logger: recordingLogger(lines),
  })
  keys.start()
  t.after(() => keys.stop())
  const bus = broker.connect()
  let last = ''
  for (const key of Array.from({ length: 100 }, () => signingKeyOf(newSeed()))) {
    for (const [sequence, sentAtMs] of [Date.now() - DAY_MS, Date.now(), Date.now() + DAY_MS].entries()) {
      const about = { serverId: 's1', hasCore: false, curveKey: new Uint8Array(32), clockMs: 0, name: 'server' }
      bus.publish(subjects.serverKey, signAnnouncement({ ...about, sequence, sentAtMs }, subjects.serverKey, key))
    }
    last = key.publicKey
  }
  await eventually(() => keys.servers(false).some(({ key, sequence }) => key === last && sequence === 2))
  const logged = lines.filter(({ message }) => message.startsWith('clock skew to server'))
  assert.ok(logged.length > 0 && logged.length <= LINES_MAX, `${logged.length} lines`)
  assert.equal(keys.clocks.skewed.length, 100, 'warnings still report each')
})
