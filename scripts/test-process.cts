/**
 * Loaded into each process of a test before its own code (`scripts/test.ts`), and into its threads. No `import`, which would cost
 * more than all of this.
 *
 * Keeps Node's test runner from following promises: it does so to know the test that an error without a catcher belongs to,
 * and that is a tenth of what tests in a process cost. Such an error still fails the file, and its stack is printed here;
 * a test that waits for what has failed waits until its time is over.
 *
 * Makes a process of tests that calls `process.exit` fail: with code 0 the tests behind that call would be missing, and the
 * run would pass.
 *
 * Hands on at the end of a process what the kernel tells of it, which is forgotten with the process.
 */
const show = (what: string, error: unknown) =>
  process.stderr.write(`${what}: ${error instanceof Error ? error.stack : String(error)}\n`)

{
  const hooks = process.getBuiltinModule('node:async_hooks')
  const { createHook } = hooks
  hooks.createHook = (callbacks) => createHook({ ...callbacks, trackPromises: false })

  const { isMainThread } = process.getBuiltinModule('node:worker_threads')

  // What a test forks has this file loaded, too.
  if (isMainThread && /\.test\.(?:ts|mjs)$/.test(process.argv[1] ?? '')) {
    process.on('uncaughtExceptionMonitor', (error) => show('an error that no test caught', error))
    process.on('unhandledRejection', (reason) => show('a rejection that no test caught', reason))
    const exit = process.exit.bind(process)
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
