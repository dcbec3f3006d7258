/** Mutants of "AWS credentials". */
import type { Exemption, Mutant } from '../mutant-list.ts'

export const MUTANTS: readonly Mutant[] = [
  {
    promise: '**No user without a lease.**',
    before: "if (owner === 'absent') return quietMs >= CONSISTENCY_MS",
    after: "if (owner === 'absent') return true",
    test: 'test/engines/cloud/users.test.ts',
  },
  {
    promise: 'If AWS fails, outpost retries at most every 15 s',
    before: 'attempts.nextAtMs = nowMs + Math.min(PAUSE_MAX_MS,',
    after: 'attempts.nextAtMs = nowMs + Math.max(PAUSE_MAX_MS,',
    test: 'test/engines/cloud/backlog.test.ts',
  },
  {
    promise: '**Revocation is idempotent.** Access keys are removed first',
    before: "if (!isCode(error, 'NoSuchEntity') && !(mayBeDenied && isDenied(error))) throw error\n      return false",
    after: 'throw error',
    test: 'test/engines/cloud/users.test.ts',
  },
  {
    promise: '**Missing in one account does not mean missing in another.**',
    before: 'if (!isConfirmed) await checkLocation()',
    after: '',
    test: 'test/engines/cloud/account.test.ts',
  },
  {
    promise: '**Users of others remain.**',
    before: "if (owner === 'other') return true",
    after: '',
    test: 'test/engines/cloud/users.test.ts',
  },
  {
    promise: '**A rotation ends with a working key.**',
    before: 'const puts = [roots.put(ENTRY_PATHS.root, next), keyIntentPut(deletion), ...intentChanges.puts]',
    after: 'const puts = [roots.put(ENTRY_PATHS.root, next), ...intentChanges.puts]',
    test: 'test/engines/cloud/rotation.test.ts',
  },
  {
    promise: 'A key whose secret was lost is deleted',
    before: 'return (await deleteLost(iam, excluding, signal)) > 0 || quietMs >= CONSISTENCY_MS',
    after: 'return quietMs >= 0 || excluding.keys.length > 0',
    test: 'test/engines/cloud/rotation.test.ts',
  },
  {
    promise: '**A static role has a key**, or it does not exist',
    before: "if (role.previousKey !== '') await deleteKey(iam, role.username, role.previousKey, signal)",
    after: '',
    test: 'test/engines/cloud/rotation.test.ts',
  },
  {
    promise: '**Federation**: an exchanged token is valid for `identity_token_ttl`, at most a day',
    before: 'if (seconds > VERIFICATION_SECONDS) {',
    after: 'if (seconds > 10 * VERIFICATION_SECONDS) {',
    test: 'test/engines/cloud/federation.test.ts',
  },
  {
    promise: '| AWS throttles or does not respond |',
    before: 'return new Rejection(isUnavailable ? 502 : status, text)',
    after: 'return new Rejection(status, text)',
    test: 'test/engines/cloud/outages.test.ts',
  },
  {
    promise: '| a step of the creation of a user is refused, or the caller disconnects |',
    before: 'await done.catch((error: unknown) => refuse(what, error))',
    after: "await done.catch((error: unknown) => refuse('', error))",
    test: 'test/engines/cloud/outages.test.ts',
  },
  {
    promise: '| the response to CreateUser or CreateAccessKey is lost |',
    before: 'if (!mayExist || !(await isOurs(creation))) throw error',
    after: 'throw error',
    test: 'test/engines/cloud/users.test.ts',
  },
  {
    promise: '| the process is killed | a broken connection |',
    before: 'if (isDone) await storage.commit({ puts: [], deletes: [path] })',
    after: 'await storage.commit({ puts: [], deletes: [path] })\n    void isDone',
    test: 'test/engines/cloud/outages.test.ts',
  },
  {
    promise: '| AWS does not accept the new key within 20 s |',
    before: "return error.code === '' ? error.text : error.code\n        await later(POLL_INTERVAL_MS)",
    after: 'return undefined\n        await later(POLL_INTERVAL_MS)',
    test: 'test/engines/cloud/users.test.ts',
  },
  {
    promise: '| AWS refuses a revocation, or is unavailable |',
    before: "if (!isLast && isCode(error, 'DeleteConflict')) return 'conflict'\n      throw error",
    after: "if (!isLast && isCode(error, 'DeleteConflict')) return 'conflict'\n      return 'absent'",
    test: 'test/engines/cloud/users.test.ts',
  },
  {
    promise: '| the user was deleted outside of outpost |',
    before: "if (isCode(error, 'NoSuchEntity')) return 'absent'\n      if (!isLast",
    after: 'if (!isLast',
    test: 'test/engines/cloud/users.test.ts',
  },
  {
    promise: '| `cloud/config/root` is changed to another account or endpoint, and a lease ends |',
    before: 'return !one || !other || locationText(one) === locationText(other)',
    after: 'return !one || !other || one.partition === other.partition',
    test: 'test/engines/cloud/account.test.ts',
  },
  {
    promise: '| rotate-root: the new key cannot be created or stored |',
    before: 'this.#backlog.end(path)',
    after: '',
    test: 'test/engines/cloud/rotation.test.ts',
  },
  {
    promise: '| rotate-root: the old key cannot be deleted |',
    before: 'return { accessKey, warning: `the old access key ${oldKey} will be deleted later: ${messageOf(error)}` }',
    after: 'throw rejectionOf(oldKey, error)',
    test: 'test/engines/cloud/rotation.test.ts',
  },
  {
    promise: '| rotation of a static role fails |',
    before: 'return Math.max(expiresAtMs, this.#failures.get(name)?.nextAtMs ?? 0)',
    after: 'return expiresAtMs',
    test: 'test/engines/cloud/rotation.test.ts',
  },
  {
    promise: '| AWS refuses an identity token |',
    before: 'return new AwsFailure(code, text, status, isAmbiguous, HINTS[code]?.(issuer))',
    after: 'return new AwsFailure(code, text, status, isAmbiguous)',
    test: 'test/engines/cloud/federation.test.ts',
  },
  {
    promise: '| neither STS nor IAM reports the owner of the root credentials |',
    before: "if (typeof parsed === 'string' || parsed.account === '') throw invalidResponse('no account')",
    after: "if (typeof parsed === 'string') return { partition: '', account: '', endpoint: '' }",
    test: 'test/engines/cloud/account.test.ts',
  },
  {
    promise: '| rotation of a static role fails',
    before: '      })\n      this.#failures.delete(name)\n',
    after: '      })\n',
    test: 'test/engines/cloud/rotation.test.ts',
    testName: 'static role is soon again',
  },
]

export const EXEMPTIONS: readonly Exemption[] = [
  { promise: 'Not guaranteed: that AWS accepts a new key immediately', reason: 'a limit: says what is not promised' },
  {
    promise: '| the core is sealed | 503 | users are removed when their leases end',
    reason:
      'the mutants of "**No user without a lease.**" and of "**Expiry.** A lease ends when it expires" cover what the row combines',
  },
]
