/**
 * The Chromium of the tests: unpacked once from the package `@sparticuz/chromium` into `node_modules/.cache`, with its libraries and a
 * font. `CHROMIUM` names an installed one instead, which is needed where there is no package for the processor.
 *
 * The package's own start functions are not used: they turn off the web security that the tests check, and reuse a file of the temporary
 * directory that another user may have written.
 */
import { execFileSync } from 'node:child_process'
import {
  createReadStream,
  createWriteStream,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { createBrotliDecompress } from 'node:zlib'
import { type Browser, chromium } from 'playwright-core'

const MODULES = resolve(import.meta.dirname, '../../../node_modules')
const PACKAGE = join(MODULES, '@sparticuz/chromium')
/** Archive of libraries that a minimal Debian does not have, and of fonts. */
const ARCHIVES = ['al2023.tar.br', 'fonts.tar.br', 'swiftshader.tar.br']

const FONT_CONFIG = (fonts: string, cache: string) => `<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>/usr/share/fonts</dir>
  <dir>${fonts}</dir>
  <cachedir>${cache}</cachedir>
</fontconfig>
`

/** Why Chromium cannot run on this machine; undefined if it can. */
export function whyNoChromium(): string | undefined {
  if (process.env['CHROMIUM'] !== undefined) return undefined
  if (process.platform === 'linux' && process.arch === 'x64') return undefined
  return `no Chromium for ${process.platform}-${process.arch}: install one and set CHROMIUM to its path`
}

function packageVersion(): string {
  const parsed: unknown = JSON.parse(readFileSync(join(PACKAGE, 'package.json'), 'utf8'))
  if (typeof parsed === 'object' && parsed !== null && 'version' in parsed) return String(parsed.version)
  throw new Error('the package of Chromium has no version')
}

async function unpack(directory: string): Promise<void> {
  const bin = join(PACKAGE, 'bin')
  const program = createWriteStream(join(directory, 'chromium'), { mode: 0o755 })
  await pipeline(createReadStream(join(bin, 'chromium.br')), createBrotliDecompress(), program)
  for (const name of ARCHIVES) {
    const archive = join(directory, name.replace('.br', ''))
    await pipeline(createReadStream(join(bin, name)), createBrotliDecompress(), createWriteStream(archive))
    execFileSync('tar', ['-xf', archive, '-C', directory])
    rmSync(archive)
  }
}

/** The folder with the program. Processes that unpack at the same time do not see each other's half. */
async function unpackedDirectory(): Promise<string> {
  const cache = join(MODULES, '.cache')
  const directory = join(cache, `chromium-${packageVersion()}`)
  if (existsSync(directory)) return directory
  mkdirSync(cache, { recursive: true })
  const partial = mkdtempSync(join(cache, 'chromium-partial-'))
  try {
    await unpack(partial)
    renameSync(partial, directory)
  } catch (error) {
    rmSync(partial, { recursive: true, force: true })
    if (!existsSync(directory)) throw error
  }
  return directory
}

async function programOf(): Promise<{ readonly executablePath: string; readonly env: Record<string, string> }> {
  const installed = process.env['CHROMIUM']
  const env = Object.fromEntries(
    Object.entries(process.env).flatMap(([key, value]) => (value === undefined ? [] : [[key, value]])),
  )
  if (installed !== undefined) return { executablePath: installed, env }
  const directory = await unpackedDirectory()
  const own = mkdtempSync(join(tmpdir(), 'outpost-fonts-'))
  process.once('exit', () => rmSync(own, { recursive: true, force: true }))
  const config = join(own, 'fonts.conf')
  writeFileSync(config, FONT_CONFIG(join(directory, 'fonts'), join(own, 'cache')))
  const libraries = [directory, join(directory, 'lib'), process.env['LD_LIBRARY_PATH']].filter(Boolean).join(':')
  return {
    executablePath: join(directory, 'chromium'),
    env: { ...env, LD_LIBRARY_PATH: libraries, FONTCONFIG_FILE: config },
  }
}

/** Starts a headless Chromium; the caller closes it. */
export async function launchChromium(args: readonly string[] = []): Promise<Browser> {
  const { env, executablePath } = await programOf()
  const sandbox = process.getuid?.() === 0 ? ['--no-sandbox'] : []
  return chromium.launch({
    executablePath,
    env,
    headless: true,
    args: ['--disable-dev-shm-usage', '--font-render-hinting=none', ...sandbox, ...args],
  })
}
