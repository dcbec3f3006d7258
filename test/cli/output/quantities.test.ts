import assert from 'node:assert/strict'
import { test } from 'node:test'
import { humanAge, humanBytes, humanSeconds } from '../../../src/cli/output/table.ts'

test('bytes have at most one decimal and the unit in which they are below 1024', () => {
  const shown = [0, 1023, 1024, 1536, 150 * 1024, 3 * 1024 ** 3, 2 ** 70].map(humanBytes)
  assert.deepEqual(shown, ['0 B', '1023 B', '1.0 KiB', '1.5 KiB', '150 KiB', '3.0 GiB', '1024 EiB'])
})

test('times are shown in two neighboring units, the larger one never zero', () => {
  const shown = [-5, 0, 59.9, 60, 3600, 86_400 + 300, 90_061].map(humanSeconds)
  assert.deepEqual(shown, ['0s', '0s', '59s', '1m0s', '1h0m', '1d0h', '1d1h'])
  assert.equal(humanAge(1000, 4_000_000), '1h6m ago')
})
