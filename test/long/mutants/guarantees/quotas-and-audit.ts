/** Mutants of "Quotas" and "Audit". */
import type { Mutant } from '../mutant-list.ts'

export const MUTANTS: readonly Mutant[] = [
  {
    promise: '**Per caller.** With `group_by = ip`',
    before: "const caller = rule.groupBy === 'none' ? '*' : remote === undefined ? '' : callerNetwork(remote)",
    after: "const caller = rule.groupBy === 'none' ? '*' : ''",
    test: 'test/secrets/quotas/quotas.test.ts',
  },
  {
    promise: 'at most `rate` plus the requests that `rate` per `interval` allows in t',
    before: 'return Math.min(limit.capacity, tokens + Math.max(0, nowMs - atMs) * limit.tokensPerMs)',
    after: 'return tokens + Math.max(0, nowMs - atMs) * limit.tokensPerMs',
    test: 'test/secrets/quotas/quotas.test.ts',
  },
  {
    promise: 'Memory is bounded: 100,000 callers. When more arrive, a caller with few requests is reset',
    before: 'candidates.sort((a, b) => b.fullness - a.fullness)',
    after: 'candidates.sort((a, b) => a.fullness - b.fullness)',
    test: 'test/secrets/quotas/quotas.test.ts',
  },
  {
    promise: '**No bypass by spelling.**',
    before: 'const path = rest.toLowerCase()',
    after: 'const path = rest',
    test: 'test/attacks/quota-flood.test.ts',
  },
  {
    promise: 'Rules are durable before they are acknowledged, and so is a block',
    before: 'await this.#rules.change((pending) => {\n      const rules = this.#withEnabledMount(pending)',
    after: 'void this.#rules.change((pending) => {\n      const rules = this.#withEnabledMount(pending)',
    test: 'test/secrets/quotas/quotas.test.ts',
  },
  {
    promise: '**Nothing unrecorded.** With an audit device enabled',
    before: "throw new AuditFault(`no audit device has recorded the request: ${faults.join(', ')}`)",
    after: 'void faults',
    test: 'test/secrets/audit/audit.test.ts',
  },
  {
    promise: '**One chain.** Lines are numbered and carry the hash of the previous line',
    before: "return (head = { sequence: head.sequence + 1, hash: hash('sha256', line) })",
    after: "head = { sequence: head.sequence + 1, hash: hash('sha256', json) }\n      return head",
    test: 'test/secrets/audit/audit-chain.test.ts',
  },
  {
    promise: 'A file holds complete lines only, even after a full disk or a killed process',
    before: 'if (!undo(open)) {',
    after: 'if (!Number.isInteger(open.fd)) {',
    test: 'test/attacks/full-audit-disk.test.ts',
  },
  {
    promise: '**No forged line in the chain.** Each line contains an authentication code under a key below the barrier',
    before: "if (!this.#isNew) return isAhead && hasValidMac(line, this.#key) ? 'accepted' : 'break'",
    after: "if (!this.#isNew) return isAhead ? 'accepted' : 'break'",
    test: 'test/secrets/audit/audit-chain.test.ts',
  },
  {
    promise: '**A line is bounded.** Data of more than 10,000 values is recorded with one HMAC per field',
    before: 'if (fields.length > VALUES_MAX) return',
    after: 'if (fields.length > 10 * VALUES_MAX) return',
    test: 'test/secrets/audit/audit-hmac.test.ts',
  },
  {
    promise: '**No value in a line**, of requests, responses or errors',
    before: 'return redactValues(format.key, text, request.data)',
    after: 'return text',
    test: 'test/secrets/audit/audit.test.ts',
  },
  {
    promise: 'The rest of any other path is an HMAC',
    before:
      'return undeclaredAt === path.length ? path : path.slice(0, undeclaredAt) + secret(format, path.slice(undeclaredAt))',
    after: 'return undeclaredAt > 0 ? path : secret(format, path)',
    test: 'test/secrets/audit/audit.test.ts',
  },
  {
    promise: 'A device that fails while another one records blocks nothing',
    before: 'return Promise.any(attempts).then(',
    after: 'return Promise.all(attempts).then(',
    test: 'test/secrets/audit-devices.test.ts',
  },
  {
    promise: '**Before the token.** A request over its quota is refused before its token is checked',
    before:
      'if (quota?.refusal && !(isAudited && quota.isAudited)) return afterBlock(Promise.reject(quota.refusal), quota.blocked)',
    after: '',
    test: 'test/secrets/quotas/quotas.test.ts',
  },
  {
    promise: 'Not recorded: `sys/health`, `leader`, `seal-status`',
    before: 'return path?.unauthenticated === true && path.whileSealed === true',
    after: 'return path?.unauthenticated === true',
    test: 'test/secrets/audit/audit.test.ts',
  },
  {
    promise: 'A device is enabled only on a file that is empty, or whose last line has the form',
    before: 'if (!isDevices) throw new DeviceFault(path, FOREIGN_CONTENT)',
    after: 'if (size < 0) throw new DeviceFault(path, FOREIGN_CONTENT)',
    test: 'test/secrets/audit/audit.test.ts',
  },
]
