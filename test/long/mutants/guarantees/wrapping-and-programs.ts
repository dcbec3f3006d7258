/** Mutants of "Response wrapping", "Programs with secrets" and "Agent login". */
import type { Mutant } from '../mutant-list.ts'

export const MUTANTS: readonly Mutant[] = [
  {
    promise: '**Once.** Of any number of callers with one wrapping token, one gets the response',
    before:
      'if (!entry || !isWrapping || entry.usesLeft !== 1 || entry.isLeaving || hasExpired(entry, now())) throw invalid()',
    after: 'if (!entry || !isWrapping || hasExpired(entry, now())) throw invalid()',
    test: 'test/secrets/wrapping/wrapping.test.ts',
  },
  {
    promise: '`rewrap` spends the first token in the commit that creates the second',
    before: 'await this.#useUp(entry, parts)',
    after: 'await Storage.commitAll(parts)',
    test: 'test/secrets/wrapping/wrapping.test.ts',
  },
  {
    promise: 'A token in the form of a JWT is refused if one bit of it was changed',
    before: 'if (!isSigned) return undefined',
    after: '',
    test: 'test/secrets/wrapping/wrapping.test.ts',
  },
  {
    promise: '**Current.** A change of a secret reaches the files or the command',
    before: "if (this.#plan.onChange === 'restart') this.#program?.restart(env)",
    after: "if (this.#plan.onChange === 'none') this.#program?.restart(env)",
    test: 'test/cli/commands/exec/exec.test.ts',
  },
  {
    promise: '**Confidential.** No value is on a command line',
    before: ': (mode & 0o077) !== 0\n        ?',
    after: ': (mode & 0o007) !== 0\n        ?',
    test: 'test/cli/commands/exec/exec.test.ts',
  },
  {
    promise: '**Renewed.** The token is renewed before it expires',
    before: 'await pause(seconds * RENEW_AFTER_PART * randomBetween(EARLIER_MIN, 1) * 1000, signal)',
    after: 'await pause(seconds * 1000, signal)',
    test: 'test/login/session.test.ts',
  },
  {
    promise: 'until that succeeds, the old login remains',
    before: 'else this.#replaced = replaced',
    after: 'else void this.#revoke(replaced)',
    test: 'test/login/session.test.ts',
  },
  {
    promise: '**One file** (0600) holds the token',
    before: 'this.#failures.file++\n        removeLogin(file)',
    after: 'this.#failures.file++',
    test: 'test/login/session.test.ts',
  },
  {
    promise: '**Ended.** When the agent stops, it removes the file and revokes the token',
    before: 'if (runs.length > 0) removeLogin(this.#options.file)',
    after: '',
    test: 'test/login/session.test.ts',
  },
  {
    promise: '**Secret.** Role ID, secret ID and token are in no log',
    before: "return typeof shown === 'string' ? shown : 'no server responds, see the log'",
    after: "return typeof shown === 'string' ? shown : messageOf(error)",
    test: 'test/login/session.test.ts',
  },
  {
    promise: '**Processes end with each other.** When `exec` ends, even by SIGKILL, its command is killed',
    before: 'const watchdog = startWatchdog(pid)\n    this.#pid = pid',
    after: 'const watchdog = { dismiss: () => undefined }\n    this.#pid = pid',
    test: 'test/cli/exec-ends.test.ts',
  },
  {
    promise: 'When the command ends, the remaining processes of its process group are killed',
    before: "sendSignal(-pid, 'SIGKILL')\n    return exitCodeOf(exit)",
    after: 'return exitCodeOf(exit)',
    test: 'test/cli/exec-ends.test.ts',
  },
  {
    promise: '**Current.** A change of a secret reaches the files or the command',
    before: '        rmSync(join(at, name), { force: true })\n        now.delete(name)\n',
    after: '        rmSync(join(at, name), { force: true })\n',
    test: 'test/cli/commands/exec/secret-files.test.ts',
  },
  {
    promise: '**Current.** A change of a secret reaches the files or the command',
    before:
      '    this.#env = env\n    const pid = this.#pid\n    if (pid === undefined || this.#isRestarting) return\n    this.#isRestarting = true\n',
    after:
      '    const pid = this.#pid\n    if (pid === undefined || this.#isRestarting) return\n    this.#env = env\n    this.#isRestarting = true\n',
    test: 'test/cli/commands/exec/program.test.ts',
  },
  {
    promise: 'The token is renewed before it expires',
    before: '    while (!signal.aborted && this.#lifetime.seconds > 0) {\n      const first = this.#lifetime\n',
    after: '    const first = this.#lifetime\n    while (!signal.aborted && this.#lifetime.seconds > 0) {\n',
    test: 'test/login/session.test.ts',
    testName: 'by its own lifetime',
  },
]
