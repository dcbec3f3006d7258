/** Mutants of "Identity and logins" and "Multi-factor authentication". */
import type { Mutant } from '../mutant-list.ts'

export const MUTANTS: readonly Mutant[] = [
  {
    promise: 'A change of an entity, an alias or a group is one commit with all of its indexes',
    before: 'if (changedEntities.size === 0) return\n',
    after: 'if (changedEntities.size >= 0) return\n',
    test: 'test/secrets/identity/identity.test.ts',
  },
  {
    promise: 'A disabled or removed entity has no rights, with any token',
    before: 'if (!rights || rights.disabled) return undefined',
    after: 'if (!rights) return undefined',
    test: 'test/secrets/identity/identity.test.ts',
  },
  {
    promise: 'A user or role gets the same entity at each login',
    before: 'this.#changed.has(path) ? undefined : this.#storage.pending(path))',
    after: 'this.#changed.has(path) ? undefined : this.#storage.get(path))',
    test: 'test/secrets/identity/identity.test.ts',
  },
  {
    promise: 'A new user or role of that name gets a new entity',
    before: 'return { batch, releasedAliases: [user.name] }',
    after: 'return { batch, releasedAliases: [] }',
    test: 'test/auth/userpass.test.ts',
  },
  {
    promise: 'A secret ID that is valid for N logins issues N tokens',
    before: 'if (secret.usesLeft === 1) return { ...secret, updatedAtMs, expiresAtMs: USED_UP_AT_MS }',
    after: '',
    test: 'test/auth/approle.test.ts',
  },
  {
    promise: 'It does not if the secret ID is destroyed',
    before: "return credential === '' || credential === USED_UP || read(at.secret(uid, credential)) !== undefined",
    after: 'return credential !== undefined',
    test: 'test/attacks/pending-login.test.ts',
  },
  {
    promise: 'Four kinds of failed logins cost the same hash',
    before: 'if (!mayLogInFrom(user.terms.boundCidrs, call.remote)) throw refusal()',
    after: 'if (!mayLogInFrom(user.terms.boundCidrs, call.remote)) throw invalidCredentials()',
    test: 'test/auth/userpass.test.ts',
  },
  {
    promise: 'An entity gains the rights of an external group at the login or renewal that reports the group',
    before: "if (!entity || !alias || alias.groups.join('\\n') === groups.join('\\n')) return",
    after: 'if (!entity || !alias || groups.length === 0) return',
    test: 'test/secrets/external-groups.test.ts',
  },
  {
    promise: 'Of concurrent guesses at one name, at most two more than the lockout threshold are checked',
    before:
      "if (call.failures.isLocked(name)) throw new Rejection(403, 'permission denied')\n    },\n  })\n  if (call.failures.isLocked(name)) throw new Rejection(403, 'permission denied')\n",
    after: '},\n  })\n',
    test: 'test/auth/userpass.test.ts',
  },
  {
    promise: 'Failures with other names, at any number, unlock no name',
    before: 'if (!isExpired(count, nowMs)) this.#sketch.add(',
    after: 'if (isExpired(count, nowMs)) this.#sketch.add(',
    test: 'test/secrets/logins/user-lockout.test.ts',
  },
  {
    promise: 'Five wrong secret IDs lock a role ID',
    before: 'return !!count && count.failures >= threshold &&',
    after: 'return !!count && count.failures > threshold &&',
    test: 'test/secrets/logins/user-lockout.test.ts',
  },
  {
    promise: 'No name of an entity, alias, group, user or role appears in a path of the store',
    before: "readonly #hashName: NameHasher = (text) => this.#hash.digest(text, 'base64url')",
    after: 'readonly #hashName: NameHasher = (text) => text',
    test: 'test/secrets/identity/identity.test.ts',
  },
  {
    promise: 'Tokens of logins end when their auth method is disabled, including batch tokens',
    before: 'if (login) return this.#isMounted(login.mount)',
    after: "if (login && type !== 'batch') return this.#isMounted(login.mount)",
    test: 'test/auth/userpass.test.ts',
  },
  {
    promise: 'The code of one time step is accepted once for each entity and method',
    before: "return isUsed(used, step) ? { kind: 'used' } :",
    after: 'return',
    test: 'test/secrets/mfa-step-up.test.ts',
  },
  {
    promise: 'The use is durable before the request proceeds',
    before: 'if (changes.size > 0) await this.#groupCommit.add(changes)',
    after: 'if (changes.size > 0) void this.#groupCommit.add(changes)',
    test: 'test/secrets/mfa-step-up.test.ts',
  },
  {
    promise: 'Wrong codes and lockouts survive a restart',
    before: 'lockedUntilMs: nowMs + lockMs(secret.periodSeconds, secret.lockouts),',
    after: 'lockedUntilMs: 0,',
    test: 'test/secrets/mfa/mfa-secret.test.ts',
  },
  {
    promise: 'at most `max_validation_attempts` are checked',
    before: 'if (counted.tries < attemptsMax) return',
    after: 'if (counted.tries <= attemptsMax) return',
    test: 'test/secrets/mfa/mfa-secret.test.ts',
  },
  {
    promise: 'A path with `mfa_methods` is not reachable without a code of each of them',
    before: "if (methods.every(({ id }) => verdicts.get(id) === 'right')) return",
    after: "if (methods.some(({ id }) => verdicts.get(id) === 'right')) return",
    test: 'test/secrets/mfa-step-up.test.ts',
  },
  {
    promise: 'A login that an enforcement applies to issues no token without a code',
    before: 'if (enforcements.length === 0) return issueToken(services, accepted, draft, entity)',
    after: 'if (enforcements.length < 2) return issueToken(services, accepted, draft, entity)',
    test: 'test/secrets/mfa-login.test.ts',
  },
  {
    promise: 'a login ID is valid for one token',
    before: 'loginMfa.drop(requestId)',
    after: '',
    test: 'test/secrets/mfa-login.test.ts',
  },
  {
    promise: 'Pending logins are limited in number and in time',
    before: 'return login && login.expiresAtMs > this.#now() ? login : undefined',
    after: 'return login',
    test: 'test/secrets/mfa-login.test.ts',
  },
  {
    promise:
      'A key, its URL, its QR code and its recovery codes are in the response that generates them and nowhere else',
    before: 'recoveryHashes: recoveryCodes.map((code) => recoveryHash(code)),',
    after: 'recoveryHashes: [...recoveryCodes],',
    test: 'test/secrets/mfa/mfa-secret.test.ts',
  },
  {
    promise: 'A secret is removed with its method and its entity',
    before: 'await this.#methods.remove(id)\n      await this.#removeSecrets(id)',
    after: 'await this.#methods.remove(id)',
    test: 'test/secrets/mfa/mfa-methods.test.ts',
  },
  {
    promise: 'The lockout of one entity affects no other entity and no other method',
    before: "failed.methodIds.some((id) => verdicts.get(id) === 'locked')",
    after: "[...verdicts.values()].includes('locked')",
    test: 'test/secrets/mfa-login.test.ts',
    testName: 'lock-out of the method of another one',
  },
  {
    promise: 'A secret is removed with its method and its entity. It is replaced if',
    before: 'if (into !== undefined && !changes.get(pathOf(id, into))) changes.put',
    after: 'if (into !== undefined) changes.put',
    test: 'test/secrets/mfa/mfa-methods.test.ts',
    testName: 'the entity that stays in a merge',
  },
]
