/**
 * Preloaded into each test process and its threads (`scripts/test.ts`). Has no `import`, which would take longer than the rest.
 *
 * Disables the promise hooks of Node's test runner, which attribute unhandled errors to tests and use a tenth of the CPU of tests.
 * An unhandled error still fails the file, and its stack is printed here; a test that waits for the failed work times out.
 *
 * Fails a test process that calls `process.exit`: with code 0 the remaining tests would be skipped and the run would pass.
 *
 * Records the CPU time of a process when it exits, because the kernel discards it then.
 */
const show = (what: string, error: unknown) =>
  process.stderr.write(`${what}: ${error instanceof Error ? error.stack : String(error)}\n`)

{
  const hooks = process.getBuiltinModule('node:async_hooks')
  const { createHook } = hooks
  hooks.createHook = (callbacks) => createHook({ ...callbacks, trackPromises: false })

  const { isMainThread } = process.getBuiltinModule('node:worker_threads')

  // Processes that a test forks preload this file, too.
  if (isMainThread && /\.test\.(?:ts|mjs)$/.test(process.argv[1] ?? '')) {
    const exit = process.exit.bind(process)
    // The runner was killed: the report of each such error would be the next one, without an end.
    process.stderr.on('error', () => exit(1))
    process.on('uncaughtExceptionMonitor', (error) => show('an error that no test caught', error))
    process.on('unhandledRejection', (reason) => show('a rejection that no test caught', reason))
    process.exit = (code) => {
      show('a test', new Error(`process.exit(${code ?? ''}) was called`))
      return exit(code || 1)
    }
  }

  const file = process.env['OUTPOST_TEST_CPU']
  if (file !== undefined && isMainThread) {
    const { appendFileSync, readFileSync } = process.getBuiltinModule('node:fs')
    const keep = () => appendFileSync(file, `${process.argv[1]}\t${readFileSync('/proc/self/stat', 'latin1')}`)
    process.once('exit', keep)
  }
}
