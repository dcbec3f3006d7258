/** Mutants of "High availability". */
import type { Exemption, Mutant } from '../mutant-list.ts'

export const MUTANTS: readonly Mutant[] = [
  {
    promise: '**No acknowledged write is lost** while a majority',
    before: 'open.last = await publishMessage(stream, message, open.last, open.ended.signal)',
    after: 'void publishMessage(stream, message, open.last++, open.ended.signal).catch(() => undefined)',
    test: 'test/ha/ha-server.test.ts',
    testName: 'the stream refuses a group of an earlier term',
  },
  {
    promise: '**No acknowledged write is lost** while a majority',
    before: 'statsz.jetstream?.config?.sync_always ?? false',
    after: 'statsz.jetstream?.config?.sync_always ?? true',
    test: 'test/ha/ha-server.test.ts',
    testName: 'over NATS servers that do not sync',
  },
  {
    promise: '**No acknowledged write is lost** while a majority',
    before: 'for (let next = mark.position + 1; next <= last; ) {',
    after: 'for (let next = mark.position + 1; next < last; ) {',
    test: 'test/ha/stream-follower.test.ts',
  },
  {
    promise: '**No acknowledged write is lost** while a majority',
    before: 'if (partId(next) === id) return last + 1',
    after: '',
    test: 'test/ha/ha-server.test.ts',
    testName: 'whose acknowledgement was lost',
  },
  {
    promise: '**One server serves.** Before another server can become active',
    before: "return this.#phase === 'active' && (this.#parts?.lease.isValid ?? false)",
    after: "return this.#phase === 'active'",
    test: 'test/ha/ha-server.test.ts',
    testName: 'a member without NATS stops serving',
  },
  {
    promise: '**One server serves.** Before another server can become active',
    before: 'this.#validUntilMs = sentAtMs + holder.leaseMs',
    after: 'this.#validUntilMs = this.#options.nowMs() + holder.leaseMs',
    test: 'test/ha/lease.test.ts',
  },
  {
    promise: '**One server serves.** Before another server can become active',
    before: 'this.#validUntilMs = sentAtMs + leaseMs',
    after: 'this.#validUntilMs = nowMs() + leaseMs',
    test: 'test/ha/lease.test.ts',
  },
  {
    promise: '**One server serves.** Before another server can become active',
    before: 'return seenForMs >= waitMs + (isFree ? 0 : (this.#holder?.leaseMs ?? 0) + TIMINGS.haLeaseMarginMs)',
    after: 'return seenForMs >= waitMs + (isFree ? 0 : (this.#holder?.leaseMs ?? 0))',
    test: 'test/ha/lease.test.ts',
  },
  {
    promise: '**One server serves.** Before another server can become active',
    before: 'const isConfirmed = await confirm()\n',
    after: "const isConfirmed = server.phase === 'active'\n",
    test: 'test/ha/ha-routing.test.ts',
  },
  {
    promise: '**Reads are current** at every server',
    before: 'if (!confirmed || !(await this.#hasApplied(confirmed.newest))) return undefined',
    after: 'if (!confirmed) return undefined',
    test: 'test/daemon/standby/standby-reads.test.ts',
  },
  {
    promise: '**Reads are current** at every server',
    before: 'return (await this.#isVisible(visible)) ? answer : undefined',
    after: 'return answer',
    test: 'test/daemon/standby/standby-reads.test.ts',
    testName: 'before reads at the active server include it',
  },
  {
    promise: '**Reads are current** at every server',
    before:
      'if (!this.#inFlight) return (this.#inFlight = this.#send())\n    this.#next ??= this.#inFlight.then(() => {\n' +
      '      this.#next = undefined\n      return (this.#inFlight = this.#send())\n    })\n    return this.#next\n',
    after: 'return (this.#inFlight ??= this.#send())\n',
    test: 'test/daemon/standby/read-index.test.ts',
  },
  {
    promise: '**Reads are current** at every server',
    before: 'this.#currentAtMs = Math.max(this.#currentAtMs, confirmed.requestedAtMs)',
    after: 'this.#currentAtMs = performance.now()',
    test: 'test/daemon/standby/standby-reads.test.ts',
  },
  {
    promise: '**Reads are current** at every server',
    before: 'const ageMs = Math.min(requiredAge(raw) ?? 0, AGE_MAX_MS)',
    after: 'const ageMs = requiredAge(raw) ?? 0',
    test: 'test/daemon/standby/standby-reads.test.ts',
    testName: 'max-age and X-Vault-Index',
  },
  {
    promise: '**Reads are current** at every server',
    before: "message.respond(isServing() ? `${newest} ${visible}` : '')",
    after: 'message.respond(`${newest} ${visible}`)\n      void isServing',
    test: 'test/ha/ha-server.test.ts',
    testName: 'only an active server answers',
  },
  {
    promise: '**Takeover without key holders**, within 5 s',
    before: 'return seenForMs >= waitMs + (isFree ? 0 : (this.#holder?.leaseMs ?? 0) + TIMINGS.haLeaseMarginMs)',
    after: 'return seenForMs >= waitMs + (this.#holder?.leaseMs ?? 0) + TIMINGS.haLeaseMarginMs',
    test: 'test/ha/lease.test.ts',
  },
  {
    promise: '**Takeover without key holders**, within 5 s',
    before: 'this.unseal(key)\n    } catch (error) {\n      this.standby.hold(key)\n',
    after: 'this.unseal(key)\n    } catch (error) {\n',
    test: 'test/storage/barrier/standby-key.test.ts',
  },
  {
    promise: '**Requests wait** for an active server for up to 30 s',
    before: 'if (performance.now() > endMs) throw this.#noActive()',
    after: 'if (performance.now() > startedAtMs) throw this.#noActive()',
    test: 'test/ha/ha-routing.test.ts',
    testName: 'a snapshot through a standby',
  },
  {
    promise: '**Requests wait** for an active server for up to 30 s',
    before: 'const mayRepeat = isRead && !this.#options.usesAreLimited(call.token)',
    after: 'const mayRepeat = isRead',
    test: 'test/ha/ha-routing.test.ts',
  },
  {
    promise: '**Requests wait** for an active server for up to 30 s',
    before: 'if (!usesAreLimited && (isRead || (status >= 400 && status < 500))) return undefined',
    after: 'if (isRead || (status >= 400 && status < 500)) return undefined',
    test: 'test/ha/ha-routing.test.ts',
  },
  {
    promise: '**Requests wait** for an active server for up to 30 s',
    before: "if (isLost(error)) return { answer: unknownOutcome(isSame ? 'did not respond' : 'changed') }",
    after: 'if (isLost(error) && !isSame) return undefined',
    test: 'test/ha/ha-routing.test.ts',
  },
  {
    promise: '**A watch loses and repeats no event**',
    before:
      'isConfirmed = (await confirm?.()) ?? true\n        if (!isConfirmed) break\n        cursor = requests.cursorOf(headers, chunk) ?? cursor\n',
    after:
      'cursor = requests.cursorOf(headers, chunk) ?? cursor\n        isConfirmed = (await confirm?.()) ?? true\n        if (!isConfirmed) break\n',
    test: 'test/ha/ha-routing.test.ts',
  },
  {
    promise: '**A watch loses and repeats no event**',
    before: 'const raw = cursor === undefined ? call.raw : lasting.resumed(call.raw, cursor)',
    after: 'const raw = call.raw\n      void cursor',
    test: 'test/ha/ha-routing.test.ts',
    testName: 'a stream at the former active server continues',
  },
  {
    promise: '**A member does not apply a commit to another history.**',
    before: 'return one.sequence === other.sequence && Buffer.compare(one.checksum, other.checksum) === 0',
    after: 'return one.sequence === other.sequence',
    test: 'test/ha/orders.test.ts',
  },
  {
    promise: '**A member does not apply a commit to another history.**',
    before: 'if (isRetained && !this.#store.holds(stated))',
    after: 'if (isRetained && stated.sequence > this.#store.position().sequence)',
    test: 'test/ha/orders.test.ts',
  },
  {
    promise: '**A member does not apply a commit to another history.**',
    before: 'if (own > 0) throw ownCommits(own, this.#options.stream.name)',
    after: 'if (own > 1) throw ownCommits(own, this.#options.stream.name)',
    test: 'test/ha/ha-server.test.ts',
    testName: 'commits that are not in the stream does not join',
  },
  {
    promise: '**A changed stream is detected, not served.**',
    before: 'return !isForeign && (!head || (opened !== undefined && set.fits(opened)))',
    after: 'return !isForeign && (!head || opened !== undefined)',
    test: 'test/daemon/standby/standby-reads.test.ts',
    testName: 'a forged group',
  },
  {
    promise: '**A changed stream is detected, not served.**',
    before: 'return !isForeign && (!head || (opened !== undefined && set.fits(opened)))',
    after: 'return !head || (opened !== undefined && set.fits(opened))',
    test: 'test/daemon/standby/standby-reads.test.ts',
    testName: 'a forged group',
  },
]

export const EXEMPTIONS: readonly Exemption[] = [
  {
    promise: '*Not covered.* The cluster is not available while NATS has no majority.',
    reason: 'limits: says what is not promised',
  },
]
