/** The commit of a checkout, as `outpost version` and the metrics show it. */
import assert from 'node:assert/strict'
import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { checkedOutCommit } from '../../src/platform/build-commit.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

const HASH = 'abcdef0123456789abcdef0123456789abcdef01'

const CHECKOUTS = [
  {
    name: 'a branch',
    files: { '.git/HEAD': 'ref: refs/heads/main\n', '.git/refs/heads/main': `${HASH}\n` },
    shown: 'abcdef012345',
  },
  {
    name: 'a packed branch',
    files: { '.git/HEAD': 'ref: refs/heads/main\n', '.git/packed-refs': `# pack-refs\n${HASH} refs/heads/main\n` },
    shown: 'abcdef012345',
  },
  { name: 'a detached commit', files: { '.git/HEAD': `${HASH}\n` }, shown: 'abcdef012345' },
  { name: 'a damaged HEAD', files: { '.git/HEAD': '../../etc/passwd\n' }, shown: 'unknown' },
  { name: 'no repository', files: {}, shown: 'unknown' },
]

for (const { name, files, shown } of CHECKOUTS) {
  test(`the commit of ${name} is ${shown}`, (t) => {
    const root = temporaryDirectory(t)
    const all: Record<string, string> = { 'package.json': '{ "name": "outpost" }', 'src/main.ts': '', ...files }
    for (const [file, text] of Object.entries(all)) {
      mkdirSync(dirname(join(root, file)), { recursive: true })
      writeFileSync(join(root, file), text)
    }
    assert.equal(checkedOutCommit(join(root, 'src')), shown)
  })
}

test('the repository of a parent directory is not used for the commit', (t) => {
  const root = temporaryDirectory(t)
  mkdirSync(join(root, '.git'))
  writeFileSync(join(root, '.git/HEAD'), HASH)
  mkdirSync(join(root, 'opt'))
  writeFileSync(join(root, 'opt/package.json'), '{ "name": "outpost" }')
  assert.equal(checkedOutCommit(join(root, 'opt')), 'unknown')
})
