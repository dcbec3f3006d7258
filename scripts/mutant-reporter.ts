/** Reports tests to `mutant-run.ts`: one line of JSON per test that has passed or failed, behind a mark. */
import type { TestEvent } from 'node:test/reporters'

export interface MutantTestResult {
  readonly name: string
  readonly isPassed: boolean
  readonly error: string
}

export const RESULT_MARK = '\u0001test '

export default async function* report(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  for await (const { type, data } of events) {
    if (type !== 'test:pass' && type !== 'test:fail') continue
    if (data.skip !== undefined || data.todo !== undefined) continue
    const error = type === 'test:fail' ? String(data.details.error.cause ?? data.details.error) : ''
    const result: MutantTestResult = { name: data.name, isPassed: type === 'test:pass', error: error.slice(0, 500) }
    yield `${RESULT_MARK}${JSON.stringify(result)}\n`
  }
}
