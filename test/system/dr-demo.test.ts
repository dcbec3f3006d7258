/** `npm run dr-demo` in its short form: what docs/operating/dr.md promises of it, each step with its time. */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { OUTPOST, ROOT, start } from '../cli/outpost-process.ts'

/** In their order. */
const STEPS = [
  'a: primary/enable',
  'b: secondary/enable; its data is replaced',
  'b: unsealed with the key shares of a; its barrier stays closed',
  'a: 5 secrets are written',
  'a: kill -9',
  'b: an operation token from two key shares',
  'b: promote, until it has answered',
  'b: all 5 secrets are read with the token of a',
  'a: starts again, is unsealed, and is demoted',
  'a: update-primary with a token of b; only what differs is copied',
  'failback: b is demoted, a is promoted',
  'a: everything is there',
]

test('the disaster recovery demonstration completes', { timeout: 180_000 }, async () => {
  const env = { ...process.env, OUTPOST_PROGRAM: OUTPOST }
  const { code, stderr, stdout } = await start(process.execPath, [join(ROOT, 'scripts/dr-demo.ts'), '5'], { env })
    .finished
  assert.equal(code, 0, stdout + stderr)
  const lines = stdout.trimEnd().split('\n')
  for (const line of lines) assert.match(line, /^ *\d+ ms +\d+ ms {2}\S/)
  const said = lines.map((line) => line.replace(/^ *\d+ ms +\d+ ms {2}/, ''))
  assert.deepEqual(
    said.filter((step) => STEPS.includes(step)),
    STEPS,
  )
})
