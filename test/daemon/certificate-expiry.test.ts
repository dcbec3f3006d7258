/** Warnings about certificates that expire: they follow the certificate in use. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { loadConfig } from '../../src/config/load.ts'
import { CertificateExpiry } from '../../src/daemon/monitoring/certificates.ts'
import { workDirectory, writeConfig } from '../helpers/agent-process.ts'
import { type LogLine, recordingLogger } from '../helpers/recording-logger.ts'

const DAY_MS = 86_400_000

test('the certificate of a NATS server that connects later, or is renewed, is reported at once', (t) => {
  const { config } = loadConfig({ paths: [writeConfig(workDirectory(t), '')] })
  const lines: LogLine[] = []
  let natsServerMs: number | undefined
  const expiry = new CertificateExpiry({
    logger: recordingLogger(lines),
    config: () => config,
    http: () => undefined,
    cluster: () => [],
    natsServerExpiryMs: () => natsServerMs,
  })
  t.after(() => expiry.stop())
  assert.deepEqual([expiry.warnings, lines], [[], []])
  natsServerMs = Date.now() + 3.5 * DAY_MS
  assert.match(expiry.warnings.join(), /^certificate "nats_server" expires in 3 days/)
  assert.equal(expiry.warnings.length, 1)
  natsServerMs = Date.now() + 90 * DAY_MS
  assert.deepEqual(expiry.warnings, [])
  assert.equal(expiry.families()[0]?.points[0]?.value, 90)
  natsServerMs = undefined
  assert.deepEqual([expiry.warnings, expiry.families()], [[], []], 'without a connection it is not known')
  assert.deepEqual(
    lines.map(({ fields, level, message }) => [level, message, fields['certificate']]),
    [
      ['warn', 'certificate expires soon', 'nats_server'],
      ['info', 'certificate renewed', 'nats_server'],
    ],
  )
})
