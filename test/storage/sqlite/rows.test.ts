/** The checksum of a row does not depend on how it is computed, so it matches existing logs. */
import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { test } from 'node:test'
import { checksumOf } from '../../../src/storage/sqlite/rows.ts'

test('the checksum of a row is SHA-256 of the previous checksum, three 8-byte numbers and the batch', () => {
  for (const bytes of [0, 1, 1400, 65_479, 65_480, 65_481, 200_000]) {
    for (const number of [0, 2 ** 32 - 1, 2 ** 32, Number.MAX_SAFE_INTEGER]) {
      for (const before of [randomBytes(32), Buffer.alloc(0)]) {
        const batch = randomBytes(bytes)
        const numbers = Buffer.alloc(24)
        for (const at of [0, 8, 16]) numbers.writeBigUInt64BE(BigInt(number), at)
        const wanted = createHash('sha256').update(before).update(numbers).update(batch).digest('hex')
        const found = checksumOf({ sequence: number, epoch: number, atMs: number, batch }, before)
        assert.equal(found.toString('hex'), wanted, `${bytes} bytes, ${number}`)
      }
    }
  }
})
