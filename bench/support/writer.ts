/**
 * Helper program: the task. Appends to logs in its own process, so that its times are those of the write
 * and not of a busy client.
 */
import { closeSync, openSync, rmSync, writeSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import { helperOptions } from './child.ts'
import { block, BLOCK_BYTES, line } from './content.ts'
import { nowMs } from './measure.ts'

export type Order =
  /** Lines `first` .. `first + count - 1`, one each `everyMs`. The response has the time of each. */
  | { readonly kind: 'lines'; readonly file: string; readonly first: number; readonly count: number; everyMs: number }
  /** As many lines, so many a second, in one write each 10 ms. Answered with the times of the first and the last write. */
  | { readonly kind: 'rate'; readonly file: string; readonly first: number; count: number; linesPerSecond: number }
  /**
   * Writes blocks as fast as they are read, in files of `fileBytes`. Keeps the last `keep` files, and older ones
   * until they have been read, so any loss is that of the reader's server. The response has the times of the first and the last write.
   */
  | { readonly kind: 'rotate'; readonly prefix: string; total: number; fileBytes: number; keep: number }
  /** How far the reader of the rotated log is. */
  | { readonly kind: 'read'; readonly bytes: number }

export type Answer = readonly number[]

const BATCH_MS = 10

/** How far the reader of the rotated log is. */
const reader = { bytes: 0 }

async function writeLines(order: Extract<Order, { kind: 'lines' }>): Promise<Answer> {
  const fd = openSync(order.file, 'a')
  const times: number[] = []
  const beganMs = nowMs()
  for (let index = 0; index < order.count; index++) {
    const waitMs = beganMs + index * order.everyMs - nowMs()
    if (waitMs > 1) await pause(waitMs - 0.5)
    const text = line(order.first + index)
    times.push(nowMs())
    writeSync(fd, text)
  }
  closeSync(fd)
  return times
}

async function writeRate({ count, file, first, linesPerSecond }: Extract<Order, { kind: 'rate' }>): Promise<Answer> {
  const fd = openSync(file, 'a')
  const batch = Math.max(1, Math.round((linesPerSecond * BATCH_MS) / 1000))
  const beganMs = nowMs()
  for (let index = 0; index < count; index += batch) {
    const size = Math.min(batch, count - index)
    const text = Buffer.concat(Array.from({ length: size }, (_, at) => line(first + index + at)))
    const waitMs = beganMs + (index / linesPerSecond) * 1000 - nowMs()
    if (waitMs > 1) await pause(waitMs - 0.5)
    writeSync(fd, text)
  }
  closeSync(fd)
  return [beganMs, nowMs()]
}

async function writeRotated(order: Extract<Order, { kind: 'rotate' }>): Promise<Answer> {
  const { prefix, total, fileBytes, keep } = order
  const chunk = Buffer.allocUnsafeSlow(BLOCK_BYTES)
  let [index, removed] = [0, 0]
  let fd = openSync(`${prefix}.0`, 'a')
  reader.bytes = 0
  const beganMs = nowMs()
  for (let at = 0; at < total; at += BLOCK_BYTES) {
    if (at >= (index + 1) * fileBytes) {
      closeSync(fd)
      fd = openSync(`${prefix}.${++index}`, 'a')
    }
    writeSync(fd, block(at / BLOCK_BYTES, chunk))
    if ((at / BLOCK_BYTES) % 16 === 0) await new Promise((resolve) => setImmediate(resolve))
    const tooFar = () => at + BLOCK_BYTES - reader.bytes > keep * fileBytes
    while (tooFar()) await pause(1)
    for (; removed < index - keep && reader.bytes > (removed + 2) * fileBytes; removed++) rmSync(`${prefix}.${removed}`)
  }
  closeSync(fd)
  return [beganMs, nowMs()]
}

function written(order: Exclude<Order, { kind: 'read' }>): Promise<Answer> {
  if (order.kind === 'lines') return writeLines(order)
  return order.kind === 'rate' ? writeRate(order) : writeRotated(order)
}

if (import.meta.main) {
  helperOptions()
  process.on('message', (message) => {
    const order = message as Order
    if (order.kind === 'read') reader.bytes = order.bytes
    else void written(order).then((answer) => process.send?.(answer))
  })
}
