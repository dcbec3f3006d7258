/**
 * Loaded into each process of a test before its own code (`scripts/test.ts`), and into its threads. No `import`, which would cost
 * more than all of this.
 *
 * Hands on at the end of a process what the kernel tells of it, which is forgotten with the process.
 *
 * Keeps Node's test runner from following promises: it does so to name the test that an error without a catcher belongs to,
 * and that is a tenth of what tests in a process cost. Such an error still fails the file; `node --test FILE` names the test.
 */
{
  const hooks = process.getBuiltinModule('node:async_hooks')
  const { createHook } = hooks
  hooks.createHook = (callbacks) => createHook({ ...callbacks, trackPromises: false })

  const file = process.env['OUTPOST_TEST_CPU']
  if (file !== undefined && process.getBuiltinModule('node:worker_threads').isMainThread) {
    const { appendFileSync, readFileSync } = process.getBuiltinModule('node:fs')
    const keep = () => appendFileSync(file, `${process.argv[1]}\t${readFileSync('/proc/self/stat', 'latin1')}`)
    process.once('exit', keep)
  }
}
