/** The types of the web interface are those of the OpenAPI document. */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { test } from 'node:test'
import { uiTypes } from '../../scripts/ui-types.ts'

test('ui/api/types.ts has the responses of the OpenAPI document', () => {
  const file = join(resolve(import.meta.dirname, '../..'), 'ui/api/types.ts')
  assert.equal(readFileSync(file, 'utf8'), uiTypes(), 'run npm run ui:types')
})
