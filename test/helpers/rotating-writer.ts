/**
 * A writer in a process of its own, as logmon is: numbered lines at full speed, a new file when one is full, and old
 * files removed. How far the slowest reader has come arrives on stdin, one index a line: what nobody has read is kept.
 * Arguments: directory, total bytes, bytes of a file, files kept.
 */
import { closeSync, openSync, unlinkSync, writeSync } from 'node:fs'
import { join } from 'node:path'

const [directory = '.', total = '0', fileBytes = '0', kept = '10'] = process.argv.slice(2)
const path = (index: number) => join(directory, `web.stdout.${index}`)
const FILLER = 'the quick brown fox jumps over the lazy dog and goes on for a while '

const reader = { index: 0 }
let oldest = 0
let input = ''
process.stdin.setEncoding('utf8').on('data', (text: string) => {
  input += text
  const lines = input.split('\n')
  input = lines.pop() ?? ''
  reader.index = Math.max(reader.index, ...lines.map(Number))
})

/** Lines from `line` on, about 64 KiB of them. */
function blockOf(line: number): { text: string; next: number } {
  const lines: string[] = []
  for (let bytes = 0; bytes < 65_536; line++) {
    const text = `${line} ${FILLER.slice(0, line % FILLER.length)}\n`
    lines.push(text)
    bytes += text.length
  }
  return { text: lines.join(''), next: line }
}

let index = 0
let fd = openSync(path(0), 'a')
let written = 0
for (let line = 0, inFile = 0; written < Number(total); ) {
  const block = blockOf(line)
  inFile += writeSync(fd, block.text)
  written += block.text.length
  line = block.next
  if (inFile < Number(fileBytes)) continue
  closeSync(fd)
  fd = openSync(path(++index), 'a')
  inFile = 0
  while (index - oldest >= Number(kept)) {
    // Gone too early it would be lost rightly, and the test would tell nothing.
    while (oldest >= reader.index) await new Promise((resolve) => setTimeout(resolve, 5))
    unlinkSync(path(oldest++))
  }
}
process.stdout.write(`${written} ${index}\n`)
process.stdin.destroy()
