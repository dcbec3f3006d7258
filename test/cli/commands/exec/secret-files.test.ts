/** The files of `exec -format=file` over changes of the secret. */
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { openDirectory, SecretFiles } from '../../../../src/cli/commands/exec/secret-files.ts'
import { temporaryDirectory } from '../../../helpers/temporary-directory.ts'

test('a key that was removed and has its former value again is written again', (t) => {
  const path = join(temporaryDirectory(t), 'secrets')
  const directory = openDirectory(path)
  t.after(() => directory.close())
  const files = new SecretFiles(directory)
  const both = new Map([
    ['password', 'p'],
    ['user', 'u'],
  ])
  files.write(both)
  files.write(new Map([['user', 'u']]))
  assert.deepEqual(readdirSync(path), ['user'])
  files.write(both)
  assert.deepEqual(readdirSync(path).sort(), ['password', 'user'])
  assert.equal(readFileSync(join(path, 'password'), 'utf8'), 'p')
})
