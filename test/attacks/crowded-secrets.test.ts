/** A task fills its directories and requests files with hard links, whose check must not delay other requests. */
import assert from 'node:assert/strict'
import { linkSync, mkdirSync, opendirSync, rmSync, writeFileSync } from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import fs from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { startEdge } from '../helpers/edge.ts'
import { ask } from '../helpers/raw-http.ts'
import { ALLOC, SECRET } from '../helpers/allocation.ts'

/** Counts calls of a function of node:fs while `run` is under way. */
async function counted(name: 'lstatSync' | 'readdirSync', run: () => Promise<void>): Promise<number> {
  const original = fs[name] as (...args: unknown[]) => unknown
  let calls = 0
  Reflect.set(fs, name, (...args: unknown[]) => {
    calls++
    return original(...args)
  })
  syncBuiltinESMExports()
  try {
    await run()
  } finally {
    Reflect.set(fs, name, original)
    syncBuiltinESMExports()
  }
  return calls
}

test('a file with hard links beside ten thousand secrets is refused after a bounded number of checks', async (t) => {
  const edge = await startEdge(t)
  const local = join(edge.directory, 'web/local')
  writeFileSync(join(local, 'one'), 'an ordinary file')
  linkSync(join(local, 'one'), join(local, 'two'))
  linkSync(join(edge.directory, 'web/secrets/token'), join(local, 'stolen'))
  const cat = (path: string) => ask(edge.port, 'GET', `/v1/client/fs/cat/${ALLOC}?path=web/local/${path}`)
  assert.equal((await cat('two')).status, 200)
  assert.equal((await cat('stolen')).status, 403)
  for (const place of ['web/secrets', 'web/secrets/deep', 'web']) {
    const directory = join(edge.directory, place)
    mkdirSync(directory, { recursive: true })
    for (let at = 0; at < (place === 'web/secrets' ? 10_000 : 2000); at++) writeFileSync(join(directory, `zz${at}`), '')
    let statuses: number[] = []
    const ran = async () => {
      const answers = [await cat('two'), await cat('stolen')]
      statuses = answers.map(({ status }) => status)
      for (const { body } of answers) assert.ok(!body.toString().includes(SECRET))
    }
    assert.ok((await counted('lstatSync', ran)) <= 2500, place)
    assert.deepEqual(statuses, [403, 403], 'it cannot be excluded that it is a secret')
    assert.equal(await counted('readdirSync', ran), 0, 'no directory is read as a whole')
    assert.equal((await cat('hello.txt')).status, 200, 'a file with one name costs no search')
    const names = opendirSync(directory)
    for (let entry = names.readSync(); entry; entry = names.readSync()) {
      if (entry.name.startsWith('zz')) rmSync(join(directory, entry.name))
    }
    names.closeSync()
    rmSync(join(edge.directory, 'web/secrets/deep'), { recursive: true, force: true })
    assert.equal((await cat('two')).status, 200, place)
  }
})
