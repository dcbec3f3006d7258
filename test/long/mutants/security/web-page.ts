/** Mutants of "A web page in the browser of a user". */
import type { Mutant } from '../mutant-list.ts'

export const MUTANTS: readonly Mutant[] = [
  {
    promise: 'send requests to loopback without the user',
    before: 'if (name === undefined || !(LOOPBACK.test(name) || this.#names.has(name)))',
    after: 'if (name === undefined)',
    test: 'test/attacks/foreign-page.test.ts',
  },
  {
    promise: 'send requests to loopback without the user',
    before: '|127(?:\\.\\d{1,3}){3}|\\[::1\\]|',
    after: '|127.*|\\[::1\\]|',
    test: 'test/attacks/foreign-page.test.ts',
  },
  {
    promise: 'change anything, collect allocations by a GET',
    before: 'if (!isForeignPage(headers)) return\n',
    after: 'return\n',
    test: 'test/attacks/foreign-page.test.ts',
  },
  {
    promise: 'change anything, collect allocations by a GET',
    before: 'if (SAFE_VERBS.has(verb) && !operation.changesOnGet) return',
    after: 'if (SAFE_VERBS.has(verb)) return',
    test: 'test/attacks/foreign-page.test.ts',
  },
  {
    promise: 'change anything, collect allocations by a GET',
    before: '?? originFault(request, operation, isOpen)',
    after: '',
    test: 'test/attacks/foreign-page.test.ts',
  },
  {
    promise: 'change anything, collect allocations by a GET',
    before: `if (site !== undefined) return site !== 'same-origin' && site !== 'none'`,
    after: `if (site !== undefined) return site === 'cross-site'`,
    test: 'test/attacks/foreign-page.test.ts',
  },
  {
    promise: 'change anything, collect allocations by a GET',
    before: 'endpoint.crossOrigin && hasToken ? [...VARY, ...ANY_ORIGIN]',
    after: 'endpoint.crossOrigin ? [...VARY, ...ANY_ORIGIN]',
    test: 'test/attacks/foreign-page.test.ts',
  },
  {
    promise: 'change anything, collect allocations by a GET',
    before: 'if (!asksToSendToken(headers) || !isOffered(method))',
    after: 'if (!isOffered(method))',
    test: 'test/http/cross-origin.test.ts',
  },
  {
    promise: 'change anything, collect allocations by a GET',
    before: 'originHeadersFor(endpoint, this.request, rule, hasToken && !this.#isOpen)',
    after: 'originHeadersFor(endpoint, this.request, rule, hasToken)',
    test: 'test/attacks/foreign-page.test.ts',
  },
]
