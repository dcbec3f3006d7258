/**
 * The checks that look at the sources without running them: types, lint, format and the word list, side by side, because none of them keeps
 * two processors busy. What each one says is shown as a whole when it has ended; one that fails fails all.
 *
 *     npm run check
 */
import { spawn } from 'node:child_process'
import { text } from 'node:stream/consumers'

const CHECKS = ['types', 'lint', 'format:check', 'words']

/** Runs a script of package.json; resolves with whether it passed. */
async function passes(name: string): Promise<boolean> {
  const startedMs = performance.now()
  const child = spawn('npm', ['run', '--silent', name], { stdio: ['ignore', 'pipe', 'pipe'] })
  const ended = new Promise<boolean>((resolve) => {
    child.once('error', () => resolve(false))
    child.once('close', (code) => resolve(code === 0))
  })
  const [isGood, out, errors] = await Promise.all([ended, text(child.stdout), text(child.stderr)])
  const seconds = ((performance.now() - startedMs) / 1000).toFixed(1)
  process.stdout.write(`${out}${errors}${name}: ${isGood ? 'passed' : 'FAILED'}, ${seconds} s\n`)
  return isGood
}

const results = await Promise.all(CHECKS.map(passes))
process.exitCode = results.every(Boolean) ? 0 : 1
