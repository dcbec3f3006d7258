/**
 * Static checks: types, lint, format and the word list, concurrently, because none of them uses two processors. The output of
 * each one is printed when it has ended. One failure fails the whole check.
 *
 *     npm run check
 */
import { spawn } from 'node:child_process'
import { text } from 'node:stream/consumers'

const CHECKS = ['types', 'lint', 'format:check', 'words']

/** Runs a script of package.json; resolves with whether it passed. */
async function passes(name: string): Promise<boolean> {
  const startedMs = performance.now()
  // The compiler and the linter of types are Go programs that end within seconds.
  const env = { ...process.env, GOGC: '400' }
  const child = spawn('npm', ['run', '--silent', name], { env, stdio: ['ignore', 'pipe', 'pipe'] })
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
