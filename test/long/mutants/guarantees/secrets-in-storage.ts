/** Mutants of "Secrets in storage". */
import type { Exemption, Mutant } from '../mutant-list.ts'

export const MUTANTS: readonly Mutant[] = [
  {
    promise: '**Acknowledged writes are durable.** A write and its row of the log',
    before: 'PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;',
    after: 'PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;',
    test: 'test/storage/sqlite/pragmas.test.ts',
  },
  {
    promise: 'A batch is applied completely or not at all',
    before: "if (this.#database.isTransaction) this.#database.exec('ROLLBACK')",
    after: "if (this.#database.isTransaction) this.#database.exec('COMMIT')",
    test: 'test/storage/store/replica.test.ts',
  },
  {
    promise: '**Dependent writes fail together.** A write that was decided on',
    before: "if (generation <= this.#failedGeneration) return { kind: 'dropped' }",
    after: '',
    test: 'test/storage/generations.test.ts',
  },
  {
    promise: '**Audit lines on a full disk** continue into a reserve',
    before: 'return this.#shrink((Math.ceil(bytes / BLOCK_BYTES) + 1) * BLOCK_BYTES)',
    after: 'return bytes < 0',
    test: 'test/attacks/full-disk.test.ts',
  },
  {
    promise: '**A full disk** refuses writes that need space with 507',
    before: 'if (!this.#isFull || mayUseReserve(batch, this.sizeOf)) return undefined\n',
    after: 'if (!this.#isFull) return undefined\n',
    test: 'test/attacks/full-disk.test.ts',
  },
  {
    promise: 'any other write by which an entry grows by at most 128 bytes',
    before: 'value.length > before + GROWTH_BYTES) return false',
    after: 'value.length > before + 10 * GROWTH_BYTES) return false',
    test: 'test/storage/sqlite/reserve.test.ts',
  },
  {
    promise: '**A failing disk** fails the writes in progress',
    before: "return code === FULL ? new StoreError('full', noSpace(directory)) : new StoreError('failed', message)",
    after: "return code === FULL ? new StoreError('full', noSpace(directory)) : undefined",
    test: 'test/storage/generations.test.ts',
  },
  {
    promise: '**A database that is moved, replaced, removed or truncated under a running server**',
    before: 'if (now.ino !== this.#inode || now.dev !== this.#device) {',
    after: 'if (now.dev !== this.#device) {',
    test: 'test/attacks/displaced-database.test.ts',
  },
  {
    promise: 'Truncated data is lost, and writes are refused until a restart',
    before: 'if (bytes < this.#walBytes) this.#truncation ??=',
    after: 'if (bytes > this.#walBytes + 1e12) this.#truncation ??=',
    test: 'test/storage/sqlite/file-guard.test.ts',
  },
  {
    promise: '**Damage.** A read of a damaged entry is an error that names the entry',
    before: 'throw new Fault(`the checksum of log row ${after.sequence} does not match the row before it`)',
    after: 'break',
    test: 'test/storage/store/damage.test.ts',
  },
  {
    promise: '**Lost commits are reported.**',
    before:
      'return seen.sequence > now.sequence ? olderText(path, `${seen.sequence - now.sequence} changes`) : undefined',
    after:
      'return seen.sequence > now.sequence + 1 ? olderText(path, `${seen.sequence - now.sequence} changes`) : undefined',
    test: 'test/storage/sqlite/seen-file.test.ts',
  },
  {
    promise: 'is refused with 500, from the first read after unsealing on',
    before: "throw new RollbackError(path, !found ? 'removed' : known ? 'replaced' : 'put back')",
    after: "if (found) throw new RollbackError(path, known ? 'replaced' : 'put back')",
    test: 'test/attacks/rolled-back-entry.test.ts',
  },
  {
    promise: '**Rollback.** Without the key, an entry can be replaced by its old state',
    before: 'return a === undefined || b === undefined ? a === b : a.hi === b.hi && a.lo === b.lo',
    after: 'return a === undefined || b === undefined ? a === b : true',
    test: 'test/storage/barrier/entry-set.test.ts',
  },
  {
    promise: 'On an empty database next to that file, init and `restore -new` are refused',
    before: 'return seen && now.sequence === 0 && seen.sequence > 0 ? emptyText(this.#store.path, seen) : undefined',
    after: 'return seen && now.sequence > 0 && seen.sequence > 0 ? emptyText(this.#store.path, seen) : undefined',
    test: 'test/storage/sqlite/seen-file.test.ts',
  },
  {
    promise: '**One process.** A second process is refused',
    before: 'this.#lock = lockDatabase(path)',
    after: 'this.#lock = lockDatabase(`${path}${performance.now()}`)',
    test: 'test/storage/store/damage.test.ts',
    testName: 'a second process is refused',
  },
  {
    promise: '**A new file never replaces an existing one.**',
    before: "if (isErrno(error, 'ENOENT')) return undefined\n    throw accessFault(path, error)",
    after: "if (isErrno(error, 'ENOENT', 'EACCES')) return undefined\n    throw accessFault(path, error)",
    test: 'test/attacks/foreign-owner.test.ts',
  },
  {
    promise: '**Removed data** is overwritten in the database',
    before: 'PRAGMA secure_delete = ON; PRAGMA wal_autocheckpoint',
    after: 'PRAGMA secure_delete = OFF; PRAGMA wal_autocheckpoint',
    test: 'test/storage/sqlite/pragmas.test.ts',
  },
  {
    promise: '**A snapshot** is ciphertext of one moment',
    before: 'if (ofMeta !== sha256Of(described) || !ofState || seal.toString().trim() !== sha256Of(sums)) {',
    after: 'if (!ofState) {',
    test: 'test/storage/snapshot/snapshot.test.ts',
  },
  {
    promise: 'Requests in progress during a restore fail with 503',
    before: "return this.#isRestoring ? new StoreError('busy', 'a snapshot is being restored') : undefined",
    after: 'return undefined',
    test: 'test/storage/snapshot/snapshot.test.ts',
  },
  {
    promise: '**A replica is byte-identical to its primary**',
    before: 'if (!isNext || !checksumOf(row, before.checksum).equals(row.checksum)) {',
    after: 'if (!isNext) {',
    test: 'test/storage/store/replica.test.ts',
  },
  {
    promise: 'During a copy the store reports that it is incomplete',
    before: "if (!store.isWhole)\n    throw new Refusal('unavailable', 'the initial sync of this store",
    after: "if (store.isEmpty)\n    throw new Refusal('unavailable', 'the initial sync of this store",
    test: 'test/storage/store/replica.test.ts',
  },
  {
    promise: '**Damage is located.** `merkle-check` reads every entry',
    before: 'const corrupted = pagesOf(found.damagedPages ?? [], [...(found.wrong ?? []), ...tree.damagedSubpages])',
    after: 'const corrupted = pagesOf(found.damagedPages ?? [], [...(found.wrong ?? [])])',
    test: 'test/storage/merkle.test.ts',
  },
  {
    promise: '**A sealed process** has overwritten its keys',
    before: 'setTimeout(collectNow, DELAY_MS).unref()',
    after: 'setTimeout(() => undefined, DELAY_MS).unref()',
    test: 'test/storage/barrier/forced-gc.test.ts',
  },
  {
    promise: '**A failed startup** ends immediately',
    before: 'setTimeout(() => process.exit(), EXIT_MS).unref()',
    after: '',
    test: 'test/daemon/agent-process.test.ts',
  },
  {
    promise: '**A restore makes progress or ends.**',
    before: 'if (this.#bytes < this.#pace.bytesMin) {',
    after: 'if (this.#bytes === 0) {',
    test: 'test/attacks/slow-snapshot.test.ts',
  },
  {
    promise: '**Request bodies** in transfer may hold 1 MiB of memory each',
    before: 'if (takenBytes + more > SHARED_BYTES_MAX) return false',
    after: '',
    test: 'test/http/large-bodies.test.ts',
  },
  {
    promise: '**A body is limited before it is parsed**',
    before: 'if (values > valuesMax) throw tooComplex(',
    after: 'if (depth > valuesMax) throw tooComplex(',
    test: 'test/attacks/costly-bodies.test.ts',
  },
  {
    promise: "More than 16 KiB are parsed only if the caller's policies contain a rule for the path",
    before: 'if (this.#isDenied()) throw denied()',
    after: '',
    test: 'test/attacks/costly-bodies.test.ts',
  },
  {
    promise: '**The files** of the database are accessible to their owner only (0600)',
    before: "closeSync(openSync(path, 'wx', 0o600))",
    after: "closeSync(openSync(path, 'wx', 0o644))",
    test: 'test/storage/sqlite/private-file.test.ts',
  },
  {
    promise: '**A failing disk** fails the writes in progress',
    before: '      return outcome\n    } finally {\n      this.#isRestoring = false\n    }',
    after: '      this.#isRestoring = false\n      return outcome\n    } finally {\n    }',
    test: 'test/storage/snapshot/snapshot.test.ts',
    testName: 'error of the disk',
  },
  {
    promise: '**Lost commits are reported.**',
    before: 'return written?.sequence === sequence && written.epoch === epoch && written.cluster === cluster',
    after: 'return written?.sequence === sequence && written.cluster === cluster',
    test: 'test/storage/sqlite/seen-file.test.ts',
  },
  {
    promise: '**Damage is located.** `merkle-check` reads every entry',
    before: 'for (const page of applyNotes(this.#tree, notes)) this.#unsaved.add(page)',
    after: 'applyNotes(this.#tree, notes)',
    test: 'test/storage/merkle.test.ts',
    testName: 'earlier process',
  },
  {
    promise: '**A failing disk** fails the writes in progress',
    before: '      this.#epoch = before.epoch\n      this.#role = before.role\n',
    after: '      this.#epoch = before.epoch\n',
    test: 'test/storage/store/writer.test.ts',
  },
  {
    promise: '**A restore makes progress or ends.**',
    before:
      '    } finally {\n      clearTimeout(this.#timer)\n      this.#waitedMs += performance.now() - startMs\n    }',
    after: '    } finally {\n      clearTimeout(this.#timer)\n    }',
    test: 'test/http/upload.test.ts',
  },
]

export const EXEMPTIONS: readonly Exemption[] = []
