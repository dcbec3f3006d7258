/** Bundles of test files behave as their sources. */
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { test } from 'node:test'
import { pathToFileURL } from 'node:url'
import { TestBundles } from '../scripts/test-bundle.ts'
import { temporaryDirectory } from './helpers/temporary-directory.ts'

test('in a bundle import.meta names the source file, and text in strings is kept', async (t) => {
  const file = join(temporaryDirectory(t), 'some.test.ts')
  const text = 'new URL(import.meta.url)'
  const values = `[import.meta.dirname, import.meta.filename, import.meta.url, import.meta.main, ${JSON.stringify(text)}]`
  writeFileSync(file, `Reflect.set(globalThis, 'bundled', ${values})\n`)
  const { groups } = await TestBundles.make(resolve(import.meta.dirname, '..'), new Map([[file, [file]]]))
  t.after(() => Reflect.deleteProperty(globalThis, 'bundled'))
  for (const bundle of groups.keys()) await import(pathToFileURL(bundle).href)
  assert.deepEqual(Reflect.get(globalThis, 'bundled'), [
    resolve(file, '..'),
    file,
    pathToFileURL(file).href,
    false,
    text,
  ])
})
