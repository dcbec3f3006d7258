import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Frame, FrameReader, MalformedFrame } from '../../../src/cli/streams/frame-reader.ts'
import { FrameLabel, framesBytesMax } from '../../../src/platform/stream-frame.ts'
import { Random } from '../../helpers/frames.ts'

function readAll(bytes: Buffer, cut: () => number): Frame[] {
  const reader = new FrameReader()
  const frames: Frame[] = []
  for (let from = 0; from < bytes.length; ) {
    const to = Math.min(bytes.length, from + cut())
    reader.push(bytes.subarray(from, to))
    for (let frame = reader.next(); frame; frame = reader.next()) frames.push(frame)
    from = to
  }
  assert.equal(reader.pending, 0)
  return frames
}

const dataOf = (frames: readonly Frame[]) => Buffer.concat(frames.map(({ data }) => data ?? Buffer.alloc(0)))

test('frames of every size, cut at every kind of place, give the same bytes', () => {
  const random = new Random(7)
  const parts: Buffer[] = []
  const encoded: Buffer[] = []
  for (const length of [1, 2, 3, 65_535, 65_536, 200_000, 5, 900_000]) {
    const data = random.bytes(length)
    const label = new FrameLabel('alloc/logs/a{b}".stdout.0')
    const out = Buffer.alloc(framesBytesMax(length, label))
    encoded.push(Buffer.from('{}'), out.subarray(0, label.encodeFrames(data, 0, length, 0, out, 0)))
    parts.push(data)
  }
  const wire = Buffer.concat(encoded)
  const whole = Buffer.concat(parts)
  for (const most of [1, 7, 100, 65_536, 1_000_000, wire.length]) {
    const frames = readAll(wire, () => random.between(1, most))
    assert.ok(dataOf(frames).equals(whole), `cut at ${most}`)
    assert.equal(frames.filter(({ data }) => !data).length, 8, 'heartbeats')
    assert.ok(frames.every(({ data, file }) => !data || file === 'alloc/logs/a{b}".stdout.0'))
  }
})

test('a frame cut right after its data survives a move of the buffer', () => {
  const data = new Random(11).bytes(65_536)
  const text = `{"Data":"${data.toString('base64')}","File":"f","Cursor":"c"}`
  const cut = text.indexOf('","File"') + 1
  const reader = new FrameReader()
  reader.push(Buffer.from(text.slice(0, cut)))
  for (let count = 0; count < 20; count++) {
    assert.equal(reader.next(), undefined)
    reader.push(Buffer.from(text.slice(cut) + text.slice(0, cut)))
    const frame = reader.next()
    assert.ok(frame?.data?.equals(data))
    assert.deepEqual([frame?.file, frame?.cursor], ['f', 'c'])
  }
})

const odd: [string, Partial<Frame>][] = [
  ['{}', { data: undefined, file: '', event: '', cursor: undefined }],
  ['{"Cursor":"c1"}', { data: undefined, cursor: 'c1' }],
  [
    '{"Data":"aGk=","File":"f}{\\"\\\\","Offset":2,"Cursor":"x"}',
    { data: Buffer.from('hi'), file: 'f}{"\\', cursor: 'x' },
  ],
  ['{"File":"f","Data":"aGk="}', { data: Buffer.from('hi'), file: 'f' }],
  ['{"Data":"","File":"f"}', { data: Buffer.alloc(0), file: 'f' }],
  ['{"Data":"\\/\\/\\/\\/","File":"f"}', { data: Buffer.from([255, 255, 255]), file: 'f' }],
  ['{ "Data" : "aGk=" , "X" : {"Data":"no}"} }', { data: Buffer.from('hi') }],
  ['{"File":"f","FileEvent":"file deleted","Offset":9}', { event: 'file deleted', file: 'f', data: undefined }],
  ['{"Data":"aGk="}', { data: Buffer.from('hi'), file: '' }],
]
for (const [text, expected] of odd) {
  test(`reads ${text}`, () => {
    for (const size of [1, 2, 1000]) {
      const frames = readAll(Buffer.from(` \n${text}${text}\n`), () => size)
      assert.equal(frames.length, 2)
      for (const frame of frames) assert.deepEqual({ ...frame, ...expected }, frame)
    }
  })
}

function readTwo(text: string): void {
  const reader = new FrameReader()
  reader.push(Buffer.from(text))
  reader.next()
  reader.next()
}

test('input that is not a frame is an error with its text', () => {
  assert.throws(
    () => readTwo('{}failed to list entries: no'),
    (error) => {
      return error instanceof MalformedFrame && error.message === 'failed to list entries: no'
    },
  )
  assert.throws(() => readTwo('{"a":tru}'), MalformedFrame)
  assert.throws(() => readTwo('[1]'), MalformedFrame)
})

test('the size of a frame is limited', () => {
  const reader = new FrameReader()
  reader.push(Buffer.from('{"Data":"'))
  const piece = Buffer.alloc(1024 * 1024, 'A')
  assert.throws(() => {
    for (let count = 0; count < 64; count++) {
      reader.push(piece)
      reader.next()
    }
  }, MalformedFrame)
})
