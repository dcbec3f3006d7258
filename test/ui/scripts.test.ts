/** How the builder splits the web interface into scripts: few requests until a view can be used. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { build } from '../../scripts/ui-bundle.ts'

const IMPORTED = /from\s*"\.\/([^"]+)"/g

test('a page loads three scripts, and another view needs one more, or two for a log', async () => {
  const files = new Map((await build(1)).map(({ bytes, path }) => [path, Buffer.from(bytes).toString()]))
  const importsOf = (path: string) =>
    [...(files.get(path) ?? '').matchAll(IMPORTED)].map(([, name]) => `assets/${name ?? ''}`)
  const first = [...(files.get('index.html') ?? '').matchAll(/\/ui\/(assets\/[^"]+\.js)/g)].map(
    ([, name]) => name ?? '',
  )
  assert.equal(first.length, 3, first.join(' '))
  for (const name of first)
    for (const needed of importsOf(name)) assert.ok(first.includes(needed), `${name}: ${needed}`)

  const views = [...files.keys()].filter((path) => /-view-[^/]+\.js$/.test(path))
  assert.ok(views.length > 12, views.join(' '))
  for (const view of views) {
    const more = importsOf(view).filter((needed) => !first.includes(needed))
    const isLog = /\/(log|wall)-view-/.test(view)
    // The fault is a module of two views that is missing in ui/core.ts.
    assert.ok(more.length <= (isLog ? 1 : 0), `${view} needs ${more.join(' ')}`)
    for (const needed of more.flatMap(importsOf)) assert.ok(first.includes(needed), `${view} needs ${needed}`)
  }
})
