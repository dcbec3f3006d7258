/** Guides for developers who extend the program: each contains a complete example that is also a file of the tests. */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'

const ROOT = resolve(import.meta.dirname, '../..')

export function readGuide(name: string): string {
  return readFileSync(join(ROOT, 'docs', name), 'utf8')
}

/** Fails unless the example of a guide equals the file `example` apart from its imports, which `imports` maps. */
export function checkExample(guide: string, example: string, imports: Readonly<Record<string, string>>): void {
  const [, indented = ''] = /^ {3}```ts\n([^]*?)^ {3}```/m.exec(guide) ?? []
  let expected = readFileSync(join(import.meta.dirname, example), 'utf8')
  for (const [there, here] of Object.entries(imports)) expected = expected.replaceAll(`'${there}`, `'${here}`)
  assert.equal(indented.replaceAll(/^ {3}/gm, ''), expected)
}
