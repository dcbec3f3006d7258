/**
 * Content that can be checked at any position: 64 KiB blocks of text lines, each starting with its block number, and
 * log lines with their line number.
 */
import { createHash } from 'node:crypto'
import { closeSync, openSync, readSync, writeSync } from 'node:fs'

export const MiB = 1 << 20
export const BLOCK_BYTES = 65_536
export const LINE_BYTES = 100
const NUMBER_DIGITS = 10

const TEMPLATE = (() => {
  const text = Buffer.allocUnsafeSlow(BLOCK_BYTES)
  let random = 12_345
  for (let index = 0; index < BLOCK_BYTES; index++) {
    random = (Math.imul(random, 1_103_515_245) + 12_345) >>> 0
    text[index] = (index + 1) % 128 === 0 ? 10 : 48 + ((random >>> 16) % 64)
  }
  return text
})()

/** The block of this number, in a buffer of its own or in `into`. */
export function block(number: number, into: Buffer = Buffer.allocUnsafeSlow(BLOCK_BYTES)): Buffer {
  TEMPLATE.copy(into)
  into.write(String(number).padStart(NUMBER_DIGITS, '0'), 'latin1')
  return into
}

const expected = Buffer.from(TEMPLATE)
let expectedNumber = -1

/** True when `data` is what the blocks from 0 on hold at `position`. */
export function isContent(data: Buffer, position: number): boolean {
  for (let done = 0; done < data.length; ) {
    const number = Math.floor((position + done) / BLOCK_BYTES)
    const from = (position + done) % BLOCK_BYTES
    const length = Math.min(BLOCK_BYTES - from, data.length - done)
    if (number !== expectedNumber) expected.write(String(number).padStart(NUMBER_DIGITS, '0'), 'latin1')
    expectedNumber = number
    if (data.compare(expected, from, from + length, done, done + length) !== 0) return false
    done += length
  }
  return true
}

/** Writes `bytes` of blocks from `firstBlock` on, and reads them back, so that they are in the page cache. */
export function writeContent(path: string, bytes: number, firstBlock = 0): void {
  const fd = openSync(path, 'w+')
  const chunk = Buffer.allocUnsafeSlow(BLOCK_BYTES)
  for (let at = 0; at < bytes; at += BLOCK_BYTES) {
    writeSync(fd, block(firstBlock + at / BLOCK_BYTES, chunk), 0, Math.min(BLOCK_BYTES, bytes - at))
  }
  for (let at = 0; at < bytes; at += BLOCK_BYTES) readSync(fd, chunk, 0, BLOCK_BYTES, at)
  closeSync(fd)
}

/** SHA-256 of `bytes` of blocks from 0 on. */
export function contentHash(bytes: number): string {
  const hash = createHash('sha256')
  const chunk = Buffer.allocUnsafeSlow(BLOCK_BYTES)
  for (let at = 0; at < bytes; at += BLOCK_BYTES) {
    hash.update(block(at / BLOCK_BYTES, chunk).subarray(0, bytes - at))
  }
  return hash.digest('hex')
}

export function line(number: number): Buffer {
  const text = `L${String(number).padStart(NUMBER_DIGITS, '0')} `
  return Buffer.from(`${text.padEnd(LINE_BYTES - 1, '.')}\n`, 'latin1')
}

export function lines(count: number): Buffer {
  return Buffer.concat(Array.from({ length: count }, (_, number) => line(number)))
}
