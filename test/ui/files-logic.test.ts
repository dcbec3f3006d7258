/** Logic of the views of files, without a browser. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parseFilter } from '../../src/cluster/api/filter.ts'
import { allocationFilter } from '../../ui/views/files/allocation-filter.ts'
import { kindOf } from '../../ui/views/files/file-kind.ts'
import {
  contentHeight,
  HEIGHT_MAX_PX,
  HexPages,
  hexRow,
  PAGE_BYTES,
  parseOffset,
  rowWindow,
  scrollOf,
} from '../../ui/views/files/hex.ts'
import { dimensionsOf, hasTooManyPixels } from '../../ui/views/files/image-size.ts'
import { firstInvisible, savedName, visibleLines, visibleText } from '../../ui/app/invisible-characters.ts'
import { logOf, fileSegmentsOf } from '../../ui/views/files/names.ts'
import { tail, type TailState, TRUNCATED } from '../../ui/views/files/tail.ts'
import { closed, type Entry, keyOf, type OpenDirectories, type TreeRow, treeRows } from '../../ui/views/files/tree.ts'
import { TextBlocks } from '../../ui/views/files/text-blocks.ts'
import { eventually } from '../helpers/eventually.ts'

const bytesOf = (text: string) => new TextEncoder().encode(text)
test('names show their invisible characters', () => {
  assert.equal(visibleText('evil\u202etxt.exe'), String.raw`evil\u{202e}txt.exe`)
  assert.equal(visibleText('a\nb\u0000\u001b[31m'), String.raw`a\u{a}b\u{0}\u{1b}[31m`)
  assert.equal(visibleText('größe 👩‍💻 <b>'), 'größe 👩‍💻 <b>')
  assert.deepEqual(firstInvisible('a\r\n\tb\n# \u2066 x'), { line: 3, name: 'U+2066' })
  assert.equal(firstInvisible('größe 👩‍💻\r\n\t'), undefined)
  assert.equal(savedName('photo-\u202egnp.exe\u0000/..\\x'), 'photo-_gnp.exe__.._x')
  assert.equal(visibleText('app\u3164b\u2800c\u200dd\ufe0f'), String.raw`app\u{3164}b\u{2800}c\u{200d}d\u{fe0f}`)
  assert.equal(visibleText('1\ufe0f\u20e3 ❤\ufe0f'), '1\ufe0f\u20e3 ❤\ufe0f')
  const marks = '\u0301'.repeat(5)
  assert.equal(visibleText(`e${marks}\u0301\u0302x`), String.raw`e${marks}\u{301}\u{302}x`)
  assert.equal(visibleLines('a\r\n\tb\u202e'), 'a\n\tb\\u{202e}')
})

test('paths and names of log files are recognized', () => {
  assert.deepEqual(fileSegmentsOf('alloc//logs/'), ['alloc', 'logs'])
  assert.deepEqual(logOf(['alloc', 'logs', 'my.web.stdout.12']), { task: 'my.web', type: 'stdout' })
  assert.equal(logOf(['web', 'local', 'web.stdout.0']), undefined)
})

test('the content of a file decides how it is shown', () => {
  const png = Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0)
  assert.deepEqual(kindOf(png), { kind: 'image', contentType: 'image/png' })
  assert.equal(kindOf(bytesOf('<svg onload="alert(1)"/>')).kind, 'text')
  assert.equal(kindOf(bytesOf('GIF8')).kind, 'image')
  assert.equal(kindOf(new Uint8Array()).kind, 'empty')
  assert.equal(kindOf(Uint8Array.of(65, 0, 66)).kind, 'binary')
  assert.equal(kindOf(Uint8Array.of(0xff, 0xfe, 0x41)).kind, 'binary')
  // The end is within a character.
  assert.equal(kindOf(bytesOf('größe ✓').subarray(0, -1)).kind, 'text')
})

test('rows of bytes have the offset, digits and characters', () => {
  assert.deepEqual(hexRow(Uint8Array.of(0, 0x41, 0x7f, 0xff, 1, 2, 3, 4, 0x20), 16), {
    offset: '00000010',
    hex: '00 41 7f ff 01 02 03 04  20',
    ascii: '.A...... ',
  })
  assert.equal(parseOffset('0x1000'), 4096)
  assert.equal(parseOffset(' 4_096 '), 4096)
  for (const text of ['', 'x', '-1', '1.5', '0xg', '99999999999999999999']) assert.equal(parseOffset(text), undefined)
})

test('a file of any size has rows at all scroll positions', () => {
  const rowPx = 20
  const viewPx = 600
  assert.deepEqual(rowWindow({ topPx: 410, viewPx }, 1000, rowPx), { first: 20, topPx: 400 })
  const rows = 2 ** 40 / 16
  assert.equal(contentHeight(rows, rowPx), HEIGHT_MAX_PX)
  const last = rowWindow({ topPx: HEIGHT_MAX_PX - viewPx, viewPx }, rows, rowPx)
  assert.equal(last.first, rows - 30)
  for (const row of [0, 12_345, rows / 2, rows - 30]) {
    const topPx = scrollOf(row, viewPx, rows, rowPx)
    assert.ok(Math.abs(rowWindow({ topPx, viewPx }, rows, rowPx).first - row) <= 1, `row ${row}`)
  }
})

test('pages of bytes are read once, the oldest are dropped, and a failed read is repeated', async () => {
  const read: number[] = []
  let isFailing = true
  const errors: (Error | undefined)[] = []
  const pages = new HexPages({
    async read(offset) {
      read.push(offset)
      if (isFailing) throw new Error('gone')
      return new Uint8Array(PAGE_BYTES).fill(offset / PAGE_BYTES)
    },
    onChange: (error) => errors.push(error),
  })
  assert.equal(pages.row(0), undefined)
  assert.equal(pages.row(1), undefined)
  await eventually(() => errors.length === 1)
  assert.match(errors[0]?.message ?? '', /gone/)
  isFailing = false
  pages.row(0)
  await eventually(() => errors.length === 2)
  assert.equal(pages.row(5)?.length, 16)
  assert.deepEqual(read, [0, 0])
  for (let page = 1; page <= 64; page++) pages.row((page * PAGE_BYTES) / 16)
  await eventually(() => errors.length === 66)
  pages.row(0)
  assert.equal(read.filter((offset) => offset === 0).length, 3)
})

test('text is kept in blocks, and the oldest are dropped', () => {
  const text = new TextBlocks(50_000)
  for (let line = 0; line < 10_000; line++) text.append(`line ${line}\n`)
  const all = text.blocks.map((block) => block.text).join('')
  assert.ok(text.isCut)
  assert.ok(all.length <= 50_000 && all.length > 25_000)
  assert.ok(all.endsWith('line 9999\n'))
  assert.ok(text.blocks.every((block) => block.text.startsWith('line ')))
  assert.equal(all.length, text.chars)
  const long = new TextBlocks(Infinity)
  long.append('x'.repeat(100_000))
  long.append('y')
  assert.equal(long.blocks.map((block) => block.text).join(''), `${'x'.repeat(100_000)}y`)
  assert.ok(long.blocks.length > 2)
})

const frame = (text: string | undefined, cursor: string, event = '') => ({
  data: text === undefined ? undefined : bytesOf(text),
  event,
  cursor,
})

test('a tail continues at its cursor after a lost connection, and ends when the file is deleted', async () => {
  const cursors: string[] = []
  const states: TailState['kind'][] = []
  let text = ''
  const abort = new AbortController()
  await tail({
    async *open(cursor) {
      cursors.push(cursor)
      if (cursors.length === 1) {
        yield frame('one ', 'c1')
        throw new Error('connection lost')
      }
      if (cursors.length === 2) {
        yield frame(undefined, 'c2', 'file truncated')
        yield frame('two', 'c3')
        return
      }
      yield frame(undefined, 'c4', 'file deleted')
    },
    onText: (added) => (text += added),
    onState: ({ kind }) => states.push(kind),
    isFinal: () => false,
    signal: abort.signal,
    wait: async () => undefined,
  })
  assert.deepEqual(cursors, ['', 'c1', 'c3'])
  assert.equal(text, `one ${TRUNCATED}two`)
  assert.equal(states.filter((kind) => kind === 'waiting').length, 2)
  assert.equal(states.at(-1), 'ended')
})

test('a tail does not repeat a refused request', async () => {
  let opened = 0
  const states: TailState[] = []
  await tail({
    open() {
      opened++
      throw new Error('Permission denied')
    },
    onText: () => undefined,
    onState: (state) => states.push(state),
    isFinal: () => true,
    signal: new AbortController().signal,
  })
  assert.equal(opened, 1)
  assert.deepEqual(states.at(-1), { kind: 'ended', reason: 'Permission denied' })
})

test('the search for allocations is a filter that the server accepts', () => {
  assert.equal(allocationFilter('  '), undefined)
  const fields = new Set(['Name', 'JobID', 'NodeName', 'Namespace', 'ID'])
  const matches = (text: string, record: Readonly<Record<string, string>>) =>
    parseFilter(allocationFilter(text) ?? '', fields)(record)
  assert.equal(matches('WEB host', { Name: 'web.api[0]', NodeName: 'host-1' }), true)
  assert.equal(matches('web db', { Name: 'web.api[0]', NodeName: 'host-1' }), false)
  assert.equal(matches('api[0]', { Name: 'web.api[0]' }), true)
  assert.equal(matches('a.i', { Name: 'web.api[0]' }), false)
  assert.equal(matches('"\\', { Name: 'a"\\b' }), true)
})

function hex(text: string): ArrayBuffer {
  return Uint8Array.from(Buffer.from(text.replaceAll(' ', ''), 'hex')).buffer
}

test('the pixels of an image are known from its header', () => {
  const riff = '52494646 00000000 57454250'
  const images = [
    ['image/png', '89504e470d0a1a0a 0000000d 49484452 0000c350 00004e20'],
    ['image/gif', '474946383961 50c3 204e'],
    ['image/bmp', `424d${'00'.repeat(16)} 50c30000 e0b1ffff`],
    ['image/jpeg', 'ffd8 ffe0 0004 0000 ffc2 0011 08 4e20 c350 03'],
    ['image/webp', `${riff} 56503858 0a000000 00000000 4fc300 1f4e00`],
    ['image/avif', '00000014 66747970 61766966 00000000 00000014 69737065 00000000 0000c350 00004e20'],
  ] as const
  for (const [contentType, bytes] of images) {
    const found = dimensionsOf(hex(bytes), contentType)
    assert.deepEqual([contentType, found], [contentType, { width: 50_000, height: 20_000 }])
    assert.equal(found && hasTooManyPixels(found), true)
    assert.equal(dimensionsOf(hex(bytes.slice(0, 10)), contentType), undefined, `${contentType}, cut`)
  }
  const small = `${riff} 56503820 00000000 000000 9d012a 0700 0500 0000`
  assert.deepEqual(dimensionsOf(hex(small), 'image/webp'), { width: 7, height: 5 })
  const lossless = `${riff} 5650384c 00000000 2f 06000100`
  assert.deepEqual(dimensionsOf(hex(lossless), 'image/webp'), { width: 7, height: 5 })
})

const entry = (Name: string, IsDir = false, Size = 0): Entry => ({ FileMode: '', IsDir, ModTime: '', Name, Size })
const pathsOf = (rows: readonly TreeRow[]) => rows.map(({ below }) => keyOf(below))
const largestFirst = (one: Entry, other: Entry) => other.Size - one.Size

test('directories are opened in place, each level in one order, and closed with those below', () => {
  const top = [entry('a.txt', false, 5), entry('alloc', true), entry('b.txt', false, 9), entry('web', true)]
  const open: OpenDirectories = new Map([
    ['alloc', { entries: [entry('logs', true), entry('z', false, 1)] }],
    ['alloc/logs', { entries: [entry('web.stdout.0', false, 7)] }],
    ['web', { error: 'Permission denied' }],
  ])
  assert.deepEqual(pathsOf(treeRows(top, open)), [
    'alloc',
    'alloc/logs',
    'alloc/logs/web.stdout.0',
    'alloc/z',
    'web',
    'a.txt',
    'b.txt',
  ])
  assert.equal(treeRows(top, open).find(({ Name }) => Name === 'web')?.error, 'Permission denied')
  assert.deepEqual(pathsOf(treeRows(top, closed(open, ['alloc']), { compare: largestFirst })), [
    'b.txt',
    'a.txt',
    'alloc',
    'web',
  ])
  assert.deepEqual(pathsOf(treeRows(top, open, { search: 'all' })).slice(0, 2), ['alloc', 'alloc/logs'])
})
