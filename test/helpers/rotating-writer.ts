/**
 * A writer in a separate process, like logmon: numbered lines at full speed, a new file when one is full, and old files
 * removed. The index of the slowest reader arrives on stdin, one per line, and files that it has not read are kept.
 * Arguments: directory, total bytes, bytes per file, number of files. At the end it prints the written bytes, the index
 * of the last file and the SHA-256 of everything.
 */
import { createHash } from 'node:crypto'
import { closeSync, openSync, unlinkSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { numberedLine } from './line-checker.ts'

const [directory = '.', total = '0', fileBytes = '0', kept = '10'] = process.argv.slice(2)
const path = (index: number) => join(directory, `web.stdout.${index}`)

const reader = { index: 0 }
let oldest = 0
let input = ''
process.stdin.setEncoding('utf8').on('data', (text: string) => {
  input += text
  const lines = input.split('\n')
  input = lines.pop() ?? ''
  reader.index = Math.max(reader.index, ...lines.map(Number))
})

/** About 64 KiB of lines from `line` on. */
function blockOf(line: number): { text: string; next: number } {
  const lines: string[] = []
  for (let bytes = 0; bytes < 65_536; line++) {
    const text = `${numberedLine(line)}\n`
    lines.push(text)
    bytes += text.length
  }
  return { text: lines.join(''), next: line }
}

let index = 0
let fd = openSync(path(0), 'a')
let written = 0
const hash = createHash('sha256')
for (let line = 0, inFile = 0; written < Number(total); ) {
  const block = blockOf(line)
  inFile += writeSync(fd, block.text)
  written += block.text.length
  hash.update(block.text)
  line = block.next
  if (inFile < Number(fileBytes)) continue
  closeSync(fd)
  fd = openSync(path(++index), 'a')
  inFile = 0
  while (index - oldest >= Number(kept)) {
    // A file removed too early would be lost as documented, and the test would prove nothing.
    while (oldest >= reader.index) await new Promise((resolve) => setTimeout(resolve, 5))
    unlinkSync(path(oldest++))
  }
}
process.stdout.write(`${written} ${index} ${hash.digest('hex')}\n`)
process.stdin.destroy()
