/** What is in the database file and the log beside it: no value, no name, no text that people keep with a secret. */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { expectStatus as expect, openKv, readSecret as read, writeSecret as write } from '../../helpers/kv-world.ts'

/** Prefix of all planted values. */
const MARK = 'planted-'

/** The mark as text, in hex and in base64, where that does not depend on what stands before and behind. */
const FORMS = [
  MARK,
  Buffer.from(MARK).toString('hex'),
  ...[0, 1, 2].map((shift) => {
    const whole = Math.floor(((shift + MARK.length) * 8) / 6)
    return Buffer.concat([Buffer.alloc(shift), Buffer.from(MARK)])
      .toString('base64')
      .slice(shift === 0 ? 0 : 4, whole)
  }),
]

test('planted values, names and metadata are not in the files before and after their destruction', async (t) => {
  const world = await openKv(t)
  const planted: string[] = []
  const plant = (what: string) => {
    const text = `${MARK}${what}-${randomBytes(9).toString('hex')}`
    planted.push(text)
    return text
  }
  const check = (when: string) => {
    for (const name of readdirSync(world.directory)) {
      const file = readFileSync(join(world.directory, name))
      for (const form of FORMS) assert.equal(file.indexOf(form), -1, `${when}: ${form} in ${name}`)
    }
  }
  const names = Array.from({ length: 40 }, () => `${plant('folder')}/${plant('name')}`)
  for (const name of names) {
    await expect(world, 204, 'POST', `secret/metadata/${name}`, {
      custom_metadata: { [plant('key')]: plant('text') },
      max_versions: 2,
    })
    for (let version = 1; version <= 4; version++) await write(world, name, { [plant('member')]: plant('value') })
  }
  check('written and pruned')
  const [first = '', second = '', third = ''] = names
  const mount = world.core.open.mounts.get('secret/')
  const blobs = () =>
    mount?.storage
      .list('k/')
      .filter((each) => each.endsWith('/'))
      .flatMap((each) => mount.storage.list(`k/${each}`)).length
  // The newest one is in the record itself.
  assert.equal(blobs(), 40, 'what was pruned is no entry any more')
  await expect(world, 204, 'POST', `secret/destroy/${first}`, { versions: [3, 4] })
  await expect(world, 204, 'DELETE', `secret/metadata/${second}`)
  await expect(world, 200, 'POST', `secret/move/${third}`, { to: plant('moved') })
  assert.equal(blobs(), 38, 'what was destroyed or removed is no entry any more')
  check('destroyed, removed, moved')
  assert.equal((await read(world, first, '?version=4')).status, 404)
  await expect(world, 200, 'GET', `secret/search?name=planted`)
  await world.core.seal()
  check('sealed')
  const said = JSON.stringify(world.lines)
  for (const text of planted) assert.ok(!said.includes(text), 'not in the log either')
})
