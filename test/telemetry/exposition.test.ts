/** The parser of the text format in the test helpers must refuse invalid texts, otherwise other tests prove nothing. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { readExposition } from '../helpers/exposition.ts'

const GOOD = '# HELP a_total A.\n# TYPE a_total counter\na_total{x="1"} 1\na_total{x="\\"2\\n"} 2\n'

test('a valid text is parsed', () => {
  const { faults, series } = readExposition(GOOD)
  assert.deepEqual(faults, [])
  assert.deepEqual(
    series.map(({ value }) => value),
    [1, 2],
  )
  assert.equal(series[1]?.labels.get('x'), '"2\n')
})

const BAD: Readonly<Record<string, string>> = {
  'no help': '# TYPE a gauge\na 1\n',
  'empty help': '# HELP a \n# TYPE a gauge\na 1\n',
  'counter without total': '# HELP a A.\n# TYPE a counter\na 1\n',
  'gauge with total': '# HELP a_total A.\n# TYPE a_total gauge\na_total 1\n',
  'reserved ending': '# HELP a_count A.\n# TYPE a_count gauge\na_count 1\n',
  'odd unit': '# HELP a_milliseconds A.\n# TYPE a_milliseconds gauge\na_milliseconds 1\n',
  'series twice': '# HELP a A.\n# TYPE a gauge\na{x="1",y="2"} 1\na{y="2",x="1"} 1\n',
  'family twice': `${GOOD}${GOOD}`,
  'outside its family': '# HELP a A.\n# TYPE a gauge\nb 1\n',
  'bad label': '# HELP a A.\n# TYPE a gauge\na{x=1} 1\n',
  'not a number': '# HELP a A.\n# TYPE a gauge\na undefined\n',
  'no series': '# HELP a A.\n# TYPE a gauge\n',
  'buckets shrink': '# HELP a A.\n# TYPE a histogram\na_bucket{le="1"} 2\na_bucket{le="+Inf"} 1\na_sum 1\na_count 1\n',
  'count differs': '# HELP a A.\n# TYPE a histogram\na_bucket{le="1"} 1\na_bucket{le="+Inf"} 1\na_sum 1\na_count 2\n',
  'no last line end': GOOD.trimEnd(),
}

for (const [name, text] of Object.entries(BAD)) {
  test(`refused: ${name}`, () => assert.notDeepEqual(readExposition(text).faults, []))
}
