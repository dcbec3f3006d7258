/** Mutants of "Through a server, or another agent". */
import type { Exemption, Mutant } from '../mutant-list.ts'

export const MUTANTS: readonly Mutant[] = [
  {
    promise: "A host whose ACL is enabled accepts no call without a server's assertion",
    before: 'if (this.#options.isOpen()) return UNRESTRICTED\n    try {',
    after: 'if (this.#options.isOpen() || !received.message.claims) return UNRESTRICTED\n    try {',
    test: 'test/attacks/replayed-assertion.test.ts',
  },
  {
    promise: "The response is the node's",
    before: "else if (answer.kind === 'refusal') this.#end(new Refusal(answer.code, answer.message, answer.headers))",
    after: "else if (answer.kind === 'refusal') this.#end(new Refusal(answer.code, answer.message))",
    test: 'test/cluster/rpc/forwarder.test.ts',
  },
  {
    promise: 'Each assertion is valid for one call, one host',
    before: "if (use === 'used') throw refusal('the assertion was used before')",
    after: '',
    test: 'test/cluster/rpc/node-admission.test.ts',
  },
  {
    promise: '5 s and clocks that differ by at most 60 s',
    before: 'if (aheadMs <= CLOCK_SKEW_MS && nowMs - expiresAtMs <= CLOCK_SKEW_MS) return',
    after: 'if (aheadMs <= CLOCK_SKEW_MS) return',
    test: 'test/cluster/rpc/node-admission.test.ts',
  },
  {
    promise: 'Neither can change a call, replay it or forge a response',
    before: 'if (call <= newest - WINDOW || received.has(call)) return false',
    after: 'if (call <= newest - WINDOW) return false',
    test: 'test/cluster/rpc/sealed-call-receiver.test.ts',
  },
  {
    promise: '**A call to a server is readable by this server alone.**',
    before: 'return seal(key, nonceOf(head.call, 0), [bytes, addressBytes(to)], [payload])',
    after: 'return Buffer.concat([seal(key, nonceOf(head.call, 0), [bytes, addressBytes(to)], [payload]), payload])',
    test: 'test/cluster/rpc/sealed-call-receiver.test.ts',
  },
  {
    promise: 'A host reaches no operation of the secrets core',
    before: "if (servers && !servers.hasCurveKey(head.callerKey)) return 'no server'",
    after: '',
    test: 'test/attacks/agent-asks-core.test.ts',
  },
  {
    promise: 'The key of a server can be replaced while calls run',
    before: 'for (const [name, { key }] of this.#servers) if (!this.#isConfigured(key)) this.#servers.delete(name)',
    after: '',
    test: 'test/cluster/trust/server-trust.test.ts',
  },
  {
    promise: '**A host responds to its own calls only.**',
    before: 'return ALLOWED_HEADERS.has(name.toLowerCase()) && HEADER_VALUE.test(value)',
    after: 'return name !== "" && HEADER_VALUE.test(value)',
    test: 'test/attacks/lying-node.test.ts',
  },
  {
    promise: 'in exactly the announced length',
    before: 'if (head.contentLength !== undefined && sent > head.contentLength) throw new Fault(OTHER_LENGTH)',
    after: '',
    test: 'test/attacks/lying-node.test.ts',
  },
  {
    promise: '**Stock commands send no token to a host.**',
    before: "(call.identity === UNRESTRICTED ? {} : { HTTPAddr: '' })",
    after: "(call.identity !== UNRESTRICTED ? {} : { HTTPAddr: '' })",
    test: 'test/attacks/announced-address.test.ts',
  },
  {
    promise: 'A stream that lost data in transit breaks',
    before: 'this.fail(lostPart())\n    return false',
    after: 'return false',
    test: 'test/cluster/rpc/lost.test.ts',
  },
  {
    promise: 'A call to a node that stops responding fails within 10 seconds',
    before: "this.fail(new Refusal('no_answer', `${peer} does not respond, try again`))",
    after: '',
    test: 'test/system/cluster-faults.test.ts',
  },
  {
    promise: 'While NATS is down, 503',
    before: "if (!self || !bus.isConnected) throw new Refusal('not_connected', 'not connected to NATS, try again')",
    after: "if (!self) throw new Refusal('not_connected', 'not connected to NATS, try again')",
    test: 'test/cluster/rpc/forwarder.test.ts',
  },
  {
    promise: 'Memory is bounded on the node, on the server and in NATS',
    before: 'if (!this.#window.receive(message.data.length)) this.fail(',
    after: 'if (!this.#window.receive(0)) this.fail(',
    test: 'test/cluster/rpc/pending-call.test.ts',
  },
  {
    promise: 'If two processes claim the same node, one of them serves',
    before: "if (entry && message.run < entry.run) return 'superseded'",
    after: '',
    test: 'test/cluster/roster/node-announcer.test.ts',
  },
  {
    promise: 'of the processes whose key was seen first, the one that started last',
    before: 'if (entry && entry.publicKey !== key) return this.#reject(entry)',
    after: '',
    test: 'test/cluster/roster/roster.test.ts',
  },
  {
    promise: 'An allocation belongs to the node key that announced it first',
    before: 'const ownerKey = other?.publicKey ?? absent?.publicKey',
    after: 'const ownerKey = other?.publicKey',
    test: 'test/cluster/roster/roster.test.ts',
  },
  {
    promise: 'A claim of another node is refused, counted and logged',
    before:
      "this.rejections.count('claim', nodeId, { alloc_id: allocationId, owner_node_id: holder ?? absent?.nodeId })",
    after: '',
    test: 'test/cluster/roster/roster.test.ts',
  },
  {
    promise: 'A server without a connection to NATS shows nodes as `disconnected` after one heartbeat',
    before:
      'if (!this.#bus.isConnected) this.#roster.markDisconnected(this.#ownNodeId)\n    else if (!this.#pauses.isCatchingUp) this.#roster.sweep()',
    after: 'if (!this.#pauses.isCatchingUp) this.#roster.sweep()',
    test: 'test/attacks/nats-away.test.ts',
  },
  {
    promise: 'A restarted server immediately shows the state that it had at most half a second before it stopped',
    before: 'for (const { record, publicKey } of nodes) {\n      const order',
    after: 'for (const { record, publicKey } of [...nodes].slice(1)) {\n      const order',
    test: 'test/cluster/roster/roster.test.ts',
  },
  {
    promise: 'A caller without a token has the rights of `acl { anonymous }`',
    before: "token === undefined || token === '' ? options.anonymous :",
    after: "token === undefined || token === '' ? undefined :",
    test: 'test/cluster/trust/authorizer.test.ts',
  },
  {
    promise: 'A token with limited uses spends one use for each call, forwarded or not',
    before: 'const isShared = grants.isUseLimited !== true',
    after: 'const isShared = true',
    test: 'test/cluster/trust/remote-authorizer.test.ts',
  },
  {
    promise: 'A token bound to addresses works if a server has seen the address itself',
    before: ".update(`${remote ?? ''} ${token}`, 'utf8')",
    after: ".update(` ${token}`, 'utf8')",
    test: 'test/cluster/trust/remote-authorizer.test.ts',
  },
  {
    promise: 'Messages that are malformed, too large, too numerous, or of a newer version are refused',
    before: "if (!this.#messages.take(nodeId, 1)) return 'rate'",
    after: '',
    test: 'test/cluster/roster/roster-listener.test.ts',
  },
  {
    promise: 'An allocation belongs to the node key that announced it first',
    before:
      '      if (known && known.nodeId !== nodeId) this.#nodes.get(known.nodeId)?.allocations.delete(allocation.id)\n',
    after: '',
    test: 'test/cluster/roster/roster.test.ts',
  },
  {
    promise: 'Messages that are malformed, too large, too numerous, or of a newer version are refused',
    before: '      this.#queuedBytes -= older.message.payload.length\n',
    after: '',
    test: 'test/cluster/roster/roster-listener.test.ts',
  },
  {
    promise: 'Messages that are malformed, too large, too numerous, or of a newer version are refused',
    before: 'this.#queuedBytes -= older.message.payload.length',
    after: 'this.#queuedBytes -= received.message.payload.length',
    test: 'test/cluster/roster/roster-listener.test.ts',
    testName: 'replaced by a small one',
  },
  {
    promise: 'An allocation belongs to the node key that announced it first',
    before: "if (this.#has(known)) this.#markAlive(known, 'Node re-registered')",
    after: "this.#markAlive(known, 'Node re-registered')",
    test: 'test/cluster/roster/roster-listener.test.ts',
    testName: 'is not stored again',
  },
]

export const EXEMPTIONS: readonly Exemption[] = [
  {
    promise: '*Not covered:* calls from a server to a host, and the files and logs that it fetches',
    reason: 'a limit: says what is not promised',
  },
]
