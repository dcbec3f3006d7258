/** Mutants of "An attacker with access to the audit files". */
import type { Mutant } from '../mutant-list.ts'

export const MUTANTS: readonly Mutant[] = [
  {
    promise: 'read which caller requested which path and when',
    before: 'plainFields.includes(name) ? value : replace(value)',
    after: `plainFields.includes(name) || typeof value === 'number' ? value : typeof value === 'object' ? value : replace(value)`,
    test: 'test/secrets/audit/audit.test.ts',
  },
  {
    promise: 'read which caller requested which path and when',
    before: 'if (depth >= DEPTH_MAX) return TOO_DEEP',
    after: 'if (depth >= DEPTH_MAX) return value',
    test: 'test/secrets/audit/audit-hmac.test.ts',
  },
  {
    promise: 'read which caller requested which path and when',
    before: 'name === MFA_HEADER ? withoutCodes(value) : value',
    after: 'value',
    test: 'test/attacks/guessed-codes.test.ts',
  },
  {
    promise: 'read which caller requested which path and when',
    before: `if (fields.length > VALUES_MAX) return { 'hmac-sha256': hmacOf(key, JSON.stringify(data)) }`,
    after: 'if (fields.length > VALUES_MAX) return { ...data }',
    test: 'test/secrets/audit/audit-hmac.test.ts',
  },
  {
    promise: 'change, remove or add lines',
    before: 'if (previous === last.hash) return undefined',
    after: 'return undefined',
    test: 'test/cli/audit-verify.test.ts',
  },
  {
    promise: 'change, remove or add lines',
    before: 'const isStart = sequence !== 1 || previous === CHAIN_START.hash',
    after: 'const isStart = true',
    test: 'test/cli/audit-verify.test.ts',
  },
  {
    promise: 'change, remove or add lines',
    before: 'if (this.#last === undefined || id === this.#id || event !== undefined) return undefined',
    after: 'return undefined',
    test: 'test/cli/audit-verify.test.ts',
  },
  {
    promise: 'cut the end of a file, or rewrite a whole file',
    before: '} else if (sequence > have) {',
    after: '} else if (false) {',
    test: 'test/cli/audit-verify.test.ts',
  },
  {
    promise: 'cut the end of a file, or rewrite a whole file',
    before: '} else if (sequence > 0 && !this.#isHeadFound) {',
    after: '} else if (false) {',
    test: 'test/cli/audit-verify.test.ts',
  },
  {
    promise: 'cut the end of a file, or rewrite a whole file',
    before: 'if (!chain.isMac(digest, mac)) return at\n',
    after: '',
    test: 'test/secrets/audit/audit-chain.test.ts',
  },
  {
    promise: 'cut the end of a file, or rewrite a whole file',
    before: 'if (sequence === head.sequence && hash !== head.hash) {',
    after: 'if (false) {',
    test: 'test/cli/audit-verify.test.ts',
  },
  {
    promise: 'add lines whose numbers and hashes match',
    before: `return isAhead && hasValidMac(line, this.#key) ? 'accepted' : 'break'`,
    after: `return isAhead ? 'accepted' : 'break'`,
    test: 'test/secrets/audit/audit-chain.test.ts',
  },
  {
    promise: 'add lines whose numbers and hashes match',
    before: `const verdict = endVerdict === 'expected' && isInserted ? 'break' : endVerdict`,
    after: 'const verdict = endVerdict',
    test: 'test/secrets/audit/audit-chain.test.ts',
  },
  {
    promise: 'add lines whose numbers and hashes match',
    before: '      this.breaks++\n      this.#brokenChain = finding.broken',
    after: '      this.breaks++',
    test: 'test/secrets/audit/audit-chain.test.ts',
  },
  {
    promise: 'present files of another server',
    before: 'const { id } = linkOf(line.slice(-LINK_LENGTH_MAX)) ?? {}\n  if (id === undefined) return false',
    after:
      'const { id } = linkOf(line.slice(-LINK_LENGTH_MAX)) ?? {}\n  if (id !== undefined) return true\n  if (id === undefined) return false',
    test: 'test/secrets/audit/audit-chain.test.ts',
  },
  {
    promise: 'remove, rename or replace a file of a running server',
    before: `return before && isUnlinked(before.fd) ? { kind: 'removed', file: path, head } : undefined`,
    after: 'return undefined',
    test: 'test/secrets/audit/audit-chain.test.ts',
  },
  {
    promise: 'remove, rename or replace a file of a running server',
    before: 'return this.#reopen(chain)\n  }\n',
    after: 'return open ? undefined : this.#reopen(chain)\n  }\n',
    test: 'test/secrets/audit-devices.test.ts',
  },
  {
    promise: 'put an empty file in its place',
    before: 'if (!isDevices) throw',
    after: 'if (false) throw',
    test: 'test/secrets/audit/audit.test.ts',
  },
  {
    promise: 'put an empty file in its place',
    before: `if (isSame && before && before.size > 0) return { kind: 'emptied'`,
    after: `if (false) return { kind: 'emptied'`,
    test: 'test/secrets/audit/audit-chain.test.ts',
  },
  {
    promise: 'put an empty file in its place',
    before: "if (!stats.isFile()) throw new DeviceFault(path, 'is not a regular file')\n  if (nlink",
    after: 'if (nlink',
    test: 'test/secrets/audit/audit-chain.test.ts',
  },
  {
    promise: 'put an empty file in its place',
    before: 'if (chain.isBehind) this.#searchRotated(chain)',
    after: '',
    test: 'test/secrets/audit/audit-chain.test.ts',
  },
  {
    promise: 'change, remove or add lines',
    before: 'if (sequence > last.sequence + 1) {',
    after: 'if (sequence > last.sequence + 1 && position.line < 0) {',
    test: 'test/cli/audit-verify.test.ts',
  },
  {
    promise: 'change, remove or add lines',
    before: 'if (sequence <= last.sequence) {',
    after: 'if (sequence <= last.sequence && position.line < 0) {',
    test: 'test/cli/audit-verify.test.ts',
  },
  {
    promise: 'remove, rename or replace a file of a running server',
    before: 'const isSame = open !== undefined && named?.ino === open.ino && named.dev === open.dev\n    if',
    after: 'const isSame = open !== undefined && named !== undefined\n    if',
    test: 'test/secrets/audit/audit-chain.test.ts',
  },
]
