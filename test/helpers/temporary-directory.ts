/** A directory for one test. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

/** Removed with its content after the test. */
export function temporaryDirectory(t: Pick<TestContext, 'after'>): string {
  const path = mkdtempSync(join(tmpdir(), 'outpost-test-'))
  t.after(() => rmSync(path, { recursive: true, force: true }))
  return path
}
