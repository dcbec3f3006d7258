/** Verifies the numbered lines of the rotating writer as they arrive, without storing them. */

export const FILLER = 'the quick brown fox jumps over the lazy dog and goes on for a while '

export function numberedLine(line: number): string {
  return `${line} ${FILLER.slice(0, line % FILLER.length)}`
}

const BLOCK_BYTES = 65_536
/** Maximum distance between readers, in blocks of 64 KiB, without generating blocks again. */
const BLOCKS_KEPT = 512

/**
 * The output of the writer in blocks of complete lines, shared by all checkers: generating a line takes far longer than
 * comparing it, and twenty followers read the same lines.
 */
const blocks = new Map<number, Buffer>()
/** The first line of each generated block and of the next one. */
const firstLines = [0]

function blockAt(index: number): Buffer {
  const kept = blocks.get(index)
  if (kept) return kept
  // Checkers advance block by block, so it is known.
  let line = firstLines[index] ?? 0
  const lines: string[] = []
  for (let bytes = 0; bytes < BLOCK_BYTES; line++) {
    const text = `${numberedLine(line)}\n`
    lines.push(text)
    bytes += text.length
  }
  firstLines[index + 1] = line
  const block = Buffer.from(lines.join(''), 'latin1')
  blocks.set(index, block)
  const [oldest] = blocks.keys()
  if (blocks.size > BLOCKS_KEPT && oldest !== undefined) blocks.delete(oldest)
  return block
}

export class LineChecker {
  fault: string | undefined
  #block = 0
  /** Offset in the block. */
  #at = 0

  push(bytes: Buffer): void {
    for (let at = 0; at < bytes.length && this.fault === undefined; ) {
      const block = blockAt(this.#block)
      const length = Math.min(bytes.length - at, block.length - this.#at)
      if (bytes.compare(block, this.#at, this.#at + length, at, at + length) !== 0) {
        this.#tell(block, bytes.subarray(at, at + length))
        return
      }
      at += length
      this.#at += length
      if (this.#at < block.length) continue
      this.#block++
      this.#at = 0
    }
  }

  /** Reports the first difference. */
  #tell(block: Buffer, bytes: Buffer): void {
    const same = bytes.findIndex((byte, index) => byte !== block[this.#at + index])
    const before = block.toString('latin1', 0, this.#at + same).split('\n')
    const line = (firstLines[this.#block] ?? 0) + before.length - 1
    const begun = before.at(-1) ?? ''
    const there = begun + bytes.toString('latin1', same, same + 90 - Math.min(90, begun.length))
    this.fault = `line ${line} is ${JSON.stringify(there.split('\n')[0])}`
  }
}
