/**
 * Installs the packages of another architecture for `npm run dist`, which uses no network itself. Versions and hashes are those of
 * package-lock.json; npm checks them.
 *
 *     npm run dist:fetch -- arm64
 */
import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, rmSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { ARCHITECTURES, fetchedModules, platformModules } from './architecture.ts'

const ROOT = resolve(import.meta.dirname, '../..')

const [name = ''] = process.argv.slice(2)
if (!ARCHITECTURES.some((each) => each.name === name)) {
  process.stderr.write(`usage: npm run dist:fetch -- ${ARCHITECTURES.map((each) => each.name).join('|')}\n`)
  process.exit(2)
}
if (platformModules(ROOT, name) !== undefined) {
  process.stdout.write(`the packages for ${name} are installed\n`)
} else {
  const directory = dirname(fetchedModules(ROOT, name))
  rmSync(directory, { recursive: true, force: true })
  mkdirSync(directory, { recursive: true })
  for (const file of ['package.json', 'package-lock.json']) cpSync(join(ROOT, file), join(directory, file))
  const platform = ['--os=linux', `--cpu=${name}`, '--libc=glibc']
  execFileSync('npm', ['ci', '--omit=dev', '--ignore-scripts', '--no-audit', '--no-fund', ...platform], {
    cwd: directory,
    stdio: 'inherit',
  })
  if (platformModules(ROOT, name) === undefined) throw new Error(`npm did not install node-linux-${name}`)
}
