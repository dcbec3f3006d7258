/** Planted defects follow the sources and the documents: `npm run test:long -- mutants` and `-- ha-defects` run them. */
import assert from 'node:assert/strict'
import { resolve } from 'node:path'
import { test } from 'node:test'
import { PLANTED_DEFECTS, withDefect } from './helpers/ha/planted-fault.ts'
import { listFaults, placeOf, promisesOf, readMutants, Sources, uncoveredPromises } from './long/mutants/mutant-list.ts'

const ROOT = resolve(import.meta.dirname, '..')

test('each mutant quotes its document once, names an existing test and matches one place in the sources', async () => {
  assert.deepEqual(listFaults(ROOT, await readMutants(ROOT)), [])
})

test('each promise of the documents has a mutant, or an exemption with a reason', async () => {
  const list = await readMutants(ROOT)
  assert.deepEqual(uncoveredPromises(ROOT, list), [])
  assert.deepEqual(
    list.exemptions.filter(({ reason }) => reason.trim() === ''),
    [],
  )
})

test('a mutant whose text is missing, repeated or unchanged has no place', () => {
  const sources = new Sources(
    new Map([
      ['src/a.ts', 'if (a) b()\nif (c) b()\n'],
      ['src/b.ts', 'if (d) e()\n'],
    ]),
  )
  const mutant = { promise: 'p', test: 't' }
  assert.deepEqual(placeOf(sources, { ...mutant, before: 'if (d)', after: 'if (!d)' }), {
    file: 'src/b.ts',
    mutated: 'if (!d) e()\n',
  })
  const faultOf = (before: string, after = '') => {
    const place = placeOf(sources, { ...mutant, before, after })
    return 'fault' in place ? place.fault : ''
  }
  assert.match(faultOf('if (x)'), /no source contains/)
  assert.match(faultOf('b()'), /2 times: src\/a\.ts/)
  assert.match(faultOf('e()', 'e()'), /not changed/)
})

test('bullets and table rows of the documents are promises', () => {
  const guarantees = promisesOf(ROOT, 'guarantees')
  assert.ok(guarantees.length > 100, `${guarantees.length} promises`)
  assert.ok(guarantees.some((promise) => promise.startsWith('**Every byte once')))
  const security = promisesOf(ROOT, 'security')
  assert.ok(
    security.some((promise) => promise.startsWith('|') && promise.includes('`test/attacks/foreign-page.test.ts`')),
  )
  assert.ok(!security.some((promise) => promise.startsWith('| can | cannot |')))
})

test('each planted defect of high availability matches the sources', () => {
  for (const edits of Object.values(PLANTED_DEFECTS)) assert.equal(withDefect(edits).size, edits.length)
})
