/** Mutants of "Callers" and "Web pages". */
import type { Exemption, Mutant } from '../mutant-list.ts'

export const MUTANTS: readonly Mutant[] = [
  {
    promise: 'a stream that is behind has two buffers of 64 KiB',
    before: 'this.#sentBytes >= GROW_AFTER_BYTES && largeSetsInUse < LARGE_SETS_MAX',
    after: 'this.#sentBytes >= GROW_AFTER_BYTES',
    test: 'test/host/files/tail-buffers.test.ts',
    testName: 'release their large buffers',
  },
  {
    promise: 'A stream that waits has no buffer',
    before: 'this.#pool.put(this.#set)',
    after: '',
    test: 'test/host/files/tail-buffers.test.ts',
    testName: 'returns its buffers',
  },
  {
    promise: 'Followers and connections have limits.',
    before: 'if (this.#count >= this.#limit) {',
    after: 'if (this.#count > this.#limit) {',
    test: 'test/system/limits.test.ts',
    testName: 'followers, headers and bodies',
  },
  {
    promise: 'A caller that reads nothing of a *deleted* file is disconnected after one minute',
    before: 'if (this.deleted && follower.progressAtMs < nowMs - this.#deletedStallMs) follower.revoke()',
    after: '',
    test: 'test/system/tail-resources.test.ts',
    testName: 'a stalled follower of a deleted file',
  },
  {
    promise: '**A web page in a browser cannot change anything.**',
    before: 'if (SAFE_VERBS.has(verb) && !operation.changesOnGet) return',
    after: 'if (SAFE_VERBS.has(verb)) return',
    test: 'test/attacks/foreign-page.test.ts',
  },
  {
    promise: 'HEAD changes nothing',
    before: 'return head === false || changesOnGet === true',
    after: 'return head === false',
    test: 'test/attacks/foreign-page.test.ts',
  },
  {
    promise: 'A page of another origin cannot read a response that needs no token',
    before: "if (hasToken && crossOrigin !== 'configured' && crossOrigin?.includes('GET')) return undefined",
    after: "if (crossOrigin !== 'configured' && crossOrigin?.includes('GET')) return undefined",
    test: 'test/attacks/foreign-page.test.ts',
  },
  {
    promise: '**A name that resolves to loopback is not enough.**',
    before: "if (!isLoopbackAddress(request.socket.localAddress ?? '')) return",
    after: "if (isLoopbackAddress(request.socket.localAddress ?? '')) return",
    test: 'test/attacks/foreign-page.test.ts',
  },
  {
    promise: '**A name that resolves to loopback is not enough.**',
    before: '    this.#names = namesOf(names)\n    this.#remembered.clear()\n',
    after: '    this.#names = namesOf(names)\n',
    test: 'test/http/served-hosts.test.ts',
  },
]

export const EXEMPTIONS: readonly Exemption[] = [
  {
    promise: '*Not covered:* a listener on another address without TLS',
    reason: 'a limit: says what is not promised',
  },
]
