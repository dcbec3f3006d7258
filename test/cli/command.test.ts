import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { readAgentOptions } from '../../src/cli/commands/agent.ts'
import { COMMAND_GROUPS, COMMAND_NAMES, COMMON_COMMANDS, loadCommands } from '../../src/cli/command-table.ts'
import { runCommand } from '../../src/cli/command.ts'
import { UsageError } from '../../src/cli/framework/options.ts'
import type { CommandServices } from '../../src/cli/framework/define-command.ts'
import type { AgentOptions } from '../../src/cli/framework/services.ts'
import { OUTPOST, outpost, ROOT, start, temporaryDirectory } from './outpost-process.ts'

/** Lines of a terminal window, without scrolling. */
const SCREEN_LINES = 40

async function run(args: readonly string[], services: CommandServices = {}) {
  let out = ''
  let err = ''
  const io = { out: (text: string) => void (out += text), err: (text: string) => void (err += text), env: {} }
  const code = await runCommand(args, io, services)
  return { code, out, err }
}

test('version prints the one in package.json', async () => {
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string }
  for (const word of ['version', '-version', '--version', '-v']) {
    const { code, out, err } = await run([word])
    assert.equal(code, 0)
    assert.match(out, new RegExp(`^outpost v${version.replaceAll('.', '\\.')} \\(node v`))
    assert.equal(err, '')
  }
})

/** Names of the commands in a help text. */
function namesIn(help: string): string[] {
  return [...help.matchAll(/^ {4}([a-z-]+(?: [a-z-]+)*(?: \.\.\.)?) {2,}/gm)].map(([, name]) => name ?? '')
}

test('help shows the common commands, the groups and the environment variables on one screen', async () => {
  const { code, out } = await run(['help'])
  assert.equal(code, 0)
  assert.deepEqual(await run(['-h']), { code: 0, out, err: '' })
  assert.deepEqual(namesIn(out), [...COMMON_COMMANDS, ...COMMAND_GROUPS.map(({ name }) => name)])
  assert.equal(COMMON_COMMANDS.length, 10)
  for (const name of ['OUTPOST_ADDR', 'OUTPOST_TOKEN', 'OUTPOST_DATA_DIR'])
    assert.match(out, new RegExp(`^ {4}${name} `, 'm'))
  assert.ok(out.split('\n').length <= SCREEN_LINES, out)
})

test('the groups list every command once, each on one screen, with a summary by the style rules', async () => {
  const listed: string[] = []
  for (const { collapsed = {}, name: group } of COMMAND_GROUPS) {
    const { code, out } = await run(['help', group])
    assert.equal(code, 0)
    assert.ok(out.split('\n').length <= SCREEN_LINES, out)
    for (const name of namesIn(out)) {
      const words = name.replace(/ \.\.\.$/, '')
      if (words === name) listed.push(name)
      else listed.push(...namesIn((await run(['help', ...words.split(' ')])).out))
      assert.equal(words !== name, words in collapsed, name)
    }
  }
  assert.deepEqual(listed.toSorted(), [...COMMAND_NAMES, 'help'].toSorted())
  for (const command of await loadCommands(COMMAND_NAMES)) {
    assertHelpStyle(command.summary, command.name)
    for (const [option, { help }] of Object.entries(command.options))
      assertHelpStyle(help, `${command.name} -${option}`)
  }
})

/** docs/style.md: imperative, at most ten words, no commas. */
function assertHelpStyle(text: string, what: string): void {
  assert.match(text, /^[A-Z][^,]*[^.,]$/, `${what}: ${text}`)
  assert.ok(text.split(' ').length <= 10, `${what}: ${text}`)
}

const importedFile = (load: string) => /import\('\.\/commands\/([\w/-]+)\.ts'\)/.exec(load)?.[1] ?? ''

test('every command is in a file that its words name, and has its own help', async () => {
  assert.deepEqual(
    (await loadCommands(COMMAND_NAMES)).map(({ name }) => name),
    COMMAND_NAMES,
  )
  // The table's text: a bundle of this test has other paths in its imports.
  const table = readFileSync(join(ROOT, 'src/cli/command-table.ts'), 'utf8')
  const shared = new Map(
    [...table.matchAll(/^const (\w+): Load = (.+)$/gm)].map(([, name, load = '']) => [name, importedFile(load)]),
  )
  const call = /(?:single|file)\( ?'([^']+)',(?: '([^']+)',)? (\(\) => import\([^)]+\)|\w+),? ?\)/g
  const rows = [...table.slice(table.indexOf('COMMAND_GROUPS')).replaceAll(/\s+/g, ' ').matchAll(call)]
  const checked = rows.flatMap(([, first = '', rest, load = '']) => {
    const file = importedFile(load) || (shared.get(load) ?? '')
    const names = rest === undefined ? [first] : rest.split(' ').map((word) => `${first} ${word}`.trim())
    for (const name of names) assert.ok(`${name} `.startsWith(`${file.replaceAll('/', ' ')} `), `${name}: ${file}`)
    return names
  })
  assert.deepEqual(checked.toSorted(), COMMAND_NAMES.toSorted())
  for (const name of COMMAND_NAMES) {
    const words = name.split(' ')
    const shown = await run([...words, '-help'])
    assert.equal(shown.code, 0)
    assert.match(shown.out, new RegExp(`^Usage: outpost ${name}`))
    for (const ask of ['-h', '--help']) assert.deepEqual(await run([...words, ask]), shown)
    assert.deepEqual(await run(['help', ...words]), shown)
    assert.doesNotMatch(shown.out, /Default: \./, 'an empty default')
    for (const line of shown.out.split('\n')) assert.ok(line.length <= 104, `too long: ${line}`)
    assert.doesNotMatch(shown.out, /Default: \./, name)
  }
})

test('a group with the name of a first word has its own help', async () => {
  assert.match((await run(['alloc', '-help'])).out, /^Usage: outpost alloc COMMAND[^]*alloc stop/)
  assert.deepEqual(namesIn((await run(['secrets', '-help'])).out), [
    'secrets list',
    'secrets enable',
    'secrets disable',
    'secrets tune',
    'secrets move',
  ])
  assert.ok(namesIn((await run(['help', 'secrets'])).out).includes('kv get'))
  assert.match((await run(['help', 'help'])).out, /^Usage: outpost help/)
})

const wrong: [string[], RegExp][] = [
  [[], /^Usage: outpost COMMAND/],
  [['vesion'], /^outpost: unknown command "vesion", did you mean version\? \(see "outpost help"\)\n$/],
  [['frobnicate'], /^outpost: unknown command "frobnicate" \(see "outpost help"\)\n$/],
  [['alloc'], /^outpost: missing word after "outpost alloc", one of: run, list, status, stop, stats, gc, write-log\n$/],
  [['alloc', 'rnu'], /^outpost: unknown command "alloc rnu", did you mean alloc run\?/],
  [
    ['version', 'x'],
    /unexpected argument "x": "outpost version" takes no arguments \(see "outpost version -help"\)\n$/,
  ],
  [
    ['validate'],
    /^outpost: missing FILE\|DIR, usage: outpost validate FILE\|DIR\.\.\. \(see "outpost validate -help"\)\n$/,
  ],
  [['alloc', 'stop'], /^outpost: missing ID, usage: outpost alloc stop ID \(see/],
  [['alloc', 'stop', 'a', 'b'], /unexpected argument "b"/],
  [['alloc', 'run'], /^outpost: missing CMD: put the command after --/],
  [['alloc', 'run', '--', ''], /missing CMD: the word after -- is empty/],
  [['alloc', 'run', '-id', '12', '--', 'true'], /option -id: "12" must be a UUID/],
  [['alloc', 'run', '-task', 'alloc', '--', 'true'], /option -task: "alloc" is reserved/],
  [['alloc', 'run', '-task', '../x', '--', 'true'], /option -task: /],
  [['alloc', 'run', '-max-files', '0', '--', 'true'], /option -max-files: "0" must be a whole number from 1/],
  [['alloc', 'run', '-max-file-size', '0', '--', 'true'], /option -max-file-size: "0" must be/],
  [['help', 'nothing'], /^outpost: unknown command "nothing" \(see "outpost help"\)\n$/],
]
for (const [args, message] of wrong) {
  test(`exit code 2 for ${JSON.stringify(args)}`, async () => {
    const { code, out, err } = await run(args)
    assert.equal(code, 2)
    assert.equal(out, '')
    assert.match(err, message)
    if (args.length > 0) assert.equal(err.split('\n').length, 2, 'one line')
  })
}

test('the options of agent are passed to startAgent', async () => {
  const seen: AgentOptions[] = []
  const services: CommandServices = { startAgent: (options) => Promise.resolve(seen.push(options)) }
  const id = 'A0000000-0000-4000-8000-000000000001'
  const args = ['agent', '-config', 'a.hcl', '-dev', '-http-port', '0', '-cluster-port=0', '-config=b', '-node-id', id]
  const more = ['-data-dir', 'd', '-dev-root-token-id', 'root', '-dev-no-demo', '-log-level', 'DEBUG']
  assert.equal((await run([...args, ...more], services)).code, 1, 'what startAgent resolved to')
  const expected: AgentOptions = {
    dev: true,
    httpPort: 0,
    clusterPort: 0,
    dataDir: 'd',
    devRootTokenId: 'root',
    devNoDemo: true,
    nodeId: id.toLowerCase(),
    logLevel: 'debug',
    config: ['a.hcl', 'b'],
  }
  assert.deepEqual(seen, [expected])
  assert.deepEqual(readAgentOptions([...args.slice(1), ...more]), expected)
})

for (const [args, message] of [
  [[], /missing configuration: use -config FILE, or -dev/],
  [['-config', 'a', '-dev-no-demo'], /option -dev-no-demo requires -dev/],
  [['-config', 'a', '-dev-root-token-id', 'x'], /option -dev-root-token-id requires -dev/],
  [['-dev', '-node-id', 'x'], /must be a UUID/],
  [['-dev', '-http-port', '70000'], /must be a whole number from 0 to 65535/],
  [['-dev', '-log-level', 'loud'], /must be one of trace, debug, info, warn, error/],
  [['-dev', 'x'], /unexpected argument "x"/],
] as const) {
  test(`agent refuses ${JSON.stringify(args)}`, async () => {
    assert.throws(
      () => readAgentOptions(args),
      (error) => error instanceof UsageError && message.test(error.message),
    )
    const { code, err } = await run(['agent', ...args])
    assert.equal(code, 2)
    assert.match(err, message)
  })
}

test('validate prints every fault with its position and exits 1', async (t) => {
  const directory = temporaryDirectory(t)
  const good = join(directory, 'good.hcl')
  const bad = join(directory, 'bad.hcl')
  writeFileSync(good, 'data_dir = "/var/lib/outpost"\nclient { enabled = true }\n')
  writeFileSync(bad, 'data_dri = "/x"\nports { http = 70000 }\n')
  const valid = await run(['validate', good])
  assert.deepEqual([valid.code, valid.out], [0, 'The configuration is valid\n'], valid.err)
  const invalid = await run(['validate', bad])
  assert.equal(invalid.code, 1)
  assert.equal(invalid.out, '')
  assert.match(invalid.err, /bad\.hcl:1:1: .*data_dri/)
  assert.match(invalid.err, /bad\.hcl:2:\d+: /)
  assert.equal((await run(['validate', join(directory, 'none.hcl')])).code, 1)
})

test('errors of the real program are one line on stderr and an exit code', async () => {
  const wrongOption = await outpost('version', '-x')
  assert.deepEqual([wrongOption.code, wrongOption.stdout], [2, ''])
  assert.equal(wrongOption.stderr, 'outpost: unknown option "-x" (see "outpost version -help")\n')
})

test('a full disk is an error of the output, an exited reader is not', async () => {
  const full = await start('/bin/sh', ['-c', `${OUTPOST} version >/dev/full`]).finished
  assert.deepEqual([full.code, full.stdout], [1, ''])
  assert.match(full.stderr, /^outpost: cannot write the output: ENOSPC[^\n]*\n$/)
  const left = await start('/bin/sh', ['-c', `(sleep 1; ${OUTPOST} version; echo $? >&2) | :`]).finished
  assert.equal(left.stderr, '0\n')
})

test('an error escapes control characters', async () => {
  const lines: string[] = []
  const io = { out: () => undefined, err: (text: string) => void lines.push(text), env: {} }
  assert.equal(await runCommand(['\u001b]0;title\u0007\u009b2J'], io), 2)
  assert.match(lines.join(''), /title/)
  // oxlint-disable-next-line no-control-regex -- the test searches for them
  assert.doesNotMatch(lines.join('').trimEnd(), /[\u0000-\u001f\u007f-\u009f]/)
})
