/** Mutants of "A server without the core" and "An operator of NATS, or an eavesdropper on it". */
import type { Mutant } from '../mutant-list.ts'

export const MUTANTS: readonly Mutant[] = [
  {
    promise: 'nor impersonate the core where `core_keys` are configured',
    before: '(hasCore && (!coreKeys || coreKeys.includes(key)))',
    after: 'hasCore',
    test: 'test/cluster/trust/server-trust.test.ts',
  },
  {
    promise: 'nor impersonate the core where `core_keys` are configured',
    before: 'if (!this.#isConfigured(key)) {',
    after: 'if (false) {',
    test: 'test/cluster/trust/server-trust.test.ts',
  },
  {
    promise: 'Its key can be replaced while calls run',
    before: `if (node.run === '' || node.session?.key === key) return node.session`,
    after: `if (node.run === '' || node.session) return node.session`,
    test: 'test/cluster/rpc/node-admission.test.ts',
  },
  {
    promise: 'Its key can be replaced while calls run',
    before: 'for (const [name, { key }] of this.#servers) if (!this.#isConfigured(key)) this.#servers.delete(name)',
    after: '',
    test: 'test/attacks/server-key-rotated.test.ts',
  },
  {
    promise: 'withhold messages, see sizes and times',
    before: `if (!markReceived(session, head.call)) return 'sent before'`,
    after: 'markReceived(session, head.call)',
    test: 'test/attacks/nats-eavesdropper.test.ts',
  },
  {
    promise: 'withhold messages, see sizes and times',
    before: 'return seal(key, nonceOf(head.call, 0), [bytes, addressBytes(to)], [payload])',
    after: `return seal(key, nonceOf(head.call, 0), [bytes, addressBytes({ ...to, reply: '' })], [payload])`,
    test: 'test/attacks/nats-eavesdropper.test.ts',
  },
  {
    promise: 'withhold messages, see sizes and times',
    before: `if (opened.message !== this.#received + 1) return 'lost'`,
    after: '',
    test: 'test/cluster/rpc/sealed-call-receiver.test.ts',
  },
  {
    promise: 'withhold messages, see sizes and times',
    before: 'if (opened.message <= this.#received) {',
    after: 'if (false) {',
    test: 'test/cluster/rpc/sealed-call-receiver.test.ts',
  },
  {
    promise: 'withhold messages, see sizes and times',
    before: 'if (!opened || opened.message <= received) return undefined',
    after: 'if (!opened) return undefined',
    test: 'test/cluster/rpc/sealed-call-receiver.test.ts',
  },
  {
    promise: 'withhold messages, see sizes and times',
    before: `if (ageMs > AGE_MAX_MS || ageMs < -AHEAD_MAX_MS) return 'too old'`,
    after: '',
    test: 'test/cluster/rpc/sealed-call-receiver.test.ts',
  },
  {
    promise: 'withhold messages, see sizes and times',
    before: 'const reason = this.#received === 0 ? decodeRefusal(payload) : undefined',
    after: 'const reason = decodeRefusal(payload)',
    test: 'test/cluster/rpc/sealed-call-receiver.test.ts',
  },
  {
    promise: 'read files and logs that servers fetch from hosts',
    before: 'if (this.#trusted.serverKeys) return this.#trusted.serverKeys.includes(publicKey)',
    after: 'if (this.#trusted.serverKeys?.includes(publicKey)) return true',
    test: 'test/cluster/trust/server-trust.test.ts',
  },
  {
    promise: 'decide, without `server_keys`, which processes are servers',
    before: 'if (!this.#bus.isConnected) this.#roster.markDisconnected(this.#ownNodeId)\n    else if',
    after: 'if',
    test: 'test/attacks/nats-away.test.ts',
  },
  {
    promise: 'announce servers with invented versions, states and times',
    before: 'if (isSkewed(clock) === wasSkewed || this.#lines?.take(message, 1) === false) return',
    after: 'if (isSkewed(clock) === wasSkewed) return',
    test: 'test/attacks/flooding-announcements.test.ts',
  },
]
