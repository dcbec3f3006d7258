/** Frames, byte for byte, against the plainest encoder. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { FRAME_DATA_BYTES_MAX, FrameLabel, framesBytesMax, HEARTBEAT } from '../../src/platform/stream-frame.ts'
import { FrameReader, naiveFrame, Random } from '../helpers/frames.ts'

const NAMES = [
  'a',
  'alloc/logs/web.stdout.0',
  '}{',
  '{"Data":"x"}{}',
  'quote " and backslash \\',
  'control \u0000\u0001\u001f\n\r\t\b\f\u007f',
  'umlaut ä, snowman \u2603, emoji \u{1f600}, separators \u2028\u2029',
  'half a pair \ud800 and \udfff',
  '<script>&amp;</script>',
  'x'.repeat(4096),
  '{'.repeat(4096),
]

function encode(file: string, data: Buffer, from: number, to: number, startOffset: number): string {
  const label = new FrameLabel(file)
  const most = framesBytesMax(to - from, label)
  // Guard bytes in front and behind: nothing may be written outside.
  const target = Buffer.alloc(most + 16, 0xee)
  const end = label.encodeFrames(data, from, to, startOffset, target, 8)
  assert.ok(end <= 8 + most, `${end - 8} bytes written, at most ${most} announced`)
  assert.ok(target.subarray(0, 8).equals(Buffer.alloc(8, 0xee)))
  assert.ok(target.subarray(end).every((byte) => byte === 0xee))
  return target.toString('utf8', 8, end)
}

function naive(file: string, data: Buffer, from: number, to: number, startOffset: number): string {
  let text = ''
  for (let begin = from; begin < to; begin += FRAME_DATA_BYTES_MAX) {
    const end = Math.min(to, begin + FRAME_DATA_BYTES_MAX)
    text += naiveFrame({ data: data.subarray(begin, end), file, offset: startOffset + end - from })
  }
  return text
}

test('a frame equals the recorded one', () => {
  const data = Buffer.from('0123456789'.repeat(4))
  const text = encode('alloc/logs/web.stdout.0', data, 0, 40, 0)
  assert.equal(text, `{"Data":"${data.toString('base64')}","File":"alloc/logs/web.stdout.0","Offset":40}`)
  assert.equal(encode('f.txt', Buffer.from('hello'), 0, 5, 0), '{"Data":"aGVsbG8=","File":"f.txt","Offset":5}')
  assert.equal(HEARTBEAT.toString(), '{}')
})

test('frames of random data are the frames of the plain encoder', () => {
  const seed = Number(process.env['OUTPOST_SEED'] ?? Date.now() % 1e9)
  const random = new Random(seed)
  const sizes = [1, 2, 3, 4, 255, 65_535, 65_536, 65_537, 131_072, 200_000]
  for (let run = 0; run < 150; run++) {
    const data = random.bytes(
      run < sizes.length ? (sizes[run] ?? 1) : random.between(1, random.chance(0.1) ? 150_000 : 600),
    )
    const from = random.chance(0.5) ? 0 : random.between(0, data.length - 1)
    const to = random.between(from, data.length)
    const start = random.chance(0.2) ? Number.MAX_SAFE_INTEGER - data.length : random.between(0, 2 ** 40)
    const file = NAMES[run % NAMES.length] ?? 'a'
    const text = encode(file, data, from, to, start)
    assert.equal(text, naive(file, data, from, to, start), `OUTPOST_SEED=${seed}, run ${run}`)
    const frames = new FrameReader().push(Buffer.from(text))
    assert.equal(frames.at(-1)?.Offset, to > from ? start + to - from : undefined)
    const back = Buffer.concat(frames.map((frame) => Buffer.from(frame.Data ?? '', 'base64')))
    assert.ok(back.equals(data.subarray(from, to)), `OUTPOST_SEED=${seed}, run ${run}`)
    for (const frame of frames) {
      assert.deepEqual(Object.keys(frame), ['Data', 'File', 'Offset'])
      // A lone surrogate is escaped, so any name survives.
      assert.equal(frame.File, file)
    }
  }
})

test('a stream can be split into frames at braces, for any file name', () => {
  for (const file of NAMES) {
    const text = encode(file, Buffer.alloc(70_000, 1), 0, 70_000, 0) + HEARTBEAT.toString()
    assert.equal(text.split('}{').length, 3, file.slice(0, 40))
    assert.ok(!/\s/.test(text.replaceAll(/"File":"(?:[^"\\]|\\.)*"/g, '')))
  }
})

test('events carry no data and leave out an offset of zero', () => {
  for (const file of NAMES) {
    const label = new FrameLabel(file)
    for (const event of ['file deleted', 'file truncated'] as const) {
      for (const offset of [0, 1, 40, 2 ** 40]) {
        assert.equal(label.eventFrame(event, offset).toString(), naiveFrame({ file, event, offset }))
      }
    }
  }
})
