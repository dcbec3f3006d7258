/** The archive of `outpost operator debug`, as `tar` reads it. */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { DebugBundle } from '../../src/cli/commands/operator/debug/bundle.ts'
import { Redactor } from '../../src/cli/commands/operator/debug/redaction.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

test('files of a node with the longest name keep their paths', (t) => {
  const directory = temporaryDirectory(t)
  const [top, node] = ['t'.repeat(40), 'n'.repeat(50)]
  const path = `nodes/${node}/runtime.jsonl`
  const bundle = new DebugBundle(new Redactor([]))
  bundle.addText({ path, description: 'runtime', source: '/v1/agent/runtime' }, 'text\n')
  bundle.write(join(directory, `${top}.tar.gz`), {})
  execFileSync('tar', ['-xzf', join(directory, `${top}.tar.gz`), '-C', directory])
  assert.equal(readFileSync(join(directory, top, path), 'utf8'), 'text\n')
})
