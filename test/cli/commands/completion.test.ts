import assert from 'node:assert/strict'
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { runHere } from '../../helpers/command-here.ts'
import { outpost, start, temporaryDirectory } from '../outpost-process.ts'

const [HAS_ZSH, HAS_FISH] = ['zsh', 'fish'].map((name) =>
  ['/bin', '/usr/bin', '/usr/local/bin'].some((at) => existsSync(join(at, name))),
)

/** What the shell would offer for these words, the last of which is being typed. */
async function offered(t: TestContext, shell: 'bash' | 'zsh' | 'fish', words: readonly string[], cwd?: string) {
  const directory = temporaryDirectory(t)
  const file = join(directory, 'script')
  writeFileSync(file, (await runHere(['completion', shell], {})).stdout)
  const programs = {
    bash: `set -u; source ${file}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _outpost; printf '%s\n' "\${COMPREPLY[@]+"\${COMPREPLY[@]}"}"`,
    zsh: [
      'compdef() { :; }; compadd() { while [[ $1 != -- ]]; do shift; done; shift; print -l -- "$@"; }',
      '_describe() { print -l -- ${found%%:*}; }; _files() { print -l -- *; }',
      `source ${file}; words=("$@"); CURRENT=$#; _outpost`,
    ].join('\n'),
    fish: `source ${file}; complete -C (string join ' ' -- $argv) | string replace -r '\\t.*' ''`,
  }
  const args = { bash: ['-c', programs.bash, 'bash'], zsh: ['-fc', programs.zsh, 'zsh'], fish: ['-c', programs.fish] }
  const { stdout, stderr } = await start(shell, [...args[shell], ...words], cwd ? { cwd } : {}).finished
  assert.equal(stderr, '')
  return stdout.split('\n').filter(Boolean)
}

const cases: [string[], string[]][] = [
  [['outpost', 'al'], ['alloc']],
  [
    ['outpost', 'node', ''],
    ['list', 'status', 'stats', 'meta', 'gc', 'purge'],
  ],
  [
    ['outpost', 'node', 'meta', ''],
    ['read', 'apply'],
  ],
  [
    ['outpost', 'logs', '-gr'],
    ['-grep', '-grep-invert', '-grep-context'],
  ],
  [
    ['outpost', 'logs', '-f', '-type', ''],
    ['stdout', 'stderr', 'all'],
  ],
  [['outpost', 'agent', '-log-level', 'w'], ['warn']],
  [
    ['outpost', 'completion', ''],
    ['bash', 'zsh', 'fish'],
  ],
  [['outpost', 'logs', '-n', ''], []],
]

for (const shell of ['bash', 'zsh', 'fish'] as const) {
  if ((shell === 'zsh' && !HAS_ZSH) || (shell === 'fish' && !HAS_FISH)) continue
  test(`${shell} completes commands, options and choices`, async (t) => {
    for (const [words, expected] of cases) {
      const begun = words.at(-1) ?? ''
      const found = (await offered(t, shell, words)).filter((word) => word.startsWith(begun))
      assert.deepEqual(found.toSorted(), expected.toSorted(), words.join(' '))
    }
  })
}

test('bash completes files, with their spaces', async (t) => {
  const directory = temporaryDirectory(t)
  mkdirSync(join(directory, 'in'))
  writeFileSync(join(directory, 'in/agent one.hcl'), '')
  const cwd = join(directory, 'in')
  assert.deepEqual(await offered(t, 'bash', ['outpost', 'agent', '-config', 'ag'], cwd), ['agent one.hcl'])
  assert.deepEqual(await offered(t, 'bash', ['outpost', 'validate', ''], cwd), ['agent one.hcl'])
})

test('every command and every option is in each script', async () => {
  const { stdout: help } = await outpost('help')
  const names = [...help.matchAll(/^ {4}([a-z-]+(?: [a-z-]+)*) {2,}/gm)].map(([, name]) => name ?? '')
  assert.ok(names.length > 15)
  const scripts = new Map<string, string>()
  for (const shell of ['bash', 'zsh', 'fish']) {
    const { code, stdout } = await runHere(['completion', shell], {})
    assert.equal(code, 0)
    scripts.set(shell, stdout)
  }
  for (const name of names) {
    const options = [...(await runHere(['help', ...name.split(' ')], {})).stdout.matchAll(/^ {2}-([\w-]+)/gm)]
    for (const [shell, script] of scripts) {
      assert.ok(script.includes(`'${name}'`), `${shell}: ${name}`)
      for (const [, option] of options) assert.ok(script.includes(option ?? ''), `${shell}: ${name} -${option}`)
    }
  }
  const wrong = await runHere(['completion', 'bsh'], {})
  assert.deepEqual([wrong.code, wrong.stdout], [2, ''])
  assert.match(wrong.stderr, /did you mean bash\?/)
})
