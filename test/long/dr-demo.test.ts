/** `npm run dr-demo` in its short form: what docs/operating/dr.md promises of it, each step with its time. */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { OUTPOST, ROOT, start } from '../cli/outpost-process.ts'

/** In their order. */
const STEPS = [
  'a: outpost operator dr enable',
  'a: outpost operator dr token b',
  'b: outpost operator dr join -yes',
  'a: 5 secrets are written',
  'a: kill -9',
  'b: outpost operator dr failover -yes -',
  'b: all 5 secrets are read with the token of a',
  'a: starts again',
  'a: outpost operator dr demote -yes',
  'b: outpost operator dr token a',
  'a: outpost operator dr join -yes -shares-file shares.txt',
  'b: outpost operator dr switch -yes -secondary a',
  'a: all 15 secrets are read',
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
