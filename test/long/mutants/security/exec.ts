/** Mutants of "Programs that `outpost exec` runs, logs and commands". */
import type { Mutant } from '../mutant-list.ts'

export const MUTANTS: readonly Mutant[] = [
  {
    promise: 'A key becomes a variable only if the command line allows',
    before: 'USERNAME|TOKEN|SECRET|KEY|KEY_ID)$/',
    after: 'USERNAME|TOKEN|SECRET|KEY|KEY_ID|OPTIONS)$/',
    test: 'test/cli/commands/exec/exec-names.test.ts',
  },
  {
    promise: 'A key becomes a variable only if the command line allows',
    before: `if (!isDefault && !rules.allowed.some(matches)) return 'not allowed'`,
    after: '',
    test: 'test/cli/commands/exec/exec.test.ts',
    testName: '-env names',
  },
  {
    promise: 'A key becomes a variable only if the command line allows',
    before: "new RegExp(`^${pattern.replaceAll('*', '.*')}$`)",
    after: "new RegExp(`^${pattern.replaceAll('*', '.*')}`)",
    test: 'test/cli/commands/exec/exec-names.test.ts',
  },
  {
    promise: 'The program that `exec` runs gets no token',
    before: 'for (const name of [...CREDENTIALS, DESCRIPTOR]) delete rest[name]',
    after: 'for (const name of [DESCRIPTOR]) delete rest[name]',
    test: 'test/cli/commands/exec/exec.test.ts',
    testName: 'a command gets secrets as variables',
  },
  {
    promise: 'The program that `exec` runs gets no token',
    before: '    closeSync(descriptor)\n    const given',
    after: '    const given',
    test: 'test/cli/commands/exec/exec.test.ts',
    testName: 'finds no token and no code',
  },
  {
    promise: 'The program that `exec` runs gets no token',
    before: 'const shown = io.env === process.env ? visibleCredential() : undefined',
    after: 'const shown = undefined as string | undefined',
    test: 'test/cli/commands/exec/exec.test.ts',
    testName: 'exec refuses to run',
  },
  {
    promise: 'Tokens and names of secrets appear in no log',
    before: 'pathLog.known(this.#path) : pathLog.unknown(this.#path)',
    after: 'pathLog.known(this.#path) : pathLog.known(this.#path)',
    test: 'test/attacks/tokens-in-paths.test.ts',
  },
  {
    promise: 'Tokens and names of secrets appear in no log',
    before: 'return this.#withoutTokens(path).slice(0, LENGTH_MAX)',
    after: 'return path.slice(0, LENGTH_MAX)',
    test: 'test/attacks/tokens-in-paths.test.ts',
  },
  {
    promise: 'Tokens and names of secrets appear in no log',
    before: 'if (this.#isFull() && isSecret !== true)',
    after: 'if (this.#isFull())',
    test: 'test/attacks/tokens-in-paths.test.ts',
  },
  {
    promise: 'The commands send a token only to the address',
    before: 'return familyUrl !== undefined && canonicalAddress(familyUrl) === canonicalAddress(url)',
    after: 'return familyUrl !== undefined && familyUrl.hostname === url.hostname',
    test: 'test/cli/client/addresses.test.ts',
  },
  {
    promise: 'The commands send a token only to the address',
    before: `const stored = isOf('OUTPOST') ? storedToken(env) : undefined`,
    after: 'const stored = storedToken(env)',
    test: 'test/cli/client/addresses.test.ts',
  },
  {
    promise: 'Files are written to the directory only.',
    before: 'descriptor = openSync(shown, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW)',
    after: 'descriptor = openSync(shown, constants.O_RDONLY | constants.O_DIRECTORY)',
    test: 'test/cli/commands/exec/exec.test.ts',
    testName: 'cannot be passed to a command',
  },
  {
    promise: 'Files are written to the directory only.',
    before: ': (mode & 0o077) !== 0\n',
    after: ': (mode & 0o007) !== 0\n',
    test: 'test/cli/commands/exec/exec.test.ts',
    testName: 'cannot be passed to a command',
  },
  {
    promise: 'Files are written to the directory only.',
    before: 'const FILE_NAME = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$/',
    after: 'const FILE_NAME = /^[A-Za-z0-9_.][A-Za-z0-9_./-]{0,199}$/',
    test: 'test/cli/commands/exec/exec-names.test.ts',
  },
  {
    promise: 'A key does not replace a variable',
    before: `return isInUse ? 'in the environment' : undefined`,
    after: 'return undefined',
    test: 'test/cli/commands/exec/exec-names.test.ts',
  },
  {
    promise: 'A key does not replace a variable',
    before: `if (rules.prefix !== '' || rules.allowed.includes(variable)) return undefined`,
    after: `if (rules.prefix !== '' || rules.allowed.length > 0) return undefined`,
    test: 'test/cli/commands/exec/exec-names.test.ts',
  },
]
