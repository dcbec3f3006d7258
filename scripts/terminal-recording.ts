/**
 * Records the quick start as an animated SVG: runs the commands against a real agent and draws what they print.
 *
 *     npm run docs:recording           writes docs/images/quickstart.svg
 *
 * The commands run as they are shown. The agent alone gets a free port in addition, which is drawn as the default one.
 */
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'

const ROOT = resolve(import.meta.dirname, '..')
const FILE = join(ROOT, 'docs/images/quickstart.svg')

const COLUMNS = 94
const CELL_PX = { width: 8.43, height: 20 }
const FONT_PX = 14
const PADDING_PX = 18
const TITLE_PX = 34
const COLOURS = { window: '#11151c', title: '#1b212c', text: '#c7d0dc', command: '#ffffff', prompt: '#5fd7a7' }

const KEY_SECONDS = 0.035
/** Delay between the end of a command and its output. */
const ANSWER_SECONDS = 0.35
/** Time to read the output. */
const READ_SECONDS = 1.3
const HOLD_SECONDS = 6

const START_TIMEOUT_MS = 30_000
const DEFAULT_URL = 'http://127.0.0.1:4646'

/** The task of the recording: a program that logs requests. */
const SHOP = `#!/bin/sh
n=0
while sleep 0.05; do
  n=$((n + 1))
  status=200
  [ $((n % 7)) = 0 ] && status=503
  echo "GET /orders/$n status=$status"
done
`

interface Line {
  readonly text: string
  readonly isCommand: boolean
  /** Seconds since the beginning, when typing of the command starts. */
  readonly atSeconds: number
}

/** Collects lines with their times. */
class Recording {
  readonly lines: Line[] = []
  #seconds = 0.5

  get seconds(): number {
    return this.#seconds
  }

  add(command: string, output: string): void {
    this.lines.push({ text: command, isCommand: true, atSeconds: this.#seconds })
    this.#seconds += command.length * KEY_SECONDS + ANSWER_SECONDS
    const printed = output.replaceAll('\t', '    ').trimEnd()
    if (printed === '') return
    for (const text of printed.split('\n')) this.lines.push({ text, isCommand: false, atSeconds: this.#seconds })
    this.#seconds += READ_SECONDS
  }
}

/** A shell in the directory of the recording, with `outpost` in its PATH. */
class Shell {
  readonly directory: string
  readonly #env: NodeJS.ProcessEnv

  constructor() {
    this.directory = mkdtempSync(join(tmpdir(), 'outpost-recording-'))
    symlinkSync(join(ROOT, 'bin/outpost'), join(this.directory, 'outpost'))
    writeFileSync(join(this.directory, 'shop'), SHOP, { mode: 0o755 })
    const path = `${this.directory}:${dirname(process.execPath)}:${process.env['PATH'] ?? ''}`
    this.#env = {
      PATH: path,
      HOME: this.directory,
      COLUMNS: String(COLUMNS),
      OUTPOST_TOKEN: 'demo',
      OUTPOST_DATA_DIR: 'demo',
    }
  }

  set address(url: string) {
    this.#env['OUTPOST_ADDR'] = url
  }

  run(command: string): string {
    const { status, stderr, stdout } = spawnSync('sh', ['-c', command], {
      cwd: this.directory,
      env: this.#env,
      encoding: 'utf8',
    })
    if (status !== 0) throw new Error(`${command}: exit code ${status}\n${stderr}`)
    return stdout
  }

  /** Starts the agent on a free port. Resolves with its process and its output when it is ready. */
  async startAgent(command: string) {
    const [program = '', ...words] = command.split(' ')
    const child = spawn(program, [...words, '-dev-no-demo', '-http-port', '0', '-cluster-port', '0'], {
      cwd: this.directory,
      env: this.#env,
      stdio: ['ignore', 'pipe', 'ignore'],
    })
    let printed = ''
    const deadline = AbortSignal.timeout(START_TIMEOUT_MS)
    while (!printed.includes('==> outpost agent started')) {
      const [chunk] = (await once(child.stdout, 'data', { signal: deadline })) as [Buffer]
      printed += chunk.toString()
    }
    return { child, printed }
  }

  remove(): void {
    rmSync(this.directory, { recursive: true, force: true })
  }
}

async function record(): Promise<Recording> {
  const shell = new Shell()
  const recording = new Recording()
  const agentCommand = 'outpost agent -dev -dev-root-token-id demo -data-dir demo'
  const { child, printed } = await shell.startAgent(agentCommand)
  try {
    const url = /http:\/\/127\.0\.0\.1:\d+/.exec(printed)?.[0] ?? ''
    shell.address = url
    const show = (command: string) => {
      const output = shell.run(command).replaceAll(url, DEFAULT_URL)
      recording.add(command, output)
      return output
    }
    recording.add(`${agentCommand} &`, printed.replaceAll(url, DEFAULT_URL).replaceAll(/^\n+/g, ''))
    recording.add('export OUTPOST_TOKEN=demo OUTPOST_DATA_DIR=demo', '')
    const allocation = show('outpost alloc run -detach -task web -- ./shop').slice(0, 8)
    try {
      // Long enough for two failing requests.
      shell.run(`until [ "$(outpost logs -grep status=503 ${allocation} | wc -l)" -ge 2 ]; do sleep 0.1; done`)
      show('outpost alloc list')
      show(`outpost logs -tail=2 ${allocation}`)
      show(`outpost logs -grep 'status=5..' ${allocation} | head -n 2`)
      show('printf %s s3cret-pa55 | outpost kv put -field=version secret/app db_user=app db_password=-')
      show('outpost kv get -field=db_password secret/app')
      show(`outpost exec -secret=secret/data/app -- sh -c 'echo "$DB_USER: \${#DB_PASSWORD} characters"'`)
    } finally {
      shell.run(`outpost alloc stop ${allocation}`)
    }
  } finally {
    child.kill('SIGTERM')
    await once(child, 'exit')
    shell.remove()
  }
  return recording
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
}

/** Without support for animations all lines are visible. */
function svg({ lines, seconds }: Recording): string {
  const total = seconds + HOLD_SECONDS
  const width = Math.ceil(COLUMNS * CELL_PX.width + 2 * PADDING_PX)
  const height = TITLE_PX + 2 * PADDING_PX + lines.length * CELL_PX.height
  const percent = (at: number) => `${((at / total) * 100).toFixed(2)}%`
  const rules: string[] = []
  const shown = lines.map(({ atSeconds, isCommand, text }, index) => {
    const y = TITLE_PX + PADDING_PX + (index + 0.75) * CELL_PX.height
    rules.push(`@keyframes l${index}{0%,${percent(atSeconds - 0.01)}{opacity:0}${percent(atSeconds)},100%{opacity:1}}`)
    rules.push(`#l${index}{animation:l${index} ${total.toFixed(2)}s linear infinite}`)
    if (text === '') return ''
    if (!isCommand) return `<text id="l${index}" x="${PADDING_PX}" y="${y}">${escaped(text)}</text>`
    // A cover moves to the right by one cell per key.
    const typed = text.length * KEY_SECONDS
    const from = `${percent(atSeconds)}{transform:none;animation-timing-function:steps(${text.length})}`
    const to = `${percent(atSeconds + typed)},100%{transform:translateX(${(text.length * CELL_PX.width).toFixed(1)}px)}`
    rules.push(`@keyframes c${index}{0%,${from}${to}}`)
    rules.push(`#c${index}{animation:c${index} ${total.toFixed(2)}s linear infinite}`)
    const x = PADDING_PX + 2 * CELL_PX.width
    const length = (text.length * CELL_PX.width).toFixed(1)
    const cover = `<rect id="c${index}" class="cover" x="${x}" y="${y - 15}" width="${width}" height="${CELL_PX.height}"/>`
    const words = `<text class="command" x="${x}" y="${y}" textLength="${length}">${escaped(text)}</text>`
    return `<g id="l${index}"><text class="prompt" x="${PADDING_PX}" y="${y}">$</text>${words}${cover}</g>`
  })
  return `<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-labelledby="t">
<title id="t">Terminal: an agent starts, a task runs and its log is searched, a secret is written and given to a program</title>
<style>
text{font-family:"DejaVu Sans Mono",Menlo,Consolas,"Liberation Mono",monospace;font-size:${FONT_PX}px;white-space:pre;fill:${COLOURS.text}}
.command{fill:${COLOURS.command}}.prompt{fill:${COLOURS.prompt}}.cover{fill:${COLOURS.window};transform:translateX(${width}px)}
${rules.join('\n')}
@media (prefers-reduced-motion:reduce){*{animation:none!important}}
</style>
<clipPath id="w"><rect width="${width}" height="${height}" rx="10"/></clipPath>
<g clip-path="url(#w)">
<rect width="${width}" height="${height}" fill="${COLOURS.window}"/>
${shown.join('\n')}
<rect width="${width}" height="${TITLE_PX}" fill="${COLOURS.title}"/>
<circle cx="20" cy="17" r="6" fill="#ff5f57"/><circle cx="40" cy="17" r="6" fill="#febc2e"/><circle cx="60" cy="17" r="6" fill="#28c840"/>
</g>
</svg>
`
}

mkdirSync(dirname(FILE), { recursive: true })
writeFileSync(FILE, svg(await record()))
