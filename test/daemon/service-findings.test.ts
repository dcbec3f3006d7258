/** Findings about the running service. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { loadConfig } from '../../src/config/load.ts'
import { checkService } from '../../src/daemon/diagnosis/service.ts'
import { workDirectory, writeConfig } from '../helpers/agent-process.ts'

test('checks that fail because NATS is not connected have the same next step', (t) => {
  const reason = 'not connected to NATS'
  const { config } = loadConfig({ paths: [writeConfig(workDirectory(t), '')] })
  const checks = ['nats', 'roster', 'secrets_core'].map((name) => ({ name, state: 'failing', reason }))
  const service = { url: '', version: '', isReady: false, checks, warnings: [] }
  const [, ...failing] = checkService({ config, configPaths: [], version: '', service })
  assert.deepEqual(new Set(failing.map(({ next }) => next)), new Set(['see the findings below nats']))
})
