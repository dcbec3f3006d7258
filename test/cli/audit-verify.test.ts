/** `outpost audit verify`: every change of audit files is found and located. */
import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import {
  CHAIN_START,
  formatLegacyLine,
  type ChainHead,
  ChainKey,
  headOf,
  formatLine,
  newChainId,
} from '../../src/secrets/audit/audit-chain.ts'
import { temporaryDirectory } from './outpost-process.ts'
import { recordingCore, runAt } from './recording-core.ts'

const NOWHERE = { url: 'http://127.0.0.1:9' }

/** Lines of a chain, from `head` on. */
function chainOf(count: number, head: ChainHead = CHAIN_START): { lines: string[]; head: ChainHead } {
  const lines: string[] = []
  let last = head
  for (let at = 0; at < count; at++) {
    const line = formatLegacyLine(JSON.stringify({ type: 'request', request: { path: `kept/data/${at}` } }), last)
    lines.push(line)
    last = headOf(line) ?? assert.fail('a line of a device is known as one')
  }
  return { lines, head: last }
}

const text = (lines: readonly string[]) => lines.map((line) => `${line}\n`).join('')

test('unchanged files are valid, in any number and with lines of any length', async (t) => {
  const directory = temporaryDirectory(t)
  const first = chainOf(30)
  const long = formatLegacyLine(JSON.stringify({ type: 'request', value: 'x'.repeat(3 << 20) }), first.head)
  const rest = chainOf(20, headOf(long))
  const files = [first.lines, [long, ...rest.lines.slice(0, 5)], [], rest.lines.slice(5)].map((lines, at) => {
    const file = join(directory, `audit.${at}`)
    writeFileSync(file, text(lines))
    return file
  })
  const all = await runAt(NOWHERE, ['audit', 'verify', ...files])
  assert.deepEqual(all, { code: 0, out: 'valid: lines 1 to 51 in 4 files\n', err: '' })
  const some = await runAt(NOWHERE, ['audit', 'verify', '-from=31', ...files.slice(1)])
  assert.deepEqual(some, { code: 0, out: 'valid: lines 31 to 51 in 3 files\n', err: '' })
  const swapped = await runAt(NOWHERE, ['audit', 'verify', '-from=37', ...files.toReversed()])
  assert.equal(swapped.code, 1)
  assert.match(swapped.err, /audit\.1:1: .*files in the wrong order/)
  const missing = await runAt(NOWHERE, ['audit', 'verify', ...files.slice(0, 1), ...files.slice(3)])
  assert.equal(missing.code, 1)
  assert.match(missing.err, /audit\.3:1: lines 31 to 36 were removed before this line\n$/)
  assert.equal(missing.out, 'valid up to there: lines 1 to 30\n')
})

test('verify reports the first line that was changed, removed or added', async (t) => {
  const file = join(temporaryDirectory(t), 'audit.log')
  const { lines } = chainOf(20)
  const forged = formatLegacyLine('{"type":"forged"}', headOf(lines[8] ?? '') ?? CHAIN_START)
  const cases: [string, string[], RegExp][] = [
    ['changed', lines.with(9, (lines[9] ?? '').replace('data/9', 'data/8')), /audit\.log:10: line changed/],
    ['the first one', lines.with(0, (lines[0] ?? '').replace('data/0', 'data/1')), /audit\.log:1: line changed/],
    ['removed', lines.toSpliced(9, 1), /audit\.log:10: line 10 was removed before this line/],
    ['several', lines.toSpliced(9, 5), /audit\.log:10: lines 10 to 14 were removed before this line/],
    ['added as it fits', lines.toSpliced(9, 0, forged), /audit\.log:11: line added, .*number 10 follows 10/],
    ['added, plain', lines.toSpliced(9, 0, 'hello'), /audit\.log:10: line changed or added/],
    ['an empty line', lines.toSpliced(9, 0, ''), /audit\.log:10: line changed or added/],
    ['doubled', lines.toSpliced(9, 0, lines[8] ?? ''), /audit\.log:10: line added, .*number 9 follows 9/],
    ['replaced by a forged one with a valid chain', lines.with(9, forged), /audit\.log:10: line changed/],
    [
      'renumbered',
      lines.with(9, (lines[9] ?? '').replace('"sequence":10', '"sequence":11')),
      /audit\.log:10: line 10 was/,
    ],
    ['a carriage return', lines.with(9, `${lines[9]}\r`), /audit\.log:10: line changed or added/],
  ]
  for (const [what, changed, expected] of cases) {
    writeFileSync(file, text(changed))
    const ran = await runAt(NOWHERE, ['audit', 'verify', file])
    assert.equal(ran.code, 1, what)
    assert.match(ran.err, expected, what)
    assert.match(ran.out, /^valid up to there: /, what)
  }
})

test('any byte that is changed is found, other than of the last line', async (t) => {
  const file = join(temporaryDirectory(t), 'audit.log')
  const { lines } = chainOf(4)
  const bytes = Buffer.from(text(lines))
  const lastAt = bytes.length - (lines.at(-1)?.length ?? 0) - 1
  for (let at = 0; at < lastAt; at += 7) {
    const changed = Buffer.from(bytes)
    changed[at] = (changed[at] ?? 0) ^ 1
    writeFileSync(file, changed)
    assert.equal((await runAt(NOWHERE, ['audit', 'verify', file])).code, 1, `byte ${at}`)
  }
})

test('with a server the last line is compared, and a replaced file is reported', async (t) => {
  const core = await recordingCore(t)
  const file = join(temporaryDirectory(t), 'audit.log')
  const { head, lines } = chainOf(20)
  core.answers = { 'GET sys/audit': [200, { data: { 'file/': { type: 'file', chain: head } } }] }
  const verify = () => runAt(core, ['audit', 'verify', '-path=file', file])
  writeFileSync(file, text(lines))
  assert.deepEqual(await verify(), {
    code: 0,
    out: 'valid: lines 1 to 20 in 1 file, verified by the server up to line 20\n',
    err: '',
  })
  // What was written since.
  writeFileSync(file, text([...lines, ...chainOf(4, head).lines]))
  assert.equal((await verify()).code, 0)
  writeFileSync(file, text(lines.slice(0, 17)))
  const cut = await verify()
  assert.equal(cut.code, 1)
  assert.match(cut.err, /audit\.log:18: lines 18 to 20 are missing: the file was truncated/)
  const anew = chainOf(20, headOf(formatLegacyLine('{"type":"forged"}', CHAIN_START))).lines.slice(0, 19)
  writeFileSync(file, text([formatLegacyLine('{"type":"forged"}', CHAIN_START), ...anew]))
  assert.equal((await runAt(NOWHERE, ['audit', 'verify', file])).code, 0, 'it is a chain of its own')
  const rewritten = await verify()
  assert.equal(rewritten.code, 1)
  assert.match(rewritten.err, /audit\.log:20: line 20 was changed, or all lines up to it were rewritten/)
  writeFileSync(file, '')
  assert.match((await verify()).err, /audit\.log:1: lines 1 to 20 are missing/)
  const unknown = await runAt(core, ['audit', 'verify', '-path=other/', file])
  assert.equal(unknown.code, 1)
  assert.match(unknown.err, /no audit device at other\//)
})

test('the first line must have the number 1, or that of -from', async (t) => {
  const file = join(temporaryDirectory(t), 'audit.log')
  writeFileSync(file, text(chainOf(20).lines.slice(4)))
  const beheaded = await runAt(NOWHERE, ['audit', 'verify', file])
  assert.equal(beheaded.code, 1)
  assert.match(
    beheaded.err,
    /audit\.log:1: the first line is number 5, expected number 1: add the files with .*, or use -from=5\n$/,
  )
  const named = await runAt(NOWHERE, ['audit', 'verify', '-from=5', file])
  assert.deepEqual(named, { code: 0, out: 'valid: lines 5 to 20 in 1 file\n', err: '' })
  assert.equal((await runAt(NOWHERE, ['audit', 'verify', '-from=4', file])).code, 1)
})

test('a first line that follows another one was changed', async (t) => {
  const file = join(temporaryDirectory(t), 'audit.log')
  const { lines } = chainOf(3, { sequence: 0, hash: 'a'.repeat(64) })
  writeFileSync(file, text(lines))
  const { code, err } = await runAt(NOWHERE, ['audit', 'verify', file])
  assert.equal(code, 1)
  assert.match(err, /audit\.log:1: line changed: the first line of a chain has no previous line/)
})

test('lines of another chain, or without a code, do not continue a chain with codes', async (t) => {
  const file = join(temporaryDirectory(t), 'audit.log')
  const keys = Array.from({ length: 2 }, (_, at) => new ChainKey(Buffer.alloc(32, at), newChainId()))
  t.after(() => keys.forEach((key) => key.close()))
  const json = '{"type":"request"}'
  const [own, other] = keys
  assert.ok(own && other)
  const first = formatLine(json, { head: CHAIN_START, key: own, prefix: '' })
  const head = headOf(first) ?? CHAIN_START
  const cases = [
    [formatLine(json, { head, key: own, prefix: '' }), /^$/],
    [formatLine(json, { head, key: other, prefix: '' }), /audit\.log:2: line added: it belongs to another chain/],
    [formatLegacyLine(json, head), /audit\.log:2: line added: it has no HMAC/],
  ] as const
  for (const [second, expected] of cases) {
    writeFileSync(file, text([first, second]))
    const { err } = await runAt(NOWHERE, ['audit', 'verify', file])
    assert.match(err, expected)
  }
})

test('an empty file in place of one with lines is a fault', async (t) => {
  const directory = temporaryDirectory(t)
  const [older, file] = [join(directory, 'audit.1'), join(directory, 'audit.log')]
  writeFileSync(older, text(chainOf(20).lines))
  writeFileSync(file, '')
  for (const files of [[file], [older, file]]) {
    const ran = await runAt(NOWHERE, ['audit', 'verify', ...files])
    assert.equal(ran.code, 1)
    assert.match(ran.err, /audit\.log:1: the file has no lines: use -path/)
  }
})

test('the files must contain the last line of the server', async (t) => {
  const core = await recordingCore(t)
  const file = join(temporaryDirectory(t), 'audit.log')
  const first = chainOf(20)
  core.answers = { 'GET sys/audit': [200, { data: { 'file/': { type: 'file', chain: first.head } } }] }
  // A chain that starts after the head, with any hashes.
  writeFileSync(file, text(chainOf(9, { sequence: 20, hash: 'f'.repeat(64) }).lines))
  const ran = await runAt(core, ['audit', 'verify', '-path=file', '-from=21', file])
  assert.equal(ran.code, 1)
  assert.match(ran.err, /audit\.log:10: line 20, the last line of the server, is in none of the files/)
})

test('an incomplete last line is reported and does not fail the verification', async (t) => {
  const file = join(temporaryDirectory(t), 'audit.log')
  const { lines } = chainOf(3)
  writeFileSync(file, `${text(lines)}{"time":"2026-`)
  const ran = await runAt(NOWHERE, ['audit', 'verify', file])
  assert.equal(ran.code, 0)
  assert.match(ran.err, /audit\.log:4: incomplete line of a killed server/)
  assert.equal(ran.out, 'valid: lines 1 to 3 in 1 file\n')
  assert.equal(readFileSync(file, 'utf8').endsWith('2026-'), true, 'it is left as it is')
})

test('an invalid command line and unreadable files are errors', async (t) => {
  const none = await runAt(NOWHERE, ['audit', 'verify'])
  assert.equal(none.code, 2)
  assert.match(none.err, /missing FILE, usage: outpost audit verify FILE/)
  const missing = await runAt(NOWHERE, ['audit', 'verify', join(temporaryDirectory(t), 'none')])
  assert.equal(missing.code, 1)
  assert.match(missing.err, /cannot read the files: .*ENOENT/)
})
